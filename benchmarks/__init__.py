"""Benchmarks that compare two ways to do the same work in one interleaved run."""

__all__: list[str] = []
