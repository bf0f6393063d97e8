"""State dicts of sharded models, as torch.distributed.checkpoint reads and writes them."""

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed._shard.sharded_tensor import ShardedTensor

from embershard.optim import CombinedOptimizer, KeyedOptimizerWrapper
from embershard.sharding import (
    column_wise,
    data_parallel,
    grid_shard,
    load_state,
    row_wise,
    save_state,
    table_wise,
)
from tests.sharding.cases import dense_optimizer, features_of, local_state, plan_of, sharded
from tests.sharding.reference import loss_of, make_case
from tests.sharding.test_checkpoint import merge_shards

KEYS = [f"sparse.embedding_bags.{name}.weight" for name in ("items", "users", "words")]
"""TorchRec's keys for a collection at ``sparse``."""
pytestmark = pytest.mark.filterwarnings("ignore:Please use DTensor")


def trained(env, case, plan):
    parallel = sharded(env, case, plan)
    optimizer = dense_optimizer(parallel)
    for step, ranks in enumerate(case.batches):
        output = parallel.module["sparse"](features_of(case, ranks[env.rank])).values()
        loss_of(output, step).backward()
        if optimizer:
            optimizer.step()
            optimizer.zero_grad()
    return parallel


def emptied(env, case, plan):
    parallel = sharded(env, case, plan)
    for local in parallel.module["sparse"].local_shards():
        for tensor in (local.weight, *local.state.values()):
            tensor.fill_(torch.nan)
    for parameter in parallel.parameters():
        parameter.data.fill_(torch.nan)
    return parallel


def state_of(parallel, optimizer=None):
    """State of model and optimizer, in the form that users of TorchRec save."""
    optimizer = optimizer or parallel.fused_optimizer
    return {**parallel.state_dict(), "optimizer": optimizer.state_dict()}


def load_dcp(env, state, folder):
    planner = dcp.DefaultLoadPlanner(flatten_sharded_tensors=False)
    dcp.load(state, checkpoint_id=folder, planner=planner, process_group=env.process_group)


def copies(parallel):
    """Copies of this rank's shards and replicas."""
    shards = [
        (shard, weight.clone(), None if state is None else state.clone())
        for shard, weight, state in local_state(parallel.module["sparse"])
    ]
    return shards, {
        name: named_parameter.detach().clone()
        for name, named_parameter in parallel.named_parameters()
    }


def check_same(shards, expected):
    assert len(shards) == len(expected)
    for (shard, *values), (expected_shard, *expected_values) in zip(shards, expected, strict=True):
        assert shard == expected_shard
        torch.testing.assert_close(values, expected_values, rtol=0, atol=0)


def described(env, case, plan):
    """The model's state dict with offsets, sizes and rank of each shard, the names of optimizer
    state, and copies of this rank's shards."""
    parallel = trained(env, case, plan)
    results = {}
    for key, value in parallel.state_dict().items():
        if not isinstance(value, ShardedTensor):
            results[key] = tuple(value.shape)
            continue
        pieces = [
            (tuple(piece.shard_offsets), tuple(piece.shard_sizes), piece.placement.rank())
            for piece in value.metadata().shards_metadata
        ]
        own = {
            tuple(local_shard.metadata.shard_offsets): local_shard.tensor
            for local_shard in value.local_shards()
        }
        results[key] = tuple(value.metadata().size), pieces, own
    state = parallel.fused_optimizer.state_dict()["state"]
    return results, {name: sorted(states) for name, states in state.items()}, copies(parallel)[0]


def test_tables_are_sharded_tensors_under_torchrecs_keys(workers):
    case = make_case(2, sizes=[3, 4], steps=2, optimizer="rowwise_adagrad")
    plan = plan_of(case, row_wise(), items=column_wise(), words=table_wise(rank=0))
    for result, state, shards in workers.run(2, described, case, plan):
        assert sorted(result) == KEYS
        pieces = {key: (size, parts) for key, (size, parts, _) in result.items()}
        assert pieces == {
            KEYS[0]: ((7, 16), [((0, 0), (7, 8), 0), ((0, 8), (7, 8), 1)]),
            KEYS[1]: ((50, 8), [((0, 0), (25, 8), 0), ((25, 0), (25, 8), 1)]),
            KEYS[2]: ((23, 8), [((0, 0), (23, 8), 0)]),
        }
        # The names are complete even on a rank without a shard.
        assert state == {key: [f"{key.split('.')[2]}.momentum1"] for key in KEYS}
        assert sum(len(own) for *_, own in result.values()) == len(shards)
        for shard, weight, _ in shards:
            key = f"sparse.embedding_bags.{shard.table}.weight"
            own = result[key][2][shard.rows[0], shard.columns[0]]
            assert torch.equal(own, weight)


