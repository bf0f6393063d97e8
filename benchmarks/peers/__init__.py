"""The peers' side of comparisons. Modules that have a main program run in child processes, as
``python -m benchmarks.peers.<name>``."""

__all__: list[str] = []
