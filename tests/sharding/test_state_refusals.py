"""State that does not fit its model, optimizer or folder is refused."""

import errno
import re
from contextlib import nullcontext

import pytest
import torch

from embershard.errors import DataError, InputError
from embershard.optim import KeyedOptimizerWrapper, WarmupOptimizer
from embershard.sharding import (
    AsyncStateWriter,
    RowWiseAdagrad,
    block_files,
    column_wise,
    data_parallel,
    folder_claim,
    load_state,
    row_wise,
    save_state,
    state_tensors,
)
from embershard.sharding.folder_claim import LOCK, claimed_folder
from embershard.training import last_checkpoints
from tests.cases import cases
from tests.sharding.cases import plan_of, sharded
from tests.sharding.reference import make_case

KEEPS = "; strict=False keeps the current state"


def trained(kind, **settings):
    model = torch.nn.Linear(2, 1)
    optimizer = kind(model.parameters(), **settings)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return model, optimizer


@cases(
    ("kind", "settings", "expected"),
    {
        "lazy": (torch.optim.Adam, {}, "Adam (exp_avg, exp_avg_sq, step)"),
        "eager": (torch.optim.RMSprop, {"momentum": 0.5}, "RMSprop (momentum_buffer, "),
        "stateless": (torch.optim.SGD, {}, "SGD (none)"),
        "momentum": (torch.optim.SGD, {"momentum": 0.5}, "SGD (momentum_buffer)"),
    },
)
@pytest.mark.parametrize("has_stepped", [False, True])
def test_state_of_another_optimizer_is_refused(tmp_path, kind, settings, expected, has_stepped):
    model, optimizer = trained(torch.optim.Adagrad)
    folder = tmp_path / "state"
    save_state(model, folder, optimizer=optimizer)
    model, optimizer = trained(kind, **settings)
    if not has_stepped:
        optimizer = kind(model.parameters(), **settings)
    with pytest.raises(DataError) as raised:
        load_state(model, folder, optimizer=optimizer)
    message = f"{folder}: optimizer state of 'weight': expected the state of {expected}"
    assert str(raised.value).startswith(message)
    assert str(raised.value).endswith(f"), got the state of Adagrad (step, sum){KEEPS}")


class OwnAdam(torch.optim.Adam):
    """An optimizer outside torch, whose state is unknown before its first step."""


@cases(
    ("make", "expected"),
    {
        "lbfgs": (torch.optim.LBFGS, "LBFGS (none)"),
        "sparse-adam": (torch.optim.SparseAdam, "SparseAdam (none)"),
        "same-names": (torch.optim.RAdam, "RAdam (exp_avg, exp_avg_sq, step)"),
        "own": (OwnAdam, "OwnAdam"),
        "wrapped": (
            lambda params: WarmupOptimizer(
                KeyedOptimizerWrapper(
                    {str(at): parameter for at, parameter in enumerate(params)}, torch.optim.RAdam
                ),
                [],
            ),
            "RAdam (exp_avg, exp_avg_sq, step)",
        ),
    },
)
def test_state_of_adam_is_refused_by_every_other_class(tmp_path, make, expected):
    model, optimizer = trained(torch.optim.Adam)
    save_state(model, tmp_path / "state", optimizer=optimizer)
    with pytest.raises(DataError) as raised:
        load_state(model, tmp_path / "state", optimizer=make(model.parameters()))
    assert str(raised.value) == (
        f"{tmp_path / 'state'}: optimizer state of 'weight': expected the state of {expected}, got "
        f"the state of Adam (exp_avg, exp_avg_sq, step){KEEPS}"
    )


def save_without_class(model, optimizer, folder):
    """Saves state without the names of optimizer classes, as TorchRec does."""
    tensors = state_tensors(model, optimizer=optimizer)
    unnamed = {key: tensor for key, tensor in tensors.items() if "__class." not in key}
    assert len(unnamed) == len(tensors) - len(list(model.parameters()))
    block_files.write_tensors(unnamed, folder)


