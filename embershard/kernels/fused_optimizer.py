"""``FusedOptimizer``: how rows of fused tables are updated, and the state that this needs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from embershard.errors import InputError

# Our name -> FBGEMM's name.
FUSED_OPTIMIZERS = MappingProxyType(
    {
        "rowwise_adagrad": "EXACT_ROWWISE_ADAGRAD",
        "adagrad": "EXACT_ADAGRAD",
        "sgd": "EXACT_SGD",
        # Our moving average. FBGEMM's also counts lookups of evaluation.
        "ema_rowwise_adagrad": "EXACT_ROWWISE_ADAGRAD",
        "adam": "ADAM",
        "partial_rowwise_adam": "PARTIAL_ROWWISE_ADAM",
        "lamb": "LAMB",
    }
)
MOMENTS = ("adam", "partial_rowwise_adam", "lamb")
"""Optimizers with two moments. Their kernels exist for CUDA only."""

STATES = ("momentum1", "momentum2")
"""TorchRec's names of the state tensors, in the order of ``FusedOptimizer.state_columns``."""

WEIGHT_DECAY_MODES = ("l2", "decouple")


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedOptimizer:
    """Update rule of rows in backward.

    With g the gradient of a row, summed over the batch:

    * ``sgd``: ``row -= learning_rate * g``
    * ``rowwise_adagrad``: one state number a row, from 0:
      ``state += mean(g * g); row -= learning_rate * g / (sqrt(state) + eps)``
    * ``adagrad``: the same with one state number a value: ``state += g * g``
    * ``ema_rowwise_adagrad``: ``rowwise_adagrad``, and before every ``ema_interval``-th lookup that
      trains, in all rows: ``second_half += ema_coefficient * (first_half - second_half)``. The
      halves are those of a row's columns.
    * ``adam``, ``partial_rowwise_adam`` (one second moment a row), ``lamb``: on CUDA only

    Raises:
        InputError: an optimizer not in FUSED_OPTIMIZERS, or a setting outside its range.
    """

    name: str = "rowwise_adagrad"
    learning_rate: float = 0.01
    """Step size. 0: rows do not change."""

    eps: float = 1e-8
    """Keeps the first step of a row finite. Not used by ``sgd``."""

    max_gradient: float | None = None
    """Bound, plus or minus, of the gradient of each value that a lookup returns. Clipped before
    gradients of one row are summed. None: not clipped."""

    weight_decay: float = 0.0
    """Weight decay, on CUDA only. 0: none."""

    weight_decay_mode: str = "l2"
    """``l2``: added to the gradient. ``decouple``: rows shrink in addition to their step."""

    beta1: float = 0.9
    """Decay of the first moment."""

    beta2: float = 0.999
    """Decay of the second moment."""

    ema_interval: int = 10
    """Number of lookups that train from one move of the second half to the next."""

    ema_start: int = 0
    """Least number of lookups before the first move."""

    ema_coefficient: float = 0.6
    """Share of the difference that one move adds, above 0 and at most 1."""

    def __post_init__(self) -> None:
        if self.name not in FUSED_OPTIMIZERS:
            known = ", ".join(FUSED_OPTIMIZERS)
            raise InputError(f"optimizer: expected one of {known}; got {self.name!r}")
        if self.weight_decay_mode not in WEIGHT_DECAY_MODES:
            known = ", ".join(WEIGHT_DECAY_MODES)
            raise InputError(
                f"weight_decay_mode: expected one of {known}; got {self.weight_decay_mode!r}"
            )
        clip = 1.0 if self.max_gradient is None else self.max_gradient
        for name, value, fits, expected in (
            ("learning_rate", self.learning_rate, self.learning_rate >= 0, "at least 0"),
            ("eps", self.eps, self.eps > 0, "over 0"),
            ("max_gradient", clip, clip > 0, "over 0"),
            ("weight_decay", self.weight_decay, self.weight_decay >= 0, "at least 0"),
            ("beta1", self.beta1, 0 <= self.beta1 < 1, "at least 0 and under 1"),
            ("beta2", self.beta2, 0 <= self.beta2 < 1, "at least 0 and under 1"),
            ("ema_interval", self.ema_interval, self.ema_interval >= 1, "at least 1"),
            ("ema_start", self.ema_start, self.ema_start >= 0, "at least 0"),
            ("ema_coefficient", self.ema_coefficient, 0 < self.ema_coefficient <= 1, "over 0 to 1"),
        ):
            if not (math.isfinite(value) and fits):
                raise InputError(f"{name}: expected a finite number {expected}, got {value}")

    @property
    def state_columns(self) -> tuple[bool, ...]:
        """For each state tensor: True for a number per value, False for a number per row."""
        match self.name:
            case "sgd":
                return ()
            case "rowwise_adagrad" | "ema_rowwise_adagrad":
                return (False,)
            case "adagrad":
                return (True,)
            case "partial_rowwise_adam":
                return (True, False)
            case _:
                return (True, True)

    @property
    def has_average(self) -> bool:
        """True if half of each row is a moving average of the other."""
        return self.name == "ema_rowwise_adagrad"

    @property
    def counts_steps(self) -> bool:
        """True if an update depends on the number of updates before."""
        return self.has_average or self.name in MOMENTS


def check_optimizer_on(optimizer: FusedOptimizer, device: str) -> None:
    """Raise InputError for an optimizer or a setting that has no kernel on a device."""
    if device != "cpu":
        return
    if optimizer.name in MOMENTS:
        known = ", ".join(name for name in FUSED_OPTIMIZERS if name not in MOMENTS)
        raise InputError(f"optimizer: expected one of {known} on cpu; got {optimizer.name!r}")
    if optimizer.weight_decay:
        raise InputError(
            f"weight_decay: expected 0 on cpu, whose fused kernels have none, "
            f"got {optimizer.weight_decay}"
        )


def named_states(optimizer: FusedOptimizer, tables: int, steps: Tensor) -> list[dict[str, Tensor]]:
    """State dicts without moments: ``steps`` alone, if the optimizer counts them."""
    return [{"steps": steps} if optimizer.counts_steps else {} for _ in range(tables)]


def count_lookup(steps: Tensor) -> int:
    """Add 1 to ``steps``, int64 ``(1,)``, and return it. Does nothing and returns 0 if autograd is
    off."""
    if not torch.is_grad_enabled():
        return 0
    steps += 1
    return int(steps)


@torch.no_grad()
def move_averages(optimizer: FusedOptimizer, weights: Sequence[Tensor], step: int) -> None:
    """Move each second half of ``weights`` towards the first, if this is due before lookup
    ``step``, a result of ``count_lookup``."""
    due = step and step >= optimizer.ema_start and step % optimizer.ema_interval == 0
    if not optimizer.has_average or not due:
        return
    for weight in weights:
        first, second = weight.chunk(2, dim=1)
        second.lerp_(first, optimizer.ema_coefficient)
