"""One output of the module and of its program, and what is wrong with it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

TOLERANCE = 1e-5
# Of all that is compared, the part of the largest value below which differences are rounding.
SMALLEST = 1e-2
# Standard normal numbers are smaller.
LARGEST_NORMAL = 10.0


@dataclass(frozen=True, slots=True)
class Compared:
    """One output, three times."""

    alone: Tensor | None
    """Of the module, example by example or request by request."""

    together: Tensor
    """Of the module, all examples in one batch."""

    got: Tensor
    """Of the program."""

    rows: Tensor | slice
    """Which rows of ``got`` the examples have."""

    tolerance: float
    """See `tolerance_of`."""

    def problem(self, count: int) -> str | None:
        """What is wrong, if anything; ``count`` rows are expected of the program."""
        got = self.got
        if got.dtype != torch.float32:
            return f"expected float32, got {got.dtype}; write .float()"
        if got.ndim < 1 or got.shape[0] != count or 0 in got.shape:
            return f"expected a row for each, ({count}, ...), got shape {tuple(got.shape)}"
        if self.alone is None:
            return (
                f"expected a row for each example, got that for {count} rows but not for a batch "
                "of one example; write squeeze(-1) in place of squeeze()"
            )
        if self.crosses_rows():
            return (
                "expected every example's output to depend on that example alone, got another in "
                "a batch than alone; it is computed across the rows of a batch"
            )
        if not close(got[self.rows], self.alone, self.tolerance):
            return (
                "expected what the module gives for the same examples, got other values; an "
                "operation takes rows of requests for rows of examples, or means something else "
                "in TorchScript"
            )
        return None

    def crosses_rows(self) -> bool:
        """Whether the module itself gives an example another output in company."""
        return self.alone is None or not close(self.together, self.alone, self.tolerance)


def tolerance_of(dense: Tensor) -> float:
    """Which part of a value is rounding: a sum of large dense inputs that cancel loses digits."""
    largest = float(dense.abs().max()) if dense.numel() else 0.0
    return TOLERANCE * min(max(largest / LARGEST_NORMAL, 1.0), 100.0)


def close(got: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> bool:
    """Alike but for rounding; NaN is like NaN, infinity like infinity."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return False
    if not expected.is_floating_point():
        return torch.equal(got, expected)
    finite = expected[expected.isfinite()].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    atol = tolerance * max(largest, SMALLEST)
    return torch.allclose(got, expected, rtol=tolerance, atol=atol, equal_nan=True)


def stacked(alone: Sequence[Tensor], counts: Sequence[int]) -> Tensor | None:
    """Outputs of parts of a batch as one; None where one is no tensor of a row for each of its
    part's examples, ``counts``."""
    for each, count in zip(alone, counts, strict=True):
        if not isinstance(each, Tensor) or each.ndim < 1 or len(each) != count:
            return None
    return torch.cat(list(alone))
