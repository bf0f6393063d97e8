"""The benchmarks. Each declares sides, the figures to compare, and bounds for their ratios."""

__all__: list[str] = []