def test_a_replicated_table_is_a_plain_tensor(workers):
    case = make_case(2, sizes=[3, 4], steps=1, optimizer="adagrad")
    plan = plan_of(case, row_wise(), words=data_parallel())
    for result, _, _ in workers.run(2, described, case, plan):
        assert sorted(result) == KEYS
        assert result[KEYS[2]] == (23, 8)


def test_shards_of_the_dense_kernel_are_one_sharded_tensor(workers):
    case = make_case(2, sizes=[3, 4], steps=1, optimizer="adagrad")
    columns = column_wise(ranks=[1, 1], compute_kernel="dense")
    plan = plan_of(case, row_wise(compute_kernel="dense"), items=columns)
    first, second = workers.run(2, described, case, plan)
    assert sorted(first[0]) == sorted(second[0]) == KEYS
    assert list(first[0][KEYS[0]][2]) == []
    assert list(second[0][KEYS[0]][2]) == [(0, 0), (0, 8)]


def save_with_dcp(env, case, plan, folder):
    parallel = trained(env, case, plan)
    dcp.save(state_of(parallel), checkpoint_id=folder, process_group=env.process_group)
    return copies(parallel)


def load_with_dcp(env, case, plan, folder):
    """Loads in place. ``load_state_dict`` of the same tensors must change nothing afterwards."""
    parallel = emptied(env, case, plan)
    state = state_of(parallel)
    load_dcp(env, state, folder)
    parallel.fused_optimizer.load_state_dict(state.pop("optimizer"))
    parallel.load_state_dict(state)
    return copies(parallel)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "rowwise_adagrad"])
def test_dcp_loads_under_another_plan_and_world_size(workers, tmp_path, optimizer):
    case = make_case(4, sizes=[3, 2, 4, 1], steps=2, optimizer=optimizer)
    rows = plan_of(case, row_wise(), 4, items=table_wise(rank=3), words=table_wise(rank=0))
    saved = workers.run(4, save_with_dcp, case, rows, tmp_path / "state")
    other_plan = plan_of(case, table_wise(rank=1), words=row_wise(), items=row_wise())
    loaded = workers.run(2, load_with_dcp, case, other_plan, tmp_path / "state")
    weights, state = merge_shards(case, [shards for shards, _ in saved])
    result, actual_state = merge_shards(case, [shards for shards, _ in loaded])
    torch.testing.assert_close(result, weights, rtol=0, atol=0)
    torch.testing.assert_close(actual_state, state, rtol=0, atol=0)
    assert set(actual_state) == ({(n, (0, d)) for n, _, d, *_ in case.tables} if state else set())


def test_dcp_loads_weights_cut_by_rows_columns_and_grids(workers, tmp_path):
    case = make_case(4, sizes=[3, 2, 4, 1], steps=1)
    grid = plan_of(case, grid_shard(host_indexes=[0, 1]), 4, 2, words=data_parallel())
    saved = workers.run(4, save_with_dcp, case, grid, tmp_path / "state")
    other_plan = plan_of(case, column_wise(), users=row_wise(), words=data_parallel())
    loaded = workers.run(2, load_with_dcp, case, other_plan, tmp_path / "state")
    for name in ("users", "items"):
        expected = merge_shards(case, [shards for shards, _ in saved])[0][name]
        assert torch.equal(merge_shards(case, [shards for shards, _ in loaded])[0][name], expected)
    for _, replicas in loaded:
        assert torch.equal(replicas[KEYS[2]], saved[0][1][KEYS[2]])


def dense_state_through_dcp(env, case, plan, folder):
    """State of the dense optimizer when it is saved, and after a new run loads it."""
    results = []
    for parallel in (trained(env, case, plan), emptied(env, case, plan)):
        parameters = dict(parallel.named_parameters())
        dense = KeyedOptimizerWrapper(parameters, lambda params: torch.optim.Adam(params, lr=0.1))
        dense.init_state()
        optimizer = CombinedOptimizer([dense, parallel.fused_optimizer])
        optimizer.save_param_groups(True)
        state = state_of(parallel, optimizer)
        if not results:
            dense.state[parameters[KEYS[2]]]["exp_avg"].fill_(3)
            dcp.save(state, checkpoint_id=folder, process_group=env.process_group)
        else:
            load_dcp(env, state, folder)
        results.append(dense.state_dict()["state"])
    return results


def test_dcp_loads_dense_state_on_ranks_without_shards(workers, tmp_path):
    case = make_case(2, sizes=[3, 4], steps=1, optimizer="rowwise_adagrad")
    plan = plan_of(case, table_wise(rank=0), items=table_wise(rank=1), words=data_parallel())
    for saved, loaded in workers.run(2, dense_state_through_dcp, case, plan, tmp_path / "state"):
        assert saved[KEYS[2]]["exp_avg"].unique().tolist() == [3]
        torch.testing.assert_close(loaded, saved, rtol=0, atol=0)