def test_state_whose_class_is_not_saved_is_told_by_its_names(tmp_path):
    model, optimizer = trained(torch.optim.Adam)
    save_without_class(model, optimizer, tmp_path / "state")
    assert load_state(model, tmp_path / "state", optimizer=OwnAdam(model.parameters())) == []
    with pytest.raises(
        DataError, match=r"of LBFGS \(none\), got the state of another optimizer \(exp_avg, "
    ):
        load_state(model, tmp_path / "state", optimizer=torch.optim.LBFGS(model.parameters()))


@cases(
    ("kind", "names"),
    {
        "adagrad": (torch.optim.Adagrad, "step, sum"),
        "adam": (torch.optim.Adam, "exp_avg, exp_avg_sq, step"),
    },
)
def test_row_wise_adagrad_takes_its_own_names_only(tmp_path, kind, names):
    table = torch.nn.Embedding(3, 2)
    table(torch.tensor([1])).sum().backward()
    optimizer, row_wise = kind(table.parameters()), RowWiseAdagrad(table.parameters())
    for saved, folder in ((optimizer, "other"), (row_wise, "row_wise")):
        saved.step()
        save_without_class(table, saved, tmp_path / folder)
    read = RowWiseAdagrad(table.parameters())
    with pytest.raises(DataError) as raised:
        load_state(table, tmp_path / "other", optimizer=read)
    assert str(raised.value) == (
        f"{tmp_path / 'other'}: optimizer state of 'weight': expected the state of RowWiseAdagrad "
        f"(sum), got the state of another optimizer ({names}){KEEPS}"
    )
    assert load_state(table, tmp_path / "row_wise", optimizer=read) == []
    assert read.state[table.weight]["sum"].tolist() == [[0.0], [1.0], [0.0]]


def test_state_of_adam_loads_into_one_that_has_not_stepped(tmp_path):
    model, adam = trained(torch.optim.Adam)
    save_state(model, tmp_path / "state", optimizer=adam)
    optimizer = torch.optim.Adam(model.parameters())
    assert load_state(model, tmp_path / "state", optimizer=optimizer) == []
    for parameter in model.parameters():
        for name, value in adam.state[parameter].items():
            assert torch.equal(optimizer.state[parameter][name], value)


def test_an_optimizer_of_another_model_is_refused(tmp_path):
    model, optimizer = trained(torch.optim.Adagrad)
    other = torch.nn.Linear(2, 1)
    message = "optimizer: expected parameters of the model, got 2 others"
    with pytest.raises(InputError) as raised:
        save_state(other, tmp_path / "state", optimizer=optimizer)
    assert str(raised.value) == message
    save_state(model, tmp_path / "state", optimizer=optimizer)
    with pytest.raises(DataError) as raised:
        load_state(other, tmp_path / "state", optimizer=optimizer)
    assert str(raised.value) == f"{tmp_path / 'state'}: {message}"


def test_tensors_on_meta_are_neither_saved_nor_loaded(tmp_path):
    message = (
        "weight: expected a tensor on cpu, got one on meta; build the model on device cpu, or "
        "shard it first"
    )
    on_meta = torch.nn.Linear(2, 1, device="meta")
    with pytest.raises(InputError) as raised:
        save_state(on_meta, tmp_path / "state")
    assert str(raised.value) == message
    save_state(torch.nn.Linear(2, 1), tmp_path / "state")
    with pytest.raises(DataError) as raised:
        load_state(on_meta, tmp_path / "state")
    assert str(raised.value) == f"{tmp_path / 'state'}: {message}"


def test_state_that_is_no_tensor_is_refused(tmp_path):
    table = torch.nn.Embedding(4, 2, sparse=True)
    optimizer = torch.optim.SparseAdam(table.parameters())
    table(torch.tensor([1])).sum().backward()
    optimizer.step()
    with pytest.raises(InputError) as raised:
        save_state(table, tmp_path / "state", optimizer=optimizer)
    message = "optimizer state of 'weight': 'step' of SparseAdam: expected a tensor, got int"
    assert str(raised.value) == message
    assert not (tmp_path / "state").exists()


def test_a_folder_takes_one_state_and_the_error_names_one_below(tmp_path):
    model, folder = torch.nn.Linear(2, 1), tmp_path / "7" / "state"
    save_state(model, folder)
    with pytest.raises(InputError, match=f"^{folder}: expected a new folder, got one of save_stat"):
        save_state(model, folder)
    with pytest.raises(DataError) as raised:
        load_state(model, tmp_path)
    assert (
        str(raised.value) == f"{tmp_path}: expected a folder of save_state, found one in {folder}"
    )


