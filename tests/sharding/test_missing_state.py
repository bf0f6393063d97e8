"""Optimizer state that a checkpoint lacks, or that belongs to another optimizer, is refused or
kept."""

import pytest
import torch
from torch.distributed.checkpoint.state_dict_saver import save as save_dcp

from embershard.errors import DataError
from embershard.sharding import (
    RowWiseAdagrad,
    block_files,
    data_parallel,
    load_state,
    save_state,
    state_tensors,
    table_wise,
)
from tests.cases import cases
from tests.sharding.cases import collection_of, load_and_read, plan_of, save_and_read
from tests.sharding.reference import make_case
from tests.sharding.test_checkpoint import unsharded
from tests.sharding.test_state_refusals import KEEPS, trained


def refusal(model, folder, **kwargs):
    """Message of the error, and the messages with strict=False."""
    with pytest.raises(DataError) as raised:
        load_state(model, folder, **kwargs)
    return str(raised.value), load_state(model, folder, strict=False, **kwargs)


@cases(
    ("kind", "expected"),
    {
        "eager": (torch.optim.Adagrad, "Adagrad (step, sum)"),
        "lazy": (torch.optim.Adam, "Adam (exp_avg, exp_avg_sq, step)"),
    },
)
@pytest.mark.parametrize("saved_by", [None, torch.optim.SGD])
def test_state_that_is_not_saved_is_refused_or_kept(tmp_path, kind, expected, saved_by):
    model, optimizer = trained(torch.optim.SGD, lr=1.0)
    save_state(model, tmp_path / "state", optimizer=optimizer if saved_by else None)
    other = torch.nn.Linear(2, 1)
    optimizer = kind(other.parameters())
    received = "the state of SGD (none)" if saved_by else "none"
    problems = [
        f"optimizer state of {name!r}: expected the state of {expected}, got {received}"
        for name in ("bias", "weight")
    ]
    assert refusal(other, tmp_path / "state", optimizer=optimizer) == (
        f"{tmp_path / 'state'}: {problems[1]}{KEEPS}",
        [f"{problem}; the current state is kept" for problem in problems],
    )
    assert torch.equal(other.weight, model.weight)
    assert not any(state["step"] for state in optimizer.state.values())


def test_optimizers_without_state_need_none(tmp_path):
    model, _ = trained(torch.optim.SGD)
    save_state(model, tmp_path / "state")
    assert (
        load_state(model, tmp_path / "state", optimizer=torch.optim.SGD(model.parameters())) == []
    )


def test_frozen_parameters_need_no_state(tmp_path):
    model = torch.nn.Linear(2, 1).requires_grad_(False)
    save_state(model, tmp_path / "state")
    assert (
        load_state(model, tmp_path / "state", optimizer=torch.optim.Adam(model.parameters())) == []
    )


def test_an_optimizer_saved_before_its_first_step_begins_anew(tmp_path):
    model = torch.nn.Linear(2, 1)
    save_state(model, tmp_path / "state", optimizer=torch.optim.Adam(model.parameters()))
    other, adam = trained(torch.optim.Adam)
    assert adam.state
    assert load_state(other, tmp_path / "state", optimizer=adam) == []
    assert not adam.state


def test_state_of_another_class_is_kept_on_demand(tmp_path):
    model, adam = trained(torch.optim.Adam)
    save_state(model, tmp_path / "state", optimizer=adam)
    model, adagrad = trained(torch.optim.Adagrad)
    sums = [state["sum"].clone() for state in adagrad.state.values()]
    messages = load_state(model, tmp_path / "state", optimizer=adagrad, strict=False)
    assert messages[1] == (
        "optimizer state of 'weight': expected the state of Adagrad (step, sum), got the state of "
        "Adam (exp_avg, exp_avg_sq, step); the current state is kept"
    )
    assert all(map(torch.equal, sums, (state["sum"] for state in adagrad.state.values())))


@pytest.mark.parametrize("has_stepped", [False, True])
def test_a_sum_of_another_shape_without_a_class_is_refused(tmp_path, has_stepped):
    """The saved state belongs to another optimizer that has state of the same name."""
    table = torch.nn.Embedding(3, 2)
    optimizer = RowWiseAdagrad(table.parameters())
    if has_stepped:
        table(torch.tensor([1])).sum().backward()
        optimizer.step()
    key = "optimizer.state.weight.sum"
    tensors = state_tensors(table) | {key: torch.ones(3, 2)}
    block_files.write_tensors(tensors, tmp_path / "state")
    message, _ = refusal(table, tmp_path / "state", optimizer=optimizer)
    assert message == (
        f"{tmp_path / 'state'}: optimizer state of 'weight': sum of RowWiseAdagrad: expected shape "
        f"(3, 1), got (3, 2){KEEPS}"
    )


@cases(
    ("saved", "loaded", "expected", "received"),
    {
        "none": ("sgd", "rowwise_adagrad", "momentum1 of each row", "none"),
        "values": (
            "adagrad",
            "rowwise_adagrad",
            "momentum1 of each row",
            "momentum1 of each value",
        ),
        "rows": ("rowwise_adagrad", "adagrad", "momentum1 of each value", "momentum1 of each row"),
        "unused": ("rowwise_adagrad", "sgd", "none", "momentum1 of each row"),
    },
)
def test_state_of_another_kernel_is_refused_or_kept(tmp_path, saved, loaded, expected, received):
    model, other = (
        unsharded(make_case(1, sizes=[1], steps=0, optimizer=name)) for name in (saved, loaded)
    )
    save_state(model, tmp_path / "state")
    with torch.no_grad():
        for tensor in other["sparse"].optimizer_state().values():
            tensor.fill_(3.0)
    message, reported = refusal(other, tmp_path / "state")
    problems = [
        f"optimizer state of table {name!r}: expected {expected}, got {received}"
        for name in ("items", "users", "words")
    ]
    assert message == f"{tmp_path / 'state'}: {problems[1]}{KEEPS}"
    assert reported == [f"{problem}; the current state is kept" for problem in problems]
    assert all(tensor.eq(3).all() for tensor in other["sparse"].optimizer_state().values())
    users, other_users = (
        collection["sparse"].embedding_bags["users"].weight for collection in (model, other)
    )
    assert torch.equal(users, other_users)


