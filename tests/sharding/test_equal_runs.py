"""Runs with equal results: resumed, on other ranks, under other plans, in uneven parts."""

import warnings
from dataclasses import replace

import pytest
import torch
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load as load_dcp

from embershard.data import RowExamples
from embershard.data.synthetic import PlantedInput, SyntheticConfig, planted_click_log
from embershard.package import Identity, Schema
from embershard.sharding import save_state
from embershard.sharding.tables import ROWS_OF_BLOCK
from embershard.training import train
from embershard.training.last_checkpoints import RunState
from embershard.training.setup import set_up
from tests.cases import cases
from tests.sharding.training_cases import StoppedError
from tests.training.runs import config, dataset

MIXED = {"user": "column_wise", "history": "data_parallel", "item": "row_wise"}
ROW_WISE, TABLE_WISE = {"*": "row_wise"}, {"*": "table_wise"}


def configured(folder, tables, *, last_every_steps=0, **training):
    run = config(folder, **training)
    changed = {
        "model": {"embedding_dim": 8, "dense_layers": [8], "over_layers": [8, 1]},
        "checkpoint": {"folder": str(folder), "last_every_steps": last_every_steps},
        "sharding": {"tables": tables},
    }
    return type(run).model_validate(run.model_dump(mode="json", exclude_unset=True) | changed)


SPLITS = ("train", "valid", "test")


def with_unknown_ids(data):
    """The same examples, with a row for unknown ids in every table."""
    sparse = [
        replace(feature, ids=Identity(feature.ids.rows, "oov")) for feature in data.schema.sparse
    ]
    schema = Schema(dense=data.schema.dense, sparse=sparse)
    splits = {name: replace(getattr(data, name), schema=schema) for name in SPLITS}
    return replace(data, schema=schema, **splits)


