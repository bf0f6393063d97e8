"""State that is saved under one plan loads under any other."""

import errno
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
import torch
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load as load_dcp

from embershard.modules import (
    EmbeddingBagConfig,
    FusedEmbeddingBagCollection,
)
from embershard.optim import (
    CombinedOptimizer,
    GradientClipping,
    GradientClippingOptimizer,
    KeyedOptimizerWrapper,
    WarmupOptimizer,
    WarmupPolicy,
    WarmupStage,
)
from embershard.package.rectangles import Shard
from embershard.sharding import (
    ParameterSharding,
    block_files,
    column_wise,
    data_parallel,
    grid_shard,
    load_state,
    row_wise,
    save_state,
    table_wise,
)
from tests.cases import cases
from tests.sharding.cases import load_and_read, plan_of, save_and_read
from tests.sharding.reference import make_case

TORCHREC = Path(__file__).parent / "torchrec_checkpoint"


def clipped_warm_up(model):
    """The optimizer of docs/sharding.md without its part for tables, and with clipping."""
    dense = KeyedOptimizerWrapper(dict(model.named_parameters()), torch.optim.Adam)
    stages = [WarmupStage(WarmupPolicy.LINEAR, max_iters=10, value=0.1)]
    warm_up = WarmupOptimizer(CombinedOptimizer([("dense", dense)]), stages, lr=0.1)
    return GradientClippingOptimizer(warm_up, GradientClipping.VALUE, max_gradient=10.0)


def test_an_optimizer_with_warm_up_goes_on_from_its_step(tmp_path):
    def steps(model, optimizer, count):
        for step in range(count):
            optimizer.zero_grad()
            (model(torch.tensor([[1.0, step]])) ** 2).sum().backward()
            optimizer.step()

    model, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    optimizer = clipped_warm_up(model)
    steps(model, optimizer, 3)
    save_state(model, tmp_path / "state", optimizer=optimizer)
    resumed = clipped_warm_up(other)
    assert load_state(other, tmp_path / "state", optimizer=resumed) == []
    for saved in optimizer, resumed:
        assert [group["lr"] for group in saved.param_groups] == pytest.approx([0.1 * (0.1 + 0.27)])
    steps(model, optimizer, 3)
    steps(other, resumed, 3)
    assert torch.equal(other.weight, model.weight)


def two_warm_ups(model):
    def warmed(name, rates):
        dense = KeyedOptimizerWrapper({name: model[name].weight}, torch.optim.SGD)
        stages = [
            WarmupStage(WarmupPolicy.CONSTANT, max_iters=2 * place, value=rate)
            for place, rate in enumerate(rates, 1)
        ]
        return WarmupOptimizer(dense, stages, lr=1.0)

    parts = {"a": warmed("first", [0.5, 0.25]), "b": warmed("second", [0.125])}
    return CombinedOptimizer(list(parts.items()))


def test_each_of_several_warm_ups_keeps_its_own_progress(tmp_path):
    model = torch.nn.ModuleDict({name: torch.nn.Linear(1, 1) for name in ("first", "second")})
    optimizer = two_warm_ups(model)
    for _ in range(4):
        optimizer.step()
    save_state(model, tmp_path / "state", optimizer=optimizer)
    resumed = two_warm_ups(model)
    assert load_state(model, tmp_path / "state", optimizer=resumed) == []
    for combined in optimizer, resumed:
        assert [group["lr"] for group in combined.param_groups] == [0.25, 1.0]
        progress = [part.progress[1].tolist() for _, part in combined.optimizers]
        assert progress == [[4, 1], [4, 1]]


def unsharded(case):
    module = FusedEmbeddingBagCollection(
        [
            EmbeddingBagConfig(
                name=name, num_embeddings=rows, embedding_dim=dim, feature_names=features
            )
            for name, rows, dim, features, _ in case.tables
        ],
        optimizer=case.optimizer,
        learning_rate=0.1,
    )
    return torch.nn.ModuleDict({"sparse": module})


