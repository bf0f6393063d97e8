"""Optimizer state by name, combined optimizers, and what is refused before anything changes."""

import pytest
import torch
from torch.testing import assert_close

from embershard.errors import InputError
from embershard.optim import (
    CombinedOptimizer,
    FusedKeyedOptimizer,
    GradientClipping,
    GradientClippingOptimizer,
    KeyedOptimizer,
    KeyedOptimizerWrapper,
    OptimizerWrapper,
    WarmupOptimizer,
    WarmupStage,
)
from tests.cases import cases, refused


def parameter(*values):
    return torch.nn.Parameter(torch.tensor(values))


def adam(**params):
    return KeyedOptimizerWrapper(params, lambda parameters: torch.optim.Adam(parameters, lr=0.1))


def combined_of_two():
    return CombinedOptimizer([("a", adam(w=parameter(1.0))), ("b", adam(w=parameter(2.0)))])


def step(optimizer, gradient=1.0):
    for parameter in optimizer.params.values():
        parameter.grad = torch.full_like(parameter, gradient)
    optimizer.step()


def test_the_state_dict_is_by_name_and_holds_tensors_in_use():
    optimizer = adam(a=parameter(1.0, 2.0), b=parameter(3.0))
    step(optimizer)
    state = optimizer.state_dict()
    assert state.keys() == {"state"}
    assert state["state"].keys() == {"a", "b"}
    state["state"]["a"]["exp_avg"].fill_(7.0)
    assert optimizer.state[optimizer.params["a"]]["exp_avg"].tolist() == [7.0, 7.0]


def test_a_loaded_optimizer_steps_as_the_saved_one():
    first, second = (adam(a=parameter(1.0, 2.0), b=parameter(3.0)) for _ in range(2))
    step(first)
    second.init_state()
    assert second.params["a"].tolist() == [1.0, 2.0]
    for name, weight in second.params.items():
        weight.data.copy_(first.params[name])
    second.load_state_dict(first.state_dict())
    step(first, 0.5)
    step(second, 0.5)
    for name in ("a", "b"):
        assert torch.equal(first.params[name], second.params[name])


def test_a_combined_optimizer_prefixes_names_and_loads_by_part():
    pair = [
        CombinedOptimizer([("dense", adam(w=parameter(1.0))), adam(w=parameter(2.0))])
        for _ in range(2)
    ]
    step(pair[0])
    pair[1].init_state()
    pair[1].load_state_dict(pair[0].state_dict())
    assert pair[1].params.keys() == {"dense.w", "w"}
    assert_close(pair[1].state_dict(), pair[0].state_dict())
    assert pair[0].params["dense.w"].item() == pytest.approx(0.9)
    pair[0].zero_grad()
    assert all(parameter.grad is None for parameter in pair[0].params.values())


def test_a_combined_optimizer_saves_param_groups_with_prefixes():
    first, second = (combined_of_two() for _ in range(2))
    for optimizer in (first, second):
        OptimizerWrapper(optimizer).init_state()
        optimizer.save_param_groups(True)
    first.param_groups[1]["lr"] = 0.25
    second.load_state_dict(first.state_dict())
    assert [group["lr"] for group in second.param_groups] == [0.1, 0.25]
    groups = second.state_dict()["param_groups"]
    assert [group["params"] for group in groups] == [["a.w"], ["b.w"]]


@cases(
    "build",
    {
        "wrapper": lambda inner: inner,
        "passes-on": OptimizerWrapper,
        "warm-up": lambda inner: WarmupOptimizer(
            OptimizerWrapper(inner), [WarmupStage(max_iters=4)]
        ),
        "clipping": lambda inner: GradientClippingOptimizer(
            OptimizerWrapper(inner), GradientClipping.VALUE, 1.0
        ),
        "combined": lambda inner: CombinedOptimizer([("a", inner)]),
        "fused": lambda inner: FusedKeyedOptimizer({}, {}, [], lambda: None),
    },
)
def test_hooks_run_once_around_a_step_and_a_state_dict(build):
    optimizer, calls = build(adam(w=parameter(1.0))), []
    OptimizerWrapper(adam(w=parameter(1.0)))  # torch wraps a class's step when one is built.
    optimizer.register_step_pre_hook(lambda inner, *_: calls.append(("before step", inner)))
    optimizer.register_step_post_hook(lambda inner, *_: calls.append(("step", inner)))
    optimizer.register_state_dict_pre_hook(lambda inner: calls.append(("before state", inner)))
    optimizer.register_state_dict_post_hook(lambda inner, state: {**state, "more": 1})
    optimizer.register_load_state_dict_pre_hook(
        lambda inner, state: calls.append(("before load", state["more"]))
    )
    optimizer.register_load_state_dict_post_hook(lambda inner: calls.append(("load", inner)))
    step(optimizer)
    state = optimizer.state_dict()
    assert state["more"] == 1
    optimizer.load_state_dict(state)
    assert calls == [
        ("before step", optimizer),
        ("step", optimizer),
        ("before state", optimizer),
        ("before load", 1),
        ("load", optimizer),
    ]


