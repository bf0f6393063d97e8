"""Shards of the dense kernel, which the caller's optimizer trains, are saved and loaded."""

import pytest
import torch

from embershard.errors import InputError
from embershard.sharding import (
    EmbeddingBagCollectionSharder,
    column_wise,
    load_state,
    row_wise,
)
from tests.sharding.cases import collection_of, load_and_read, plan_of, save_and_read
from tests.sharding.reference import make_case


def merge_shards(case, results):
    """Weights and Adagrad's sums of each table, merged from the shards of all ranks."""
    result = {}
    for name, rows, dim, *_ in case.tables:
        for key in ("weight", "weight sum"):
            result[name, key] = torch.full((rows, dim), torch.nan)
    for shards, state in results:
        for shard, *_ in shards:
            for key in ("weight", "weight sum"):
                into = result[shard.table, key][slice(*shard.rows), slice(*shard.columns)]
                into.copy_(state[f"sparse.embedding_bags.{shard.table}.{key}"])
    return result


def test_weights_and_state_load_under_another_cut_and_unsharded(workers, tmp_path):
    case = make_case(4, sizes=[3, 2, 4, 1], steps=3)
    saved_plan = plan_of(case, row_wise(compute_kernel="dense"), 4)
    loaded_plan = plan_of(case, column_wise(compute_kernel="dense"))
    saved = merge_shards(case, workers.run(4, save_and_read, case, saved_plan, tmp_path / "state"))
    loaded = workers.run(2, load_and_read, case, loaded_plan, tmp_path / "state")
    assert [messages for _, messages, _ in loaded] == [[], []]
    read = merge_shards(case, [(shards, state) for shards, _, state in loaded])
    model = torch.nn.ModuleDict({"sparse": collection_of(case)})
    optimizer = torch.optim.Adagrad(model.parameters())
    assert load_state(model, tmp_path / "state", optimizer=optimizer) == []
    for name, *_ in case.tables:
        weight = model["sparse"].embedding_bags[name].weight
        assert optimizer.state[weight]["step"] == 3
        for key, tensor in (("weight", weight), ("weight sum", optimizer.state[weight]["sum"])):
            assert not saved[name, key].isnan().any()
            assert torch.equal(read[name, key], saved[name, key])
            assert torch.equal(tensor, saved[name, key])


def test_half_precision_is_refused_with_the_dense_kernel():
    case = make_case(1, sizes=[1], steps=1)
    module = collection_of(case)
    module.embedding_bags["users"].weight.data = module.embedding_bags["users"].weight.half()
    plan = plan_of(case, row_wise(compute_kernel="dense"), 1)
    with pytest.raises(InputError) as raised:
        EmbeddingBagCollectionSharder().optimizers(module, plan, where="here", device="cpu")
    assert str(raised.value) == (
        "here: table 'users': data_type: expected FP32 with row_wise and the dense kernel, got FP16"
    )
