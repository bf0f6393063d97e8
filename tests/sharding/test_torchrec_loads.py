"""TorchRec and embershard load each other's checkpoints. TorchRec runs in an environment of its own
(`make bench-peers`)."""

import json
import subprocess
from dataclasses import replace

import pytest
import torch

from benchmarks.checkout import PEER_PYTHON, ROOT
from embershard.sharding import (
    column_wise,
    construct_module_sharding_plan,
    row_wise,
    table_wise,
)
from tests.sharding.cases import collection_of, save_and_read
from tests.sharding.reference import make_case
from tests.sharding.test_state_dict import load_with_dcp, save_with_dcp

NAMES = {"users": "users", "items": "ads", "words": "words"}
"""TorchRec cannot name a table items: that is a method of its containers."""
CUTS = {"users": row_wise(), "ads": column_wise(), "words": table_wise(0)}
PLANS = {"users": "row_wise", "ads": "column_wise", "words": "table_wise"}


def save_with_save_state(env, case, plan, folder):
    return save_and_read(env, case, plan, folder)[0]


def save_with_torch(env, case, plan, folder):
    return save_with_dcp(env, case, plan, folder)[0]


@pytest.mark.needs_peers
@pytest.mark.parametrize("save", [save_with_save_state, save_with_torch])
def test_torchrec_and_ours_load_each_others_shards_and_state(workers, tmp_path, save):
    case = make_case(2, sizes=[3, 2], steps=3, optimizer="rowwise_adagrad")
    case = replace(
        case,
        tables=[(NAMES[name], *rest) for name, *rest in case.tables],
        weights={NAMES[name]: weight for name, weight in case.weights.items()},
    )
    plan = construct_module_sharding_plan(collection_of(case, "meta"), CUTS, world_size=2)
    saved = workers.run(2, save, case, plan, tmp_path / "state")
    tables = [
        {"name": name, "rows": rows, "dim": dim, "features": features, "plan": PLANS[name]}
        for name, rows, dim, features, _ in case.tables
    ]
    (tmp_path / "tables.json").write_text(json.dumps(tables))
    launch = "-W ignore -m torch.distributed.run --standalone --nproc-per-node 2 -m"
    arguments = [tmp_path / "tables.json", tmp_path / "state", tmp_path]
    process = subprocess.run(
        [PEER_PYTHON, *launch.split(), "tests.sharding.torchrec_loads", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    rows_of = {table["name"]: table["rows"] for table in tables}
    reloaded = workers.run(2, load_with_dcp, case, plan, tmp_path / "theirs")
    for rank, shards in enumerate(saved):
        for (_, *doubled), (_, *values) in zip(reloaded[rank][0], shards, strict=True):
            assert all(map(torch.equal, doubled, (2 * value for value in values)))
        loaded = {
            (key, offsets): values for key, offsets, values in torch.load(tmp_path / f"{rank}.pt")
        }
        for shard, weight, momentum in shards:
            key = f"sparse.embedding_bags.{shard.table}.weight"
            assert torch.equal(loaded.pop((key, (shard.rows[0], shard.columns[0]))), weight)
            # State has one number a row. Column ranges follow one another.
            place = shard.rows[0] + rows_of[shard.table] * (shard.columns[0] > 0)
            state = loaded.pop((f"optimizer.state.{key}.{shard.table}.momentum1", (place,)))
            assert torch.equal(state.flatten(), momentum)
        assert not loaded
