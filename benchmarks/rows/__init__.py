"""One file a benchmark."""

__all__: list[str] = []