def test_a_folder_takes_one_save_at_a_time(tmp_path, monkeypatch):
    folder, (first, second) = tmp_path / "state", (torch.nn.Linear(2, 1), torch.nn.Linear(2, 1))
    messages, save = [], block_files.state_dict_saver.save

    def save_beside(*args, **named):
        monkeypatch.setattr(block_files.state_dict_saver, "save", save)
        with pytest.raises(InputError) as raised:
            save_state(second, folder)
        messages.append(str(raised.value))
        return save(*args, **named)

    monkeypatch.setattr(block_files.state_dict_saver, "save", save_beside)
    save_state(first, folder)
    assert messages == [f"{folder}: expected a new folder, got one that another save writes to"]
    assert sorted(path.name for path in folder.iterdir()) == [".metadata", "__0_0.distcp"]
    load_state(second, folder)
    assert torch.equal(second.weight, first.weight)


def test_a_save_that_failed_leaves_its_folder_to_another(tmp_path, monkeypatch):
    model, folder, save = (
        torch.nn.Linear(2, 1),
        tmp_path / "state",
        block_files.state_dict_saver.save,
    )

    def fail(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(block_files.state_dict_saver, "save", fail)
    with pytest.raises(KeyboardInterrupt):
        save_state(model, folder)
    monkeypatch.setattr(block_files.state_dict_saver, "save", save)
    save_state(model, folder)


def test_a_finished_unwritable_folder_is_one_of_save_state(tmp_path):
    model = torch.nn.Linear(2, 1)
    save_state(model, tmp_path / "state")
    (tmp_path / "state" / LOCK).mkdir()  # The lock file cannot be opened, as in a read-only folder.
    with pytest.raises(InputError, match="expected a new folder, got one of save_state"):
        save_state(model, tmp_path / "state")


def test_an_interrupted_write_of_a_state_is_an_interrupt(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(block_files.CheckedWriter, "write_data", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_state(torch.nn.Linear(2, 1), tmp_path / "state")


@cases(
    ("failure", "message"),
    {
        "bug": ("a bug", "a bug"),
        "of-torch": (
            "[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0",
            "a file was not written completely: the disk may be full, or a size limit reached",
        ),
    },
)
def test_a_write_that_fails_without_an_os_error_names_the_folder(
    tmp_path, monkeypatch, failure, message
):
    def fail(*_):
        raise RuntimeError(failure)

    monkeypatch.setattr(block_files.CheckedWriter, "write_data", fail)
    with pytest.raises(OSError) as raised:
        save_state(torch.nn.Linear(2, 1), tmp_path / "state")
    assert str(raised.value) == f"{tmp_path / 'state'}: {message}"


def test_a_lock_file_deleted_by_its_writer_claims_nothing(tmp_path, monkeypatch):
    def lock_late(opened):
        (tmp_path / LOCK).unlink()
        return True

    monkeypatch.setattr(folder_claim, "lock", lock_late)
    message = "expected a new folder, got one that another save writes to"
    with pytest.raises(InputError, match=message), claimed_folder(tmp_path):
        pass


@cases(("number", "is_written"), {"nfs": (errno.ENOLCK, True), "other": (errno.EINTR, False)})
def test_only_file_systems_without_locks_leave_folders_unlocked(
    tmp_path, monkeypatch, number, is_written
):
    def refuse(*_):
        raise OSError(number, "no locks")

    monkeypatch.setattr(folder_claim.fcntl, "flock", refuse)
    expected = nullcontext() if is_written else pytest.raises(OSError, match="no locks")
    with expected, claimed_folder(tmp_path):
        assert (tmp_path / LOCK).exists()


def save_plain(env, folder):
    try:
        save_state(torch.nn.Linear(2, 1), folder, group=env.process_group)
    except InputError as error:
        return str(error)
    return None


def test_a_save_into_a_folder_in_use_is_one_message_on_all(workers, tmp_path):
    message = f"rank 0: {tmp_path}: expected a new folder, got one that another save writes to"
    with claimed_folder(tmp_path):
        assert workers.run(2, save_plain, tmp_path) == [message, message]
    assert workers.run(2, save_plain, tmp_path) == [None, None]


class Task(torch.nn.Module):
    def __init__(self, parallel):
        super().__init__()
        self.parallel = parallel


def save_and_load_around(env, case, plan, folder):
    parallel, messages = sharded(env, case, plan), []
    for model in (Task(parallel), parallel.module):
        for act in (save_state, load_state):
            with pytest.raises(InputError) as raised:
                act(model, folder)
            messages.append(str(raised.value))
    return messages


def test_sharded_tables_are_saved_by_what_shards_them(workers, tmp_path):
    case = make_case(2, sizes=[3, 4], steps=0, optimizer="sgd")
    plan = plan_of(case, row_wise())
    for messages in workers.run(2, save_and_load_around, case, plan, tmp_path / "state"):
        for message, kind in zip(messages, ["Task"] * 2 + ["ModuleDict"] * 2, strict=True):
            assert f"expected the DistributedModelParallel itself, got {kind}," in message


def close_after_a_failed_write(env, folder):
    model, writer = torch.nn.Linear(2, 1), AsyncStateWriter(env.checkpoint_group)
    for _ in range(2):
        writer.start(state_tensors(model, group=env.process_group), folder, lambda: None)
    with pytest.raises(InputError) as raised:
        writer.close()
    return str(raised.value)


def test_a_failed_write_is_an_error_of_close_at_the_latest(workers, tmp_path):
    message = f"rank 0: {tmp_path}/state: expected a new folder, got one of save_state"
    assert workers.run(2, close_after_a_failed_write, tmp_path / "state") == [message, message]


def restore_where_rank_1_cannot_read(env, folder):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    save_state(model, folder / "last" / "5" / "state", optimizer=optimizer, group=env.process_group)
    last = last_checkpoints.LastCheckpoints(folder, 2, model, optimizer, env)

    def refuse(path):
        raise DataError("no metadata here")

    with pytest.MonkeyPatch.context() as patch:
        if env.rank == 1:
            patch.setattr(last_checkpoints, "read_saved", refuse)
        with pytest.raises(DataError) as raised:
            last.restore(folder / "last" / "5")
    last.close()
    return str(raised.value)


def test_a_rank_that_cannot_read_metadata_is_one_message_on_all(workers, tmp_path):
    message = "rank 1: no metadata here"
    assert workers.run(2, restore_where_rank_1_cannot_read, tmp_path) == [message, message]


def save_by_adafactor(env, case, plan, folder):
    parallel = sharded(env, case, plan, count_accesses=True)
    optimizer = torch.optim.Adafactor(parallel.parameters())
    for parameter in parallel.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    try:
        save_state(parallel, folder, optimizer=optimizer)
    except InputError as error:
        return str(error)
    return None


def test_state_of_rows_of_a_shard_is_refused(workers, tmp_path):
    case = make_case(2, sizes=[3, 4], steps=0, optimizer="rowwise_adagrad")
    # Only rank 0 has bad state. Rank 1 must still take part in the sum of replicas' counts.
    plan = plan_of(case, column_wise([0, 0], compute_kernel="dense"), items=data_parallel())
    first, second = workers.run(2, save_by_adafactor, case, plan, tmp_path / "state")
    assert first == second
    assert re.search(
        r"^ranks? .*: optimizer state of 'sparse\.\S+\.weight': 'row_var' of Adafactor: expected a "
        r"number, or one for each value of the shard \(\d+, \d+\), got shape \(\d+, 1\)$",
        first,
    ), first


def save_with_own_optimizer(env, folder):
    model = torch.nn.Linear(2, 1)
    trained_by = model if env.rank == 0 else torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adagrad(trained_by.parameters())
    try:
        save_state(model, folder, optimizer=optimizer, group=env.process_group)
    except InputError as error:
        return str(error)
    return None


def test_a_state_that_one_rank_cannot_save_is_refused_on_all(workers, tmp_path):
    message = "rank 1: optimizer: expected parameters of the model, got 2 others"
    assert workers.run(2, save_with_own_optimizer, tmp_path / "state") == [message, message]
    assert not (tmp_path / "state").exists()
