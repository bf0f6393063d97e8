"""Access counts of one process, also of hashed ids, and their use by an export."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from embershard.data import to_rows
from embershard.errors import ExportError
from embershard.export import export_checkpoint
from embershard.package import Hash, Package, Schema
from embershard.sharding.held_tables import read_access_counts
from embershard.training import TrainingStopped, train
from tests.cases import refused
from tests.training.runs import config, dataset


def hashed(names):
    """The data set with hashed ids for the inputs ``names``. All other tables get a last row for
    unknown ids."""
    data = dataset()
    sparse = [
        replace(field, ids=Hash(20) if field.name in names else replace(field.ids, unknown="oov"))
        for field in data.schema.sparse
    ]
    schema = Schema(dense=data.schema.dense, sparse=sparse)
    splits = {
        name: replace(getattr(data, name), schema=schema) for name in ("train", "valid", "test")
    }
    return replace(data, schema=schema, **splits)


def counts_of(result):
    counts = read_access_counts(result.checkpoint / "state")
    return {name.rpartition(".")[2]: count for name, count in counts.items()}


def run_of(folder, **training):
    """A run of two epochs of 25 steps, evaluated only at the end."""
    return config(folder, count_accesses=True, evaluate_every_steps=100, **training)


def test_one_process_counts_each_lookup_of_training_once(tmp_path):
    data = hashed({"user", "history"})
    counts = counts_of(train(run_of(tmp_path), data))
    (batch,) = to_rows(data.train).batches(batch_size=len(data.train))
    for name, rows in (("user", 20), ("history", 20), ("item", 41)):
        expected = 2 * np.bincount(batch.sparse[name].values().numpy(), minlength=rows)
        np.testing.assert_array_equal(counts[name].numpy(), expected)


def test_a_resumed_run_goes_on_counting(tmp_path):
    data, steps = hashed({"user"}), []
    run = run_of(tmp_path / "stopped")
    with pytest.raises(TrainingStopped):
        train(run, data, progress=steps.append, stop=lambda: len(steps) == 30)
    resumed = counts_of(train(run, data))
    whole = counts_of(train(run_of(tmp_path / "whole"), data))
    assert resumed.keys() == whole.keys() == {"user", "history", "item"}
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


def test_an_export_by_counts_leaves_tables_of_hashed_ids_whole(tmp_path):
    result = train(run_of(tmp_path / "run"), hashed({"user"}))
    counts, pruned = counts_of(result), {}
    least = int(counts["item"][:-1].median())
    out = tmp_path / "ranker" / "1"
    export_checkpoint(result.checkpoint, out, min_accesses=least, pruned=pruned.update)
    rows = {table.name: table.rows for table in Package.open(out).manifest.tables}
    assert {name.rpartition(".")[2] for name in pruned} == {"history", "item"}
    assert rows["user"] == 20
    assert rows["item"] == int((counts["item"][:-1] >= least).sum()) + 1 < 41


def test_an_export_by_counts_of_hashed_ids_alone_is_refused(tmp_path):
    result = train(run_of(tmp_path / "run"), hashed({"user", "history", "item"}))
    with refused(ExportError, "not hashed"):
        export_checkpoint(result.checkpoint, tmp_path / "ranker/1", min_accesses=2)