def test_a_load_hook_replaces_the_state_also_if_it_is_a_number():
    weight = parameter(1.0)
    optimizer = KeyedOptimizer({"w": weight}, {weight: {"count": 3}}, [{"params": [weight]}])
    optimizer.register_load_state_dict_pre_hook(lambda inner, state: state["inner"])
    optimizer.load_state_dict({"inner": {"state": {"w": {"count": 5}}}})
    assert optimizer.state[weight] == {"count": 5}


def test_sparse_names_of_a_combined_optimizer_have_prefixes():
    built = {}

    class Recording(KeyedOptimizerWrapper):
        def init_state(self, names=()):
            built[id(self)] = list(names)

    def recording():
        params = {"w": parameter(1.0), "v": parameter(2.0)}
        return Recording(params, lambda parameters: torch.optim.SGD(parameters, lr=0.1))

    first, second = recording(), recording()
    CombinedOptimizer([("a", first), ("b", second)]).init_state(["a.w", "b.v"])
    assert built == {id(first): ["w"], id(second): ["v"]}


def test_the_state_of_many_parameters_is_checked_in_linear_time():
    calls = []

    class Counted(dict):
        def values(self):
            calls.append(1)
            return super().values()

    params = Counted({str(at): parameter(1.0) for at in range(5)})
    KeyedOptimizer(params, {weight: {} for weight in dict.values(params)}, [])
    assert len(calls) == 1


def test_a_fused_optimizer_passes_learning_rates_on():
    weight, rates = parameter(1.0), []
    groups = [{"params": [weight], "lr": 0.5}]
    state = {weight: {"sum": torch.zeros(1)}}
    optimizer = FusedKeyedOptimizer(
        {"w": weight}, state, groups, lambda: rates.append(groups[0]["lr"])
    )
    optimizer.load_state_dict({"state": {"w": {"sum": torch.ones(1)}}})
    groups[0]["lr"] = 0.25
    optimizer.zero_grad()
    assert rates == [0.5, 0.25]
    assert state[weight]["sum"].item() == 1.0


def test_an_optimizer_is_shown_by_its_class_and_parameters():
    text = repr(adam(b=parameter(1.0), a=parameter(2.0)))
    assert text == "KeyedOptimizerWrapper(['a', 'b'])"


SHARED = parameter(1.0)


@cases(
    ("call", "parts"),
    {
        "state-of-another": (
            lambda: KeyedOptimizer({"w": SHARED}, {parameter(2.0): {}}, []),
            ["optimizer state", "got 1 "],
        ),
        "further-parameters": (
            lambda: adam(w=SHARED).add_param_group({"params": [parameter(2.0)]}),
            ["add_param_group"],
        ),
        "closure": (
            lambda: CombinedOptimizer([("a", adam(w=SHARED))]).step(lambda: 0.0),
            ["step", "closure"],
        ),
        "one-parameter-twice": (
            lambda: CombinedOptimizer([("a", adam(w=SHARED)), ("b", adam(w=SHARED))]),
            ["'a.w'", "'b.w'"],
        ),
        "one-name-twice": (
            lambda: CombinedOptimizer([adam(w=SHARED), adam(w=parameter(2.0))]),
            ["'w' 2 times"],
        ),
    },
)
def test_calls_that_a_keyed_optimizer_cannot_serve_are_refused(call, parts):
    with refused(InputError, *parts):
        call()


def test_a_scheduler_sets_the_rate_of_all_parts():
    combined = combined_of_two()
    scheduler = torch.optim.lr_scheduler.LambdaLR(combined, lambda step: 1 / (1 + step))
    step(combined)
    scheduler.step()
    assert [group["lr"] for group in combined.param_groups] == pytest.approx([0.05, 0.05])


@cases(
    ("change", "parts"),
    {
        "parameter": (lambda s: s["state"].pop("a.w"), ["['a.w', 'b.w']"]),
        "key": (lambda s: s["state"]["b.w"].pop("step"), ["'b.w': expected"]),
        "shape": (
            lambda s: s["state"]["b.w"].update(exp_avg=torch.zeros(3)),
            ["'b.w': exp_avg", "(1,), got (3,)"],
        ),
    },
)
def test_a_state_that_does_not_fit_changes_nothing(change, parts):
    combined, optimizer = (combined_of_two() for _ in range(2))
    step(combined)
    before = combined.state_dict()["state"]["a.w"]["exp_avg"].clone()
    step(optimizer, 5.0)
    state = optimizer.state_dict()
    change(state)
    with refused(InputError, *parts):
        OptimizerWrapper(combined).load_state_dict(state)
    assert torch.equal(combined.state_dict()["state"]["a.w"]["exp_avg"], before)
