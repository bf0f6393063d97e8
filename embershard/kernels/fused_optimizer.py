"""How tables that are trained in their backward pass are updated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType

from embershard.errors import InputError

__all__ = ["FUSED_OPTIMIZERS", "FusedOptimizer"]

# Our name -> FBGEMM's. These are the ones it has for both CPU and CUDA.
FUSED_OPTIMIZERS = MappingProxyType(
    {
        "rowwise_adagrad": "EXACT_ROWWISE_ADAGRAD",
        "adagrad": "EXACT_ADAGRAD",
        "sgd": "EXACT_SGD",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedOptimizer:
    """How rows are updated in backward. Checked when built.

    With g the summed gradient of a row over the batch:

    * ``sgd``: ``row -= learning_rate * g``
    * ``rowwise_adagrad``: one number of state a row, starting at 0:
      ``state += mean(g * g); row -= learning_rate * g / (sqrt(state) + eps)``
    * ``adagrad``: the same with one number of state a value: ``state += g * g``

    Raises:
        InputError: an optimizer not in FUSED_OPTIMIZERS, or a setting that is not a positive
            finite number.
    """

    name: str = "rowwise_adagrad"
    """One of FUSED_OPTIMIZERS."""

    learning_rate: float = 0.01
    """Step size."""

    eps: float = 1e-8
    """Keeps the first step of a row finite. Not used by ``sgd``."""

    def __post_init__(self) -> None:
        if self.name not in FUSED_OPTIMIZERS:
            known = ", ".join(FUSED_OPTIMIZERS)
            raise InputError(f"optimizer: expected one of {known}; got {self.name!r}")
        _check_positive("learning_rate", self.learning_rate)
        _check_positive("eps", self.eps)


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{name}: expected a positive finite number, got {value}")
