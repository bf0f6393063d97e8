"""Processes that run one side of a comparison, with the Python and the embershard of the checkout
that is measured."""

__all__: list[str] = []
