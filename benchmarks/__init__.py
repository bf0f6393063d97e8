"""Ratios between two ways of doing one thing, each from one interleaved run."""

__all__: list[str] = []
