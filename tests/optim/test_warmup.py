"""Learning rates by hand, stage after stage, and a schedule that is resumed."""

import math

import pytest
import torch

from embershard.errors import InputError
from embershard.optim import (
    CombinedOptimizer,
    KeyedOptimizerWrapper,
    WarmupOptimizer,
    WarmupPolicy,
    WarmupStage,
)
from tests.cases import cases, refused


def sgd():
    params = {"w": torch.nn.Parameter(torch.zeros(1))}
    return KeyedOptimizerWrapper(params, lambda parameters: torch.optim.SGD(parameters, lr=9.0))


def rates(optimizer, steps):
    """Learning rates before each step."""
    results = []
    for _ in range(steps):
        results.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
    return results


def test_making_state_uses_no_step_of_the_schedule():
    def warm():
        stage = WarmupStage(WarmupPolicy.LINEAR, max_iters=4, value=0.2)
        return WarmupOptimizer(sgd(), [stage], lr=1.0)

    alone, combined = warm(), CombinedOptimizer([("a", warm()), ("b", warm())])
    for optimizer in (alone, combined):
        optimizer.init_state()
        assert rates(optimizer, 3) == pytest.approx([0.2, 0.4, 0.6])
    assert [optimizer.progress[1].tolist() for _, optimizer in combined.optimizers] == [[3, 0]] * 2


@cases(
    ("stage", "expected"),
    {
        "linear": (
            WarmupStage(WarmupPolicy.LINEAR, max_iters=4, value=0.2),
            [0.2, 0.4, 0.6, 0.8, 1.0, 1.0],
        ),
        "constant": (
            WarmupStage(WarmupPolicy.CONSTANT, max_iters=2, value=0.5),
            [0.5, 0.5, 0.5, 1.0],
        ),
        "poly": (
            WarmupStage(WarmupPolicy.POLY, max_iters=3, value=2.0, decay_iters=2),
            [1.0, 0.25, 0.0, 0.0, 1.0],
        ),
        "step": (
            WarmupStage(WarmupPolicy.STEP, max_iters=4, value=0.5, decay_iters=2),
            [1.0, 1.0, 0.5, 0.5, 0.25, 1.0],
        ),
        "inv_sqrt": (
            WarmupStage(WarmupPolicy.INVSQRT, max_iters=3, lr_scale=2.0),
            [2.0, 2.0, 2 / math.sqrt(2), 2 / math.sqrt(3), 1.0],
        ),
        "none": (WarmupStage(WarmupPolicy.NONE, max_iters=1), [1.0, 1.0]),
    },
)
def test_a_stage_gives_its_factors_and_then_the_rate(stage, expected):
    optimizer = WarmupOptimizer(sgd(), [stage], lr=0.5)
    assert rates(optimizer, len(expected)) == pytest.approx([0.5 * factor for factor in expected])


def test_a_resumed_schedule_goes_on_where_it_was_saved():
    stages = [WarmupStage(max_iters=3, value=0.1), WarmupStage(WarmupPolicy.STEP, 9, 0.5)]
    whole = rates(WarmupOptimizer(sgd(), stages), 8)
    first, second = (CombinedOptimizer([("d", WarmupOptimizer(sgd(), stages))]) for _ in range(2))
    rates(first, 5)
    assert first.state_dict()["state"]["d.__warmup"]["warmup"].tolist() == [5, 1]
    second.load_state_dict(first.state_dict())
    assert rates(second, 3) == whole[5:]


def test_a_schedule_of_a_schedule_may_have_a_name_of_its_own():
    outer = WarmupOptimizer(WarmupOptimizer(sgd(), []), [], param_name="__outer")
    assert {"__warmup", "__outer"} <= outer.state_dict()["state"].keys()


def schedule(*stages):
    return WarmupOptimizer(sgd(), stages)


@cases(
    ("call", "parts"),
    {
        "schedules side by side": (
            lambda: CombinedOptimizer(
                [schedule(), WarmupOptimizer(CombinedOptimizer([("d", sgd())]), [])]
            ),
            ["'__warmup' 2 times"],
        ),
        "a schedule of a schedule": (
            lambda: WarmupOptimizer(schedule(), []), ["param_name", "got '__warmup"]
        ),
        "stages that do not follow": (
            lambda: schedule(WarmupStage(max_iters=3), WarmupStage(max_iters=3)),
            ["stages.1.max_iters", "got 3"],
        ),
        "a state without progress": (
            lambda: schedule().load_state_dict({"state": {}}), ["['__warmup'], got []"]
        ),
    },
)  # fmt: skip
def test_schedules_that_cannot_be_kept_are_refused(call, parts):
    with refused(InputError, *parts):
        call()