def test_state_of_another_kernel_is_refused_by_name(tmp_path):
    model, other = (
        unsharded(make_case(1, sizes=[1], steps=0, optimizer=name))
        for name in ("rowwise_adagrad", "ema_rowwise_adagrad")
    )
    save_state(model, tmp_path / "state")
    message, _ = refusal(other, tmp_path / "state")
    assert message == (
        f"{tmp_path / 'state'}: optimizer state of table 'users': expected the state of "
        f"ema_rowwise_adagrad, got the state of rowwise_adagrad{KEEPS}"
    )
    tensors = state_tensors(model)
    unnamed = {key: tensor for key, tensor in tensors.items() if "__class." not in key}
    assert len(unnamed) == len(tensors) - 3
    block_files.write_tensors(unnamed, tmp_path / "unnamed")
    key = "optimizer.state.sparse.embedding_bags.users.weight.users.steps"
    assert f"{key}: not saved; the current value is kept" in load_state(other, tmp_path / "unnamed")


def test_a_second_moment_that_is_not_used_is_refused(tmp_path):
    case = make_case(1, sizes=[1], steps=0, optimizer="adagrad")
    model, other = unsharded(case), unsharded(case)
    for states in model["sparse"]._tables.states:
        states["momentum2"] = torch.ones_like(states["momentum1"])
    save_state(model, tmp_path / "state")
    message, _ = refusal(other, tmp_path / "state")
    assert message.endswith(
        "expected momentum1 of each value, got momentum1 of each value, momentum2 of each value"
        + KEEPS
    )


def test_state_of_optimizer_and_kernel_do_not_replace_each_other(tmp_path):
    case = make_case(1, sizes=[1], steps=0, optimizer="adagrad")
    plain, fused = torch.nn.ModuleDict({"sparse": collection_of(case)}), unsharded(case)
    optimizer = torch.optim.Adagrad(plain.parameters())
    save_state(plain, tmp_path / "plain", optimizer=optimizer)
    save_state(fused, tmp_path / "fused")
    message, _ = refusal(fused, tmp_path / "plain")
    assert message.endswith(
        "table 'users': expected momentum1 of each value, got step, sum of the caller's "
        f"optimizer{KEEPS}"
    )
    message, _ = refusal(plain, tmp_path / "fused", optimizer=optimizer)
    assert message.endswith(
        "expected the state of Adagrad (step, sum), got the state of a fused table (momentum1)"
        + KEEPS
    )


@pytest.mark.filterwarnings("ignore:torch.distributed is:UserWarning")
@cases(
    ("wrap", "others"),
    {
        "prefix": (
            lambda state: {"model": state},
            {"epoch": 3, "optim": {"weight": torch.ones(2)}},
        ),
        "none": (lambda state: state, {"epoch": 3, "step": torch.ones(())}),
        "optimizer": (lambda state: {"model": state}, {"optimizer": {}, "epoch": 3, "dense": {}}),
    },
)
def test_entries_beside_the_model_are_refused_or_ignored(tmp_path, wrap, others):
    model, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    saved = wrap(model.state_dict()) | others
    save_dcp(saved, checkpoint_id=tmp_path / "state", no_dist=True)
    message, ignored = refusal(other, tmp_path / "state")
    names = ", ".join(repr(name) for name, entry in sorted(others.items()) if entry != {})
    assert message.startswith(
        f"{tmp_path / 'state'}: expected the 2 weights of Linear, got unknown '"
    )
    assert message.endswith(
        "; only entries of the model and 'optimizer' can be read: strict=False ignores the others, "
        + names
    )
    assert ignored == [f"not read, since neither of the model nor of 'optimizer': {names}"]
    assert torch.equal(other.weight, model.weight)


@pytest.mark.filterwarnings("ignore:torch.distributed is:UserWarning")
@pytest.mark.parametrize("prefix", ["", "model."])
def test_weights_of_another_model_are_refused_without_strict(tmp_path, prefix):
    state = {f"{prefix}{name}": torch.ones(1, 2) for name in ("weight", "bias.deep", "scale")}
    save_dcp(state, checkpoint_id=tmp_path / "state", no_dist=True)
    with pytest.raises(DataError, match="the 2 weights of Linear, got no 'bias'"):
        load_state(torch.nn.Linear(2, 1), tmp_path / "state", strict=False)


def test_missing_state_is_one_message_on_every_rank(workers, tmp_path):
    case = make_case(2, sizes=[3, 4], steps=1, optimizer="sgd")
    plan = plan_of(case, table_wise(rank=1), users=data_parallel())
    workers.run(2, save_and_read, case, plan, tmp_path / "state")
    case.optimizer = "adagrad"
    first, second = workers.run(2, load_and_read, case, plan, tmp_path / "state")
    assert first == second
    assert first == (
        f"rank 1: {tmp_path / 'state'}: optimizer state of table 'items': expected momentum1 of "
        f"each value, got none{KEEPS}"
    )