def merge_shards(case, results):
    """Weights of each table, and state of each (table, columns), merged from the shards of all
    ranks."""
    weights = {name: torch.full((rows, dim), torch.nan) for name, rows, dim, *_ in case.tables}
    state = {}
    for shards in results:
        for shard, weight, momentum in shards:
            rows = slice(*shard.rows)
            weights[shard.table][rows, slice(*shard.columns)] = weight
            size = len(weights[shard.table])
            if momentum is None:
                continue
            into = state.setdefault(
                (shard.table, shard.columns), torch.full((size, *momentum.shape[1:]), torch.nan)
            )
            into[rows] = momentum
    return weights, state


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "rowwise_adagrad"])
def test_a_grid_on_4_ranks_loads_row_wise_on_2_and_unsharded(workers, tmp_path, optimizer):
    case = make_case(4, sizes=[3, 2, 4, 1], steps=3, optimizer=optimizer)
    grid = plan_of(case, grid_shard(host_indexes=[0, 1]), 4, 2, words=row_wise())
    saved = workers.run(4, save_and_read, case, grid, tmp_path / "state")
    weights, state = merge_shards(case, [shards for shards, _ in saved])
    rows = plan_of(case, row_wise())
    loaded = workers.run(2, load_and_read, case, rows, tmp_path / "state")
    actual, actual_state = merge_shards(case, [shards for shards, *_ in loaded])
    model = unsharded(case)
    messages = load_state(model, tmp_path / "state")
    for name, weight in weights.items():
        assert not weight.isnan().any()
        assert torch.equal(actual[name], weight)
        assert torch.equal(model["sparse"].embedding_bags[name].weight, weight)
    momenta = model["sparse"].optimizer_state()
    for name, _, dim, *_ in case.tables if optimizer != "sgd" else []:
        ranges = [key for key in state if key[0] == name]
        if optimizer == "adagrad":
            expected = torch.cat([state[key] for key in sorted(ranges)], dim=1)
        elif len(ranges) == 1:
            expected = state[ranges[0]]
        else:  # Two ranges of equally many columns.
            expected = sum(state[key] for key in ranges) / 2
        torch.testing.assert_close(actual_state[name, (0, dim)], expected, rtol=0, atol=0)
        assert torch.equal(momenta[f"embedding_bags.{name}.momentum1"], expected)
    merged = [f"table {name!r}" for name in ("items", "users")] if state else []
    merged = merged if optimizer == "rowwise_adagrad" else []
    assert [line.partition(":")[0] for line in messages] == merged
    assert loaded[0][1] == loaded[1][1] == messages


def test_column_ranges_keep_row_wise_state_and_splits_copy_it(workers, tmp_path):
    case = make_case(2, sizes=[3, 4], steps=3, optimizer="rowwise_adagrad")
    columns = plan_of(case, column_wise(), words=table_wise(rank=1))
    saved = workers.run(2, save_and_read, case, columns, tmp_path / "state")
    _, state = merge_shards(case, [shards for shards, _ in saved])

    # The two ranks swap their column ranges, and 'words' is cut into two.
    swapped = plan_of(case, column_wise(ranks=[1, 0]))
    loaded = workers.run(2, load_and_read, case, swapped, tmp_path / "state")
    _, result = merge_shards(case, [shards for shards, *_ in loaded])
    for key in (("users", (0, 4)), ("users", (4, 8)), ("items", (0, 8)), ("items", (8, 16))):
        assert torch.equal(result[key], state[key])
    for part in ((0, 4), (4, 8)):
        assert torch.equal(result["words", part], state["words", (0, 8)])
    assert loaded[0][1] == [
        "table 'words': row-wise optimizer state: columns 0..4: a copy of 0..8",
        "table 'words': row-wise optimizer state: columns 4..8: a copy of 0..8",
    ]


def test_merged_ranges_get_the_mean_weighted_by_columns(workers, tmp_path):
    case = make_case(2, sizes=[3, 4], steps=2, optimizer="rowwise_adagrad")
    uneven = plan_of(case, table_wise(rank=0), items=column_wise(size_per_rank=[4, 12]))
    saved = workers.run(2, save_and_read, case, uneven, tmp_path / "state")
    _, state = merge_shards(case, [shards for shards, _ in saved])
    model = unsharded(case)
    load_state(model, tmp_path / "state")
    result = model["sparse"].optimizer_state()["embedding_bags.items.momentum1"]
    a, b = (state["items", columns].double() for columns in ((0, 4), (4, 16)))
    assert torch.equal(result, ((4 * a + 12 * b) / 16).float())