def arrays(folder):
    """All tensors of a checkpoint's state, read by torch's own reader."""
    metadata = FileSystemReader(folder).read_metadata().state_dict_metadata
    results = {
        key: torch.empty(value.size, dtype=value.properties.dtype)
        for key, value in metadata.items()
        if hasattr(value, "size")
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Torch warns that there is no process group.
        load_dcp(results, checkpoint_id=folder, no_dist=True)
    return results


def assert_equal(actual, expected):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(actual[name], value), name


RESUMED = {
    "epochs": 8,
    "evaluate_every_steps": 5,
    "patience": 3,
    "warmup_steps": 20,
    "id_dropout": {"user": 0.5, "history": 0.2},
    "count_accesses": True,
    "dense_optimizer": "adam",
    "dense_learning_rate": 0.05,
    "table_learning_rate": 0.2,
}


def train_until(env, folder, stop_at=None, resume=False):
    """Result of a run. None: it was stopped after step ``stop_at``."""

    def stop(now):
        if now.step == stop_at:
            raise StoppedError

    run = configured(folder, MIXED, last_every_steps=5, **RESUMED)
    try:
        return train(run, with_unknown_ids(dataset()), env=env, progress=stop, resume=resume)
    except StoppedError:
        return None


def test_a_run_resumed_in_warm_up_or_patience_equals_a_whole_one(workers, tmp_path):
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    expected, _ = workers.run(2, train_until, whole)
    assert expected.stopped_early
    last = str(expected.steps)
    assert workers.run(2, train_until, resumed, 12) == [None, None]
    assert workers.run(2, train_until, resumed, expected.steps - 3, True) == [None, None]
    written = resumed / "last" / str(expected.steps - 5) / "training.json"
    state = RunState.model_validate_json(written.read_text())
    assert state.evaluations_without_improvement == 2
    for result in workers.run(2, train_until, resumed, None, True):
        assert (result.valid, result.test) == (expected.valid, expected.test)
        assert (result.steps, result.stopped_early) == (expected.steps, True)
    documents = [(run / "last" / last / "training.json").read_text() for run in (whole, resumed)]
    assert documents[0] == documents[1]
    actual = arrays(resumed / "last" / last / "state")
    assert_equal(actual, arrays(whole / "last" / last / "state"))
    for name in (
        "user.weight.user.momentum1",
        "item.weight.item.momentum1",
        "history.weight.exp_avg_sq",
    ):
        assert any(key.endswith(name) for key in actual), (name, actual.keys())


def initial_state(env, folder, tables):
    setup = set_up(configured(folder, tables, seed=3), large(), env)
    save_state(setup.build(), folder, group=env and env.process_group)


def large():
    """A data set whose table of users is initialized in several blocks of rows."""
    inputs = (
        PlantedInput(name="user", scope="request", ids=ROWS_OF_BLOCK + 5000),
        PlantedInput(name="history", scope="request", ids=30, max_length=4),
        PlantedInput(name="item", scope="example", ids=40),
    )
    return planted_click_log(SyntheticConfig(examples=200, inputs=inputs)).dataset


@cases(
    ("world_size", "tables"),
    {
        "1-table_wise": (1, TABLE_WISE),
        "2-table_wise": (2, TABLE_WISE),
        "2-row_wise": (2, ROW_WISE),
        "2-mixed": (2, MIXED),
        "2-other-mix": (2, {"user": "row_wise", "history": "column_wise", "*": "data_parallel"}),
    },
)
def test_initial_weights_do_not_depend_on_ranks_or_plan(workers, tmp_path, world_size, tables):
    initial_state(None, tmp_path / "alone", TABLE_WISE)
    workers.run(world_size, initial_state, tmp_path / "ranks", tables)
    expected, actual = (
        {key: array for key, array in arrays(tmp_path / name).items() if "optimizer." not in key}
        for name in ("alone", "ranks")
    )
    assert_equal(actual, expected)
    (user,) = (result for key, result in actual.items() if key.endswith("user.weight"))
    assert len(user.unique()) > 0.95 * user.numel()  # No block repeats another.


def batches_trained_on(env, folder):
    """Examples, ids and labels of this rank for each step."""
    steps, original = [], RowExamples.batches

    def recorded(split, **kwargs):
        if kwargs.get("shuffle_seed") is None:  # Evaluation does not shuffle.
            yield from original(split, **kwargs)
            return
        for batch in original(split, **kwargs):
            lists = batch.sparse["user"].to_dense(), batch.sparse["history"].to_dense()
            users, histories = ([ids.tolist() for ids in key_lists] for key_lists in lists)
            steps.append(
                list(
                    zip(batch.dense.tolist(), users, histories, batch.labels.tolist(), strict=True)
                )
            )
            yield batch

    run = configured(folder, ROW_WISE, batch_size=63, id_dropout={"user": 0.5, "history": 0.5})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RowExamples, "batches", recorded)
        train(run, with_unknown_ids(dataset(examples=500)), env=env)
    return steps


def test_shuffling_and_id_dropout_are_the_same_on_1_and_2_ranks(workers, tmp_path):
    expected = batches_trained_on(None, tmp_path / "alone")
    first, second = workers.run(2, batches_trained_on, tmp_path / "ranks")
    assert [a + b for a, b in zip(first, second, strict=True)] == expected
    assert [(len(a), len(b)) for a, b in zip(first, second, strict=True)][:2] == [(31, 32)] * 2
    # Dropped ids become row 60, that of unknown ids.
    assert {tuple(ids) for step in expected for _, ids, *_ in step} >= {(60,)}


def train_uneven(env, folder, tables):
    """Weights and losses of an epoch of batches of 41. The last batch has one example."""
    losses = []
    run = configured(
        folder,
        tables,
        epochs=1,
        batch_size=41,
        evaluate_every_steps=40,
        table_optimizer="sgd",
        table_learning_rate=0.1,
        dense_optimizer="sgd",
        dense_learning_rate=0.1,  # Replicated tables use this rate.
    )
    result = train(run, dataset(), env=env, progress=lambda now: losses.append(now.loss))
    return arrays(result.checkpoint / "state"), losses


@pytest.mark.parametrize("tables", [ROW_WISE, MIXED], ids=["row_wise", "mixed"])
def test_uneven_parts_train_like_one_global_batch(workers, tmp_path, tables):
    expected, losses = train_uneven(None, tmp_path / "alone", tables)
    assert len(losses) == 40
    for result, rank_losses in workers.run(2, train_uneven, tmp_path / "ranks", tables):
        torch.testing.assert_close(rank_losses, losses, rtol=1e-5, atol=0)
        assert result.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(result[name], value, rtol=1e-5, atol=1e-6)
