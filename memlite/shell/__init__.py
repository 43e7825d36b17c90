"""The interactive client.

One way of data: what is typed becomes a `Request` (`typed`), whose bytes go over a `Link`; what
comes back becomes parts of a reply (`replies`), which a display turns into what is shown (`pretty`,
`raw`). A `Session` does so line by line, whether the lines come from a prompt or from a pipe.
"""

__all__: list[str] = []
