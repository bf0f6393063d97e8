"""Compares one output of a module with that of its program."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

TOLERANCE = 1e-5

SMALLEST = 1e-2
"""Values are compared as if the largest was at least this."""

LARGEST_NORMAL = 10.0
"""Standard normal numbers are smaller than this."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output, computed three times for the same examples."""

    alone: Tensor | None
    """The module's output, computed for one example (or request) at a time. None: it did not have a
    row for each example."""

    together: Tensor
    """The module's output, computed in one batch."""

    program: Tensor
    rows: Tensor | slice
    """Row of ``program`` for each example."""

    tolerance: float

    def problem(self, count: int) -> str | None:
        """The first problem of the output, or None. ``count``: expected rows of the program."""
        program = self.program
        if program.dtype != torch.float32:
            return f"expected float32, got {program.dtype}; write .float()"
        if program.ndim < 1 or program.shape[0] != count or 0 in program.shape:
            return (
                f"expected a row for each example or request, shape ({count}, ...), got shape "
                f"{tuple(program.shape)}"
            )
        if self.alone is None:
            return (
                f"expected a row for each example, got {count} rows for this batch but another "
                "shape for a batch of one example; write squeeze(-1) in place of squeeze()"
            )
        if self.crosses_rows():
            return (
                "expected the output of an example to depend on that example only, got another "
                "output in a batch than alone; it is computed across the rows of a batch"
            )
        if not close(program[self.rows], self.alone, self.tolerance):
            return (
                "expected the module's output for the same examples, got other values; an "
                "operation confuses rows of requests with rows of examples, or has another meaning "
                "in TorchScript"
            )
        return None

    def crosses_rows(self) -> bool:
        """True if the module's output for an example depends on the other rows of a batch."""
        return self.alone is None or not close(self.together, self.alone, self.tolerance)


def tolerance_of(dense: Tensor) -> float:
    """Relative tolerance for a batch with these dense inputs. Sums of large numbers that cancel
    lose digits."""
    largest = float(dense.abs().max()) if dense.numel() else 0.0
    return TOLERANCE * min(max(largest / LARGEST_NORMAL, 1.0), 100.0)


def close(got: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> bool:
    """True if tensors are equal except for rounding. NaN equals NaN, infinity equals infinity."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return False
    if not expected.is_floating_point():
        return torch.equal(got, expected)
    finite = expected[expected.isfinite()].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    atol = tolerance * max(largest, SMALLEST)
    return torch.allclose(got, expected, rtol=tolerance, atol=atol, equal_nan=True)


def concatenate_outputs(outputs: Sequence[Tensor], counts: Sequence[int]) -> Tensor | None:
    """Concatenate the outputs of parts of a batch. None if an output does not have a row for each
    of its part's examples. ``counts``: examples of each part."""
    for output, count in zip(outputs, counts, strict=True):
        if not isinstance(output, Tensor) or output.ndim < 1 or len(output) != count:
            return None
    return torch.cat(list(outputs))
