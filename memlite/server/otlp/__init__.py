"""Export to an OpenTelemetry receiver (``--otlp``).

Its dependencies come with ``pip install 'memlite-cache[otel]'``. Servers without ``--otlp`` import
nothing from this package.
"""

__all__: list[str] = []
