"""``WarmupOptimizer``: a learning rate schedule in stages."""

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
    """Factor of the learning rate. ``step`` counts from 0 at the start of the first stage.

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
    """One stage of the schedule. The learning rate's factor is ``lr_scale`` times that of
    ``policy``."""

    policy: WarmupPolicy = WarmupPolicy.LINEAR
    max_iters: int = 1
    """Step at which the stage ends, counted from the start of the first stage."""

    value: float = 1.0
    """``value`` in the formulas of ``WarmupPolicy``."""

    lr_scale: float = 1.0
    decay_iters: int = -1
    """``decay_iters`` of poly and step. Below 1: ``max_iters`` for poly, 1 for step."""

    def factor(self, step: int) -> float:
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

    The state dict has its progress: ``{param_name: {"warmup": int64 (2,)}}``, the number of steps
    done and the stage.

    Args:
        optimizer: optimizer whose groups are set, those of fused tables included.
        stages: stages in the order of their ``max_iters``.
        lr: learning rate for a factor of 1.
        lr_param: key of the learning rate in a group.
        param_name: key of the progress in the state dict.

    Raises:
        InputError: a stage that does not end after the one before it, or a ``param_name`` that is a
            parameter of the optimizer.
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
                f"warm-up: param_name: expected a name that no parameter has, got {param_name!r}"
            )
        end = 0
        for place, stage in enumerate(stages):
            if stage.max_iters <= end:
                raise InputError(
                    f"warm-up: stages.{place}.max_iters: expected more than {end}, the end of the "
                    f"stage before, got {stage.max_iters}"
                )
            end = stage.max_iters
        self._stages = [*stages, WarmupStage(policy=WarmupPolicy.NONE)]
        self._lr, self._lr_param, self._param_name = lr, lr_param, param_name
        self._progress: Tensor = torch.zeros(2, dtype=torch.int64)
        self._set_learning_rate()

    @property
    def params(self) -> Mapping[str, Tensor]:  # type: ignore[override]
        return {**super().params, self._param_name: self._progress}

    @property
    def state(self) -> Any:  # type: ignore[override]
        """State of the optimizer, and the progress: a new dict of the values in use."""
        return {**super().state, self._progress: {"warmup": self._progress}}

    def _named_state(self) -> dict[str, Any]:
        return {**super()._named_state(), self._param_name: {"warmup": self._progress}}

    @property
    def progress(self) -> tuple[str, Tensor]:
        """Key in the state dict, and the tensor in use: int64 ``(2,)``, steps done and stage."""
        return self._param_name, self._progress

    def step(self, closure: Any = None) -> Any:
        """Step the optimizer, then set the learning rate of the next step."""
        result = self._optimizer.step(closure)
        done, stage = self._progress.tolist()
        done += 1
        # Step `max_iters` still belongs to its stage, as in TorchRec.
        if stage + 1 < len(self._stages) and done > self._stages[stage].max_iters:
            stage += 1
        self._progress.copy_(torch.tensor([done, stage]))
        self._set_learning_rate()
        return result

    def post_load_state_dict(self) -> None:
        """Set the learning rate of the loaded step."""
        super().post_load_state_dict()
        self._set_learning_rate()

    def _set_learning_rate(self) -> None:
        done, stage = self._progress.tolist()
        for group in self.param_groups:
            group[self._lr_param] = self._lr * self._stages[stage].factor(done)
