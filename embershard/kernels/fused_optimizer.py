"""How tables that are trained in their backward pass are updated, and what is remembered of
them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from embershard.errors import InputError

# Our name -> FBGEMM's.
FUSED_OPTIMIZERS = MappingProxyType(
    {
        "rowwise_adagrad": "EXACT_ROWWISE_ADAGRAD",
        "adagrad": "EXACT_ADAGRAD",
        "sgd": "EXACT_SGD",
        # The moving average is this library's: FBGEMM's also counts lookups of evaluation.
        "ema_rowwise_adagrad": "EXACT_ROWWISE_ADAGRAD",
        "adam": "ADAM",
        "partial_rowwise_adam": "PARTIAL_ROWWISE_ADAM",
        "lamb": "LAMB",
    }
)
MOMENTS = ("adam", "partial_rowwise_adam", "lamb")
"""Optimizers with two moments, whose kernels exist for CUDA only."""

STATES = ("momentum1", "momentum2")
"""Names of the tensors of ``FusedOptimizer.state_columns``, as TorchRec's."""

WEIGHT_DECAY_MODES = ("l2", "decouple")


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedOptimizer:
    """How rows are updated in backward. Checked when built.

    With g the summed gradient of a row over the batch:

    * ``sgd``: ``row -= learning_rate * g``
    * ``rowwise_adagrad``: one number of state a row, starting at 0:
      ``state += mean(g * g); row -= learning_rate * g / (sqrt(state) + eps)``
    * ``adagrad``: the same with one number of state a value: ``state += g * g``
    * ``ema_rowwise_adagrad``: ``rowwise_adagrad``, and every ``ema_interval`` lookups that train,
      before the lookup, in all rows: ``second_half += ema_coefficient * (first_half -
      second_half)``, where a row has two halves of columns
    * ``adam``, ``partial_rowwise_adam`` (one second moment a row), ``lamb``: on CUDA

    Raises:
        InputError: an optimizer not in FUSED_OPTIMIZERS, or a setting outside its range.
    """

    name: str = "rowwise_adagrad"
    """One of FUSED_OPTIMIZERS."""

    learning_rate: float = 0.01
    """Step size. 0: rows stay as they are."""

    eps: float = 1e-8
    """Keeps the first step of a row finite. Not used by ``sgd``."""

    max_gradient: float | None = None
    """The gradient of each value that a lookup returns is clipped to plus or minus this, before
    those of one row are summed. None: not clipped."""

    weight_decay: float = 0.0
    """On CUDA. 0: none. The update on CPU has none."""

    weight_decay_mode: str = "l2"
    """``l2``: added to the gradient. ``decouple``: rows shrink apart from it."""

    beta1: float = 0.9
    """Decay of the first moment."""

    beta2: float = 0.999
    """Decay of the second moment."""

    ema_interval: int = 10
    """Lookups that train between two moves of the second half."""

    ema_start: int = 0
    """No move before this many lookups."""

    ema_coefficient: float = 0.6
    """Part of the difference that is moved, over 0 to 1."""

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
        """Of each tensor of state: whether it has a number for each value, or one for each row."""
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
        """Whether half of each row is an average of the other."""
        return self.name == "ema_rowwise_adagrad"

    @property
    def counts_steps(self) -> bool:
        """Whether an update depends on how many there were."""
        return self.has_average or self.name in MOMENTS


def check_optimizer_on(optimizer: FusedOptimizer, device: str) -> None:
    """Refuse what the kernels of a device do not do.

    Args:
        optimizer: of a group of tables.
        device: ``cpu`` or ``cuda``.

    Raises:
        InputError: an optimizer or a setting without a CPU kernel.
    """
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
    """State of each table, apart from its moments: ``steps``, if the optimizer counts them."""
    return [{"steps": steps} if optimizer.counts_steps else {} for _ in range(tables)]


def count_lookup(steps: Tensor) -> int:
    """Count a lookup that trains in ``steps``, int64 ``(1,)``. Returns its number, from 1; 0:
    autograd is off."""
    if not torch.is_grad_enabled():
        return 0
    steps += 1
    return int(steps)


@torch.no_grad()
def move_averages(optimizer: FusedOptimizer, weights: Sequence[Tensor], step: int) -> None:
    """Before lookup number ``step``, from 1; 0: one that does not train: move each second half of
    ``weights`` towards the first, if due."""
    due = step and step >= optimizer.ema_start and step % optimizer.ema_interval == 0
    if not optimizer.has_average or not due:
        return
    for weight in weights:
        first, second = weight.chunk(2, dim=1)
        second.lerp_(first, optimizer.ema_coefficient)