def test_a_tiling_with_other_ranges_comes_back_bit_for_bit(workers, tmp_path):
    case = make_case(2, sizes=[3, 4], steps=3, optimizer="rowwise_adagrad")
    plan = plan_of(case, table_wise(rank=0))
    tiles = [((0, 4), (0, 4), 0), ((0, 4), (4, 16), 1), ((4, 7), (0, 16), 1)]
    plan["items"] = ParameterSharding(
        sharding_type="grid_shard",
        compute_kernel="fused",
        sharding_spec=tuple(
            Shard(table="items", rows=rows, columns=columns, devices=(rank,))
            for rows, columns, rank in tiles
        ),
    )
    saved = workers.run(2, save_and_read, case, plan, tmp_path / "state")
    loaded = workers.run(2, load_and_read, case, plan, tmp_path / "state")
    for (shards, _), (result, messages, _) in zip(saved, loaded, strict=True):
        assert messages == []
        for before, after in zip(shards, result, strict=True):
            assert before[0] == after[0]
            assert torch.equal(before[1], after[1])
            assert torch.equal(before[2], after[2])


def test_replicated_tables_and_their_optimizer_are_saved_once(workers, tmp_path):
    case = make_case(2, sizes=[3, 4], steps=3, optimizer="adagrad")
    plan = plan_of(case, data_parallel(), users=row_wise())
    saved = workers.run(2, save_and_read, case, plan, tmp_path / "state")
    loaded = workers.run(2, load_and_read, case, plan, tmp_path / "state")
    for (_, state), (_, messages, result) in zip(saved, loaded, strict=True):
        assert messages == []
        assert state.keys() == result.keys() != set()
        assert all(torch.equal(state[key], result[key]) for key in state)


def test_large_tensors_are_saved_in_row_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(block_files, "CHUNK_BYTES", 256)
    case = make_case(1, sizes=[3], optimizer="rowwise_adagrad")
    model, other = unsharded(case), unsharded(case)
    save_state(model, tmp_path / "state")
    metadata = FileSystemReader(tmp_path / "state").read_metadata()
    chunks = metadata.state_dict_metadata["sparse.embedding_bags.users.weight"].chunks
    assert [tuple(chunk.sizes) for chunk in chunks] == [(8, 8)] * 6 + [(2, 8)]
    load_state(other, tmp_path / "state")
    for name, *_ in case.tables:
        tables = model["sparse"].embedding_bags, other["sparse"].embedding_bags
        assert torch.equal(tables[0][name].weight, tables[1][name].weight)


def test_a_sharded_model_is_saved_and_loaded_by_its_own_ranks(workers, tmp_path):
    """No process group is passed."""
    case = make_case(2, sizes=[3, 4], steps=3, optimizer="rowwise_adagrad")
    plan = plan_of(case, data_parallel(), users=row_wise())
    saved = workers.run(2, save_and_read, case, plan, tmp_path / "state", False)
    loaded = workers.run(2, load_and_read, case, plan, tmp_path / "state", False)
    for (shards, _), (result, messages, _) in zip(saved, loaded, strict=True):
        assert messages == []
        assert shards
        for before, after in zip(shards, result, strict=True):
            assert torch.equal(before[1], after[1])
            assert torch.equal(before[2], after[2])


def damage_file(folder):
    next(folder.glob("__1_*.distcp")).unlink()


def swap_files(folder):
    (folder / "__0_0.distcp").rename(folder / "other")
    (folder / "__1_0.distcp").rename(folder / "__0_0.distcp")
    (folder / "other").rename(folder / "__1_0.distcp")


def damage_metadata(folder):
    (folder / ".metadata").unlink()


@cases(
    ("damage", "message"),
    {
        "file": (
            damage_file,
            "state: rank 1: cannot read the model's weights: __1_0.distcp: expected a file of the "
            "checkpoint, found none",
        ),
        "swapped": (
            swap_files,
            "_0.distcp: expected this checkpoint's file, got one of another checkpoint",
        ),
        "meta": (damage_metadata, "state: expected a folder of save_state, found none"),
    },
)
def test_a_missing_file_is_one_message_on_every_rank(workers, tmp_path, damage, message):
    case = make_case(2, sizes=[3, 4], steps=1)
    plan = plan_of(case, row_wise())
    workers.run(2, save_and_read, case, plan, tmp_path / "state")
    damage(tmp_path / "state")
    first, second = workers.run(2, load_and_read, case, plan, tmp_path / "state")
    assert first == second
    assert message in first