def save_asynchronously(env, case, plan, folder):
    """Values of the shards when ``async_save`` is called. The shards change before they are
    written."""
    parallel = trained(env, case, plan)
    before = copies(parallel)
    state = state_of(parallel)
    written = dcp.async_save(state, checkpoint_id=folder, process_group=env.checkpoint_group)
    for local in parallel.module["sparse"].local_shards():
        local.weight.fill_(torch.nan)
    written.result()
    return before


def test_async_save_holds_the_values_of_its_call(workers, tmp_path):
    case = make_case(2, sizes=[3, 4], steps=2, optimizer="rowwise_adagrad")
    plan = plan_of(case, row_wise(), items=column_wise(), words=table_wise(rank=0))
    saved = workers.run(2, save_asynchronously, case, plan, tmp_path / "state")
    loaded = workers.run(2, load_with_dcp, case, plan, tmp_path / "state")
    for (expected, _), (shards, _) in zip(saved, loaded, strict=True):
        check_same(shards, expected)


def save_with_save_state(env, case, plan, folder):
    parallel = trained(env, case, plan)
    save_state(parallel, folder)
    return copies(parallel)


def load_with_load_state(env, case, plan, folder):
    parallel = emptied(env, case, plan)
    assert load_state(parallel, folder) == []
    return copies(parallel)


@pytest.mark.parametrize(
    ("save", "load"),
    [(save_with_dcp, load_with_load_state), (save_with_save_state, load_with_dcp)],
    ids=["load_state", "save_state"],
)
def test_dcp_and_save_state_read_each_other(workers, tmp_path, save, load):
    case = make_case(2, sizes=[3, 4], steps=2, optimizer="rowwise_adagrad")
    plan = plan_of(case, row_wise(), items=column_wise(), words=table_wise(rank=0))
    saved = workers.run(2, save, case, plan, tmp_path / "state")
    loaded = workers.run(2, load, case, plan, tmp_path / "state")
    for (expected, _), (shards, _) in zip(saved, loaded, strict=True):
        check_same(shards, expected)


def load_whole_tensors(env, case, plan, weights):
    """Loads a state dict of the unsharded model. Returns this rank's shards, and the keys that an
    empty state dict lacks."""
    parallel = emptied(env, case, plan)
    keys = parallel.load_state_dict(weights)
    assert keys.missing_keys == keys.unexpected_keys == []
    missing = parallel.load_state_dict({}, strict=False).missing_keys
    return copies(parallel)[0], missing


@pytest.mark.parametrize("kernel", ["fused", "dense"])
def test_whole_tensors_load_into_shards(workers, kernel):
    case = make_case(2, sizes=[3, 4], steps=0)
    cut = {"compute_kernel": kernel}
    plan = plan_of(case, row_wise(**cut), items=column_wise(ranks=[1, 1], **cut))
    weights = {
        f"sparse.embedding_bags.{name}.weight": weight for name, weight in case.weights.items()
    }
    for shards, missing in workers.run(2, load_whole_tensors, case, plan, weights):
        assert sorted(missing) == KEYS
        for shard, weight, _ in shards:
            expected = case.weights[shard.table][slice(*shard.rows), slice(*shard.columns)]
            assert torch.equal(weight, expected)


def refusals(env, case, plan, other_plan):
    parallel, messages = sharded(env, case, plan), []
    for state in (
        sharded(env, case, other_plan).state_dict(),
        parallel.state_dict() | {KEYS[1]: torch.zeros(3, 8)},
        parallel.state_dict() | {KEYS[1]: 3},
    ):
        with pytest.raises(RuntimeError) as raised:
            parallel.load_state_dict(state)
        messages.append(str(raised.value).split("\n\t", 1)[1])
    return messages


def test_shards_of_another_plan_and_other_shapes_are_refused(workers):
    case = make_case(2, sizes=[3, 4], steps=0)
    plan, other_plan = plan_of(case, row_wise()), plan_of(case, row_wise(), users=column_wise())
    for moved, resized, number in workers.run(2, refusals, case, plan, other_plan):
        assert moved == (
            f"{KEYS[1]}: expected this rank's shards of the model's plan, got others; read a "
            "checkpoint of another plan with torch.distributed.checkpoint.load(state_dict)."
        )
        assert resized == f"{KEYS[1]}: expected shape (50, 8), got (3, 8)."
        assert number == f"{KEYS[1]}: expected a tensor, got int."


def names_in_a_wrapper(env, case, plan):
    parallel = sharded(env, case, plan)
    return list(nn.ModuleDict({"outer": parallel}).state_dict()), list(parallel.state_dict())


def test_names_leave_out_the_wrapper_itself(workers):
    case = make_case(1, sizes=[1], steps=0)
    ((outer, own),) = workers.run(1, names_in_a_wrapper, case, plan_of(case, row_wise(), 1))
    assert sorted(own) == KEYS
    assert sorted(outer) == [f"outer.{key}" for key in KEYS]
