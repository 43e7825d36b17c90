"""What backends have in common whose store answers over a network."""

__all__: list[str] = []