def test_state_of_another_model_is_one_message_on_every_rank(workers, tmp_path):
    case = make_case(2, sizes=[3, 4], steps=1)
    other = make_case(2, sizes=[3, 4], steps=1)
    other.tables[0] = ("users", 50, 12, ["u", "v"], "SUM")
    other.weights["users"] = torch.zeros(50, 12)
    workers.run(2, save_and_read, case, plan_of(case, row_wise()), tmp_path / "state")
    plan = plan_of(other, row_wise())
    first, second = workers.run(2, load_and_read, other, plan, tmp_path / "state")
    assert first == second
    assert "users.weight: expected shape (50, 12), got (50, 8)" in first


def test_a_full_disk_is_an_error_on_every_rank(workers, tmp_path):
    case = make_case(2, sizes=[3, 4], steps=1)
    (tmp_path / "file").write_text("in the way")
    plan = plan_of(case, row_wise())
    results = workers.run(2, save_and_read, case, plan, tmp_path / "file" / "state")
    assert results[0] == results[1] == errno.ENOTDIR


def torchrec_model(tables):
    return torch.nn.ModuleDict(
        {
            "ebc": FusedEmbeddingBagCollection(
                [
                    EmbeddingBagConfig(
                        name=name, num_embeddings=rows, embedding_dim=dim, feature_names=[name]
                    )
                    for name, (rows, dim) in tables.items()
                ],
                learning_rate=0.1,
            ),
            "lin": torch.nn.Linear(28, 1),
        }
    )


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_checkpoint_of_torchrec_loads_without_it(tmp_path):
    """The checkpoint was written by TorchRec 1.8 on 2 ranks: tables by columns, by rows, whole, and
    as a grid."""
    sizes = {"cw": (10, 8), "rw": (11, 8), "tw": (7, 4), "grid": (9, 8)}
    module = torchrec_model(sizes)
    messages = load_state(module, TORCHREC)
    expected = {f"model.ebc.embedding_bags.{n}.weight": torch.empty(s) for n, s in sizes.items()}
    states = {n: f"optimizer.state.ebc.embedding_bags.{n}.weight.{n}.momentum1" for n in sizes}
    expected |= {states[n]: torch.empty(rows) for n, (rows, _) in sizes.items()}
    expected[states["cw"]] = torch.empty(20)
    load_dcp(expected, checkpoint_id=TORCHREC, no_dist=True)  # Torch's own reader.
    actual = module["ebc"].optimizer_state()
    for name in sizes:
        weight = module["ebc"].embedding_bags[name].weight
        assert torch.equal(weight, expected[f"model.ebc.embedding_bags.{name}.weight"])
        state = expected[states[name]]
        state = (state[:10] + state[10:]) / 2 if name == "cw" else state
        assert torch.equal(actual[f"embedding_bags.{name}.momentum1"], state)
        assert state.count_nonzero()
    assert messages == [
        "table 'cw': row-wise optimizer state: columns 0..8: "
        "2 column ranges were merged into 1 by their weighted mean: 0..4, 4..8"
    ]


def test_saves_that_overlap_say_nothing_of_a_process_alone(tmp_path, monkeypatch):
    """Warning filters belong to the process. The save that begins first ends first."""
    first_inside, second_inside, first_done = Event(), Event(), Event()
    save = block_files.state_dict_saver.save

    def overlapping(*args, storage_writer, **named):
        if storage_writer.path.name == "first":
            first_inside.set()
            assert second_inside.wait(30)
        else:
            second_inside.set()
            assert first_done.wait(30)
        return save(*args, storage_writer=storage_writer, **named)

    monkeypatch.setattr(block_files.state_dict_saver, "save", overlapping)
    tensors = {"weight": torch.ones(2, 2)}
    with warnings.catch_warnings(), ThreadPoolExecutor(1) as pool:
        warnings.simplefilter("error")
        first = pool.submit(block_files.write_tensors, tensors, tmp_path / "first")
        first.add_done_callback(lambda _: first_done.set())
        assert first_inside.wait(30)
        block_files.write_tensors(tensors, tmp_path / "second")
        first.result()
