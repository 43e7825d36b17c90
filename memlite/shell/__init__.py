"""The interactive client.

Data flows one way. A typed line becomes a `Request` (`typed`), whose bytes are sent over a `Link`.
The response is split into the parts of a reply (`replies`), and a display (`pretty`, `raw`) renders
them. A `Session` does this line by line, whether the lines come from a prompt or from a pipe.
"""

__all__: list[str] = []
