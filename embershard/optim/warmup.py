"""``WarmupOptimizer``: a learning rate in stages."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, unique
from typing import Any, final

import torch
from torch import Tensor

from embershard.errors import InputError
from embershard.optim.keyed import KeyedOptimizer, OptimizerWrapper


@unique
class WarmupPolicy(Enum):
    """How the factor of the learning rate runs; ``step`` counts from 0, from the first stage on.

    | policy | factor |
    |---|---|
    | none | 1 |
    | linear | from ``value`` to 1: ``value + (1 - value) * step / max_iters`` |
    | constant | ``value`` |
    | poly | ``(1 - step / decay_iters) ** value``, at least 0 |
    | step | ``value ** (step // decay_iters)`` |
    | inv_sqrt | ``1 / sqrt(step)``, 1 at step 0 |
    """

    NONE = "none"
    LINEAR = "linear"
    CONSTANT = "constant"
    POLY = "poly"
    STEP = "step"
    INVSQRT = "inv_sqrt"


@dataclass(frozen=True, slots=True)
class WarmupStage:
    """A part of the schedule."""

    policy: WarmupPolicy = WarmupPolicy.LINEAR
    """How the factor runs."""

    max_iters: int = 1
    """Step at which the stage ends, counted from the first stage on."""

    value: float = 1.0
    """See ``WarmupPolicy``."""

    lr_scale: float = 1.0
    """Multiplies the factor."""

    decay_iters: int = -1
    """Of poly and step. Below 1: ``max_iters`` of poly, 1 of step."""

    def factor(self, step: int) -> float:
        """That multiplies the learning rate in a step of this stage."""
        return self.lr_scale * self._of_policy(step)

    def _of_policy(self, step: int) -> float:
        decay_iters = self.decay_iters
        match self.policy:
            case WarmupPolicy.LINEAR:
                return self.value + (1.0 - self.value) * step / self.max_iters
            case WarmupPolicy.CONSTANT:
                return self.value
            case WarmupPolicy.POLY:
                over = decay_iters if decay_iters > 0 else self.max_iters
                return math.pow(max(1.0 - step / over, 0.0), self.value)
            case WarmupPolicy.STEP:
                return math.pow(self.value, step // max(decay_iters, 1))
            case WarmupPolicy.INVSQRT:
                return 1.0 / math.sqrt(max(step, 1))
            case WarmupPolicy.NONE:
                return 1.0


@final
class WarmupOptimizer(OptimizerWrapper):
    """Sets the learning rate of all groups before each step. After the last stage it is ``lr``.

    Its step count is part of the state dict: ``{param_name: {"warmup": int64 (2,)}}``, the steps
    done and the stage.

    Args:
        optimizer: whose groups to set; fused tables' too.
        stages: in the order of their ``max_iters``.
        lr: learning rate where the factor is 1.
        lr_param: key of the learning rate in a group.
        param_name: key in the state dict.

    Raises:
        InputError: a stage that does not end after the one before it, or a ``param_name`` that the
            optimizer has.
    """

    def __init__(
        self,
        optimizer: KeyedOptimizer,
        stages: Sequence[WarmupStage],
        lr: float = 0.1,
        lr_param: str = "lr",
        param_name: str = "__warmup",
    ) -> None:
        super().__init__(optimizer)
        if param_name in optimizer.params:
            raise InputError(
                f"warm-up: param_name: expected one of no parameter, got {param_name!r}"
            )
        end = 0
        for place, stage in enumerate(stages):
            if stage.max_iters <= end:
                raise InputError(
                    f"warm-up: stages.{place}.max_iters: expected over {end}, got {stage.max_iters}"
                )
            end = stage.max_iters
        self._stages = [*stages, WarmupStage(policy=WarmupPolicy.NONE)]
        self._lr, self._lr_param, self._param_name = lr, lr_param, param_name
        self._progress: Tensor = torch.zeros(2, dtype=torch.int64)
        self._set_learning_rate()

    @property
    def params(self) -> Mapping[str, Tensor]:  # type: ignore[override]
        """Of the optimizer, and the progress."""
        return {**super().params, self._param_name: self._progress}

    @property
    def state(self) -> Any:  # type: ignore[override]
        """Of the optimizer, and the progress: a new dict of the values in use."""
        return {**super().state, self._progress: {"warmup": self._progress}}

    def _named_state(self) -> dict[str, Any]:
        return {**super()._named_state(), self._param_name: {"warmup": self._progress}}

    @property
    def progress(self) -> tuple[str, Tensor]:
        """Key in the state dict, and the steps done and the stage: int64 ``(2,)``, in use."""
        return self._param_name, self._progress

    def step(self, closure: Any = None) -> Any:
        """That of the optimizer; then set the learning rate of the next step."""
        result = self._optimizer.step(closure)
        done, stage = self._progress.tolist()
        done += 1
        # As in TorchRec a stage holds at its last step, which is `max_iters`, too.
        if stage + 1 < len(self._stages) and done > self._stages[stage].max_iters:
            stage += 1
        self._progress.copy_(torch.tensor([done, stage]))
        self._set_learning_rate()
        return result

    def post_load_state_dict(self) -> None:
        """Of the optimizer; then set the learning rate."""
        super().post_load_state_dict()
        self._set_learning_rate()

    def _set_learning_rate(self) -> None:
        done, stage = self._progress.tolist()
        for group in self.param_groups:
            group[self._lr_param] = self._lr * self._stages[stage].factor(done)
