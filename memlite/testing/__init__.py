"""What tests and laptops use in the place of the real thing; public, for third parties too."""

__all__: list[str] = []
