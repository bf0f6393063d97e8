"""Programs that run peers in child processes: ``python -m benchmarks.peers.<name>``."""

__all__: list[str] = []
