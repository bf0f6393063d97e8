"""The far ends of peers, run as children: ``python -m benchmarks.peers.<name>``."""

__all__: list[str] = []
