"""Plans: what each sharding type cuts, JSON, and what is refused."""

import json

import pytest
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharding_spec import EnumerableShardingSpec

from embershard.errors import DataError, InputError
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.sharding import (
    EmbeddingBagCollectionSharder,
    EmbeddingCollectionSharder,
    EmbeddingModuleShardingPlan,
    ParameterSharding,
    Shard,
    ShardingPlan,
    ShardingType,
    column_wise,
    construct_module_sharding_plan,
    data_parallel,
    grid_shard,
    row_wise,
    table_column_wise,
    table_row_wise,
    table_wise,
)
from embershard.sharding.types import check_module_plan
from tests.cases import cases

TABLE = EmbeddingBagConfig(name="t", num_embeddings=10, embedding_dim=16, feature_names=["f"])


def collection(*tables):
    return EmbeddingBagCollection(tables or [TABLE], device="meta")


def rectangles(generator, world_size=4, local_size=2):
    plan = construct_module_sharding_plan(
        collection(), {"t": generator}, world_size=world_size, local_size=local_size
    )
    return [(shard.rows, shard.columns, shard.devices) for shard in plan["t"].sharding_spec]


def test_arguments_stand_in_torchrecs_order():
    sharder = EmbeddingBagCollectionSharder()
    cut = construct_module_sharding_plan(
        collection(), {"t": table_row_wise(1)}, sharder, 2, 4, "cpu"
    )
    assert [shard.devices for shard in cut["t"].sharding_spec] == [(2,), (3,)]


WHOLE = ((0, 10), (0, 16))


@cases(
    ("generator", "expected"),
    {
        "data-parallel": (data_parallel(), [(*WHOLE, (0, 1, 2, 3))]),
        "table-wise": (table_wise(rank=2), [(*WHOLE, (2,))]),
        "row-wise": (
            row_wise(),
            [((a, b), (0, 16), (r,)) for r, (a, b) in enumerate([(0, 3), (3, 6), (6, 9), (9, 10)])],
        ),
        "row-wise-sizes": (
            row_wise([0, 7, 0, 3]),
            [((0, 7), (0, 16), (1,)), ((7, 10), (0, 16), (3,))],
        ),
        "column-wise": (
            column_wise(ranks=[3, 0]),
            [((0, 10), (0, 8), (3,)), ((0, 10), (8, 16), (0,))],
        ),
        "column-wise-sizes": (
            column_wise(ranks=[1, 1], size_per_rank=[4, 12]),
            [((0, 10), (0, 4), (1,)), ((0, 10), (4, 16), (1,))],
        ),
        "table-row-wise": (
            table_row_wise(host_index=1),
            [((0, 5), (0, 16), (2,)), ((5, 10), (0, 16), (3,))],
        ),
        "table-column-wise": (
            table_column_wise(host_index=1),
            [((0, 10), (0, 8), (2,)), ((0, 10), (8, 16), (3,))],
        ),
        "grid": (
            grid_shard(host_indexes=[1, 0]),
            [
                ((0, 5), (0, 8), (2,)),
                ((5, 10), (0, 8), (3,)),
                ((0, 5), (8, 16), (0,)),
                ((5, 10), (8, 16), (1,)),
            ],
        ),
    },
)
def test_each_sharding_type_cuts_its_rectangles(generator, expected):
    assert rectangles(generator) == expected


@cases(
    ("make", "message"),
    {
        "rank": (lambda: table_wise(None), "table_wise: rank: expected an integer, got None"),
        "rank-of-bool": (lambda: table_wise(True), "rank: expected an integer, got True"),
        "sizes": (lambda: row_wise(5), "row_wise: sizes: expected a sequence of integers, got 5"),
        "size": (lambda: row_wise([5, 5.0]), r"row_wise: sizes.1: expected an integer, got 5\.0"),
        "ranks": (lambda: column_wise("01"), "column_wise: ranks: .* integers, got '01'"),
        "columns": (
            lambda: column_wise(size_per_rank=["a"]),
            "column_wise: size_per_rank.0: expected an integer, got 'a'",
        ),
        "host": (lambda: table_row_wise("0"), "host_index: expected an integer, got '0'"),
        "column-host": (lambda: table_column_wise(0.5), "host_index: expected an integer, got 0.5"),
        "hosts": (lambda: grid_shard(1), "grid_shard: host_indexes: .* integers, got 1"),
        "kernel": (
            lambda: rectangles(table_wise(0, compute_kernel=5)),
            "table 't': compute_kernel: expected a value of EmbeddingComputeKernel, got 5",
        ),
        "no-helper": (lambda: rectangles("row_wise"), "'t': expected a sharding .*, got row_wise"),
        "not-called": (
            lambda: rectangles(row_wise),
            "expected a sharding such as .* got row_wise$",
        ),
        "returns": (lambda: rectangles(lambda *_: 1), "expected a ParameterSharding, got int"),
        "no-mapping": (
            lambda: construct_module_sharding_plan(collection(), [row_wise()]),
            "per_param_sharding: expected a mapping of table names .*, got list",
        ),
        "class": (
            lambda: construct_module_sharding_plan(EmbeddingBagCollection, {}),
            "module: expected a collection of tables, got type",
        ),
        "world-size": (
            lambda: rectangles(row_wise(), world_size=0),
            "world_size: expected at least 1, got 0",
        ),
        "sharder": (
            lambda: construct_module_sharding_plan(
                collection(), {"t": row_wise()}, EmbeddingCollectionSharder(), world_size=2
            ),
            "sharder: expected None or one for EmbeddingBagC.*, got EmbeddingCollectionSharder$",
        ),
        "device-type": (
            lambda: construct_module_sharding_plan(
                collection(), {"t": row_wise()}, world_size=2, device_type="cuda:0"
            ),
            "device_type: expected None, 'cpu' or 'cuda', got 'cuda:0'",
        ),
        "local-size": (
            lambda: rectangles(row_wise(), local_size="2"),
            "local_size: expected an integer, got '2'",
        ),
    },
)
def test_arguments_of_another_type_are_refused_by_name(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize("value", ["two", "", "0", "-1", "1.5"])
def test_a_local_world_size_that_does_not_fit_is_refused(monkeypatch, value):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", value)
    with pytest.raises(InputError) as raised:
        rectangles(row_wise(), local_size=None)
    assert str(raised.value) == (
        f"LOCAL_WORLD_SIZE: expected a number of ranks, from 1, got {value!r}"
    )


def test_row_wise_with_fewer_rows_leaves_ranks_without_rows():
    small = EmbeddingBagConfig(name="t", num_embeddings=2, embedding_dim=4, feature_names=["f"])
    plan = construct_module_sharding_plan(collection(small), {"t": row_wise()}, world_size=4)
    assert plan["t"].ranks == [0, 1]


def test_a_plan_is_equal_after_json(tmp_path):
    cut = construct_module_sharding_plan(
        collection(), {"t": grid_shard([0, 1])}, world_size=4, local_size=2
    )
    plan = ShardingPlan({"model.sparse": cut})
    plan.save(tmp_path / "plan.json")
    read = ShardingPlan.load(tmp_path / "plan.json")
    assert read == plan
    assert read.plan["model.sparse"].world_size == 4
    assert plan.get_plan_for_module("model.sparse") == cut
    assert plan.get_plan_for_module("model.dense") is None


def test_a_plan_without_its_world_size_is_checked_by_its_ranks():
    """Earlier files and plans built by hand do not have their world size."""
    cut = construct_module_sharding_plan(collection(), {"t": row_wise()}, world_size=2)
    document = json.loads(ShardingPlan({"sparse": cut}).to_json())
    del document["world_size"]
    read = ShardingPlan.from_json(json.dumps(document)).plan["sparse"]
    assert read == cut
    check_module_plan(read, [TABLE], world_size=3, where="here", device="cpu")
    with pytest.raises(InputError, match="for world size 1, got a shard on rank 1"):
        check_module_plan(read, [TABLE], world_size=1, where="here", device="cpu")


def test_a_plan_for_another_world_size_is_refused():
    cut = construct_module_sharding_plan(collection(), {"t": table_wise(0)}, world_size=1)
    with pytest.raises(InputError) as raised:
        check_module_plan(cut, [TABLE], world_size=2, where="here", device="cpu")
    assert str(raised.value) == "here: expected a plan for world size 2, got one for world size 1"


def test_collections_of_different_world_sizes_make_no_plan():
    cuts = {
        str(size): construct_module_sharding_plan(collection(), {"t": row_wise()}, world_size=size)
        for size in (1, 2)
    }
    with pytest.raises(InputError) as raised:
        ShardingPlan(cuts).to_json()
    assert str(raised.value) == (
        "plan: expected collections cut for one world size, got 1 of module '1', 2 of module '2'"
    )


@cases(
    ("generators", "message"),
    {
        "missing": ({}, "plan: table 't': expected a sharding, got none"),
        "unknown": ({"u": data_parallel()}, r"plan: table 'u': expected one of \['t'\]"),
        "rank": ({"t": table_wise(rank=4)}, "for world size 4, got a shard on rank 4"),
        "columns-of-6": (
            {"t": column_wise([0, 1], [6, 10])},
            r"shards.0.columns: expected multiples of 4, or 16 at the end, got \[0, 6\]",
        ),
        "gap": (
            {"t": column_wise([0, 1], [4, 8])},
            "expected rectangles that cover the 10 x 16 values of t, got 120 of 160",
        ),
        "too-many-columns": (
            {"t": column_wise([0, 1, 2, 3, 0])},
            "expected 5 column ranges, one a rank, got 4",
        ),
        "no-ranks": ({"t": column_wise(ranks=[])}, "column_wise: ranks: expected one, got none"),
        "no-host": ({"t": grid_shard(host_indexes=[])}, "grid_shard: expected a host, got none"),
        "host-out-of-range": ({"t": table_row_wise(2)}, "expected a host in 0 .. 1, got 2"),
    },
)
def test_a_plan_that_does_not_fit_is_refused(generators, message):
    with pytest.raises(InputError, match=message):
        construct_module_sharding_plan(collection(), generators, world_size=4, local_size=2)


def made_up(sharding_type="table_wise", compute_kernel="fused", **shard):
    settings = {"table": "t", "rows": (0, 10), "columns": (0, 16), "devices": (0,)} | shard
    return EmbeddingModuleShardingPlan(
        t=ParameterSharding(
            sharding_type=sharding_type,
            compute_kernel=compute_kernel,
            sharding_spec=(Shard(**settings),),
        )
    )


@cases(
    ("plan", "message"),
    {
        "type": (made_up("rowwise"), "expected one of data_parallel"),
        "kernel": (
            made_up(compute_kernel="quant"),
            "compute_kernel: expected 'dense' or 'fused' with table_wise on cpu, got 'quant'",
        ),
        "kernel-of-cuda": (
            made_up(compute_kernel="fused_uvm_caching"),
            "expected 'dense' or 'fused' with table_wise on cpu, got 'fused_uvm_caching'",
        ),
        "replicas-on-some-ranks": (
            made_up("data_parallel", "dense", devices=(0, 1)),
            r"shards.0.ranks: expected all 4 ranks with data_parallel, got \[0, 1\]",
        ),
        "replicas-without-data-parallel": (
            made_up(devices=(0, 1)),
            r"shards.0.ranks: expected one rank with table_wise, got \[0, 1\]",
        ),
        "rows": (made_up(rows=(0, 11)), r"rows: expected a span of 0 .. 10"),
        "table": (made_up(table="u"), "shards.0.table: expected 't', got 'u'"),
    },
)
def test_an_inconsistent_plan_is_refused(plan, message):
    with pytest.raises(InputError, match=f"here: table 't': .*{message}"):
        check_module_plan(plan, [TABLE], world_size=4, where="here", device="cpu")


SHARD = Shard(table="t", rows=(0, 10), columns=(0, 16), devices=(0,))
TORCHREC_SPEC = EnumerableShardingSpec(
    [ShardMetadata(shard_offsets=[0, 0], shard_sizes=[10, 16], placement="rank:0/cpu")]
)
SHARDS_EXPECTED = (
    "a tuple of Shard(table=, rows=, columns=, devices=), as row_wise() and the other helpers make"
)


def by_hand(**arguments):
    settings = {"sharding_type": "row_wise", "compute_kernel": "fused", "sharding_spec": (SHARD,)}
    return ParameterSharding(**settings | arguments)


def shard(**arguments):
    return Shard(**{"table": "t", "rows": (0, 10), "columns": (0, 16), "devices": (0,)} | arguments)


@cases(
    ("build", "message"),
    {
        "torchrec": (
            lambda: by_hand(ranks=[0], sharding_spec=TORCHREC_SPEC),
            f"ParameterSharding: sharding_spec: expected {SHARDS_EXPECTED}, got Enumerable",
        ),
        "positional": (
            lambda: ParameterSharding("row_wise", "fused", [0], TORCHREC_SPEC),
            "ParameterSharding: expected sharding_type=, compute_kernel=, sharding_spec=, "
            "got 4 arguments without names",
        ),
        "ranks": (
            lambda: by_hand(ranks=[0]),
            "ParameterSharding: expected sharding_type=, compute_kernel=, sharding_spec=, "
            "got ranks=",
        ),
        "no-shards": (
            lambda: ParameterSharding(sharding_type="row_wise", compute_kernel="fused"),
            f"ParameterSharding: sharding_spec: expected {SHARDS_EXPECTED}, got none",
        ),
        "enum": (
            lambda: by_hand(sharding_type=ShardingType.ROW_WISE),
            "ParameterSharding: sharding_type: expected a value of ShardingType, such as "
            "'row_wise', got <ShardingType.ROW_WISE: 'row_wise'>",
        ),
        "kernel": (
            lambda: by_hand(compute_kernel=5),
            "ParameterSharding: compute_kernel: expected a value of EmbeddingComputeKernel, such "
            "as 'fused', got 5",
        ),
        "strings": (
            lambda: by_hand(sharding_spec=("rank:0/cpu",)),
            f"ParameterSharding: sharding_spec.0: expected {SHARDS_EXPECTED}, got 'rank:0/cpu'",
        ),
        "rows-in-a-list": (
            lambda: shard(rows=[0, 10]),
            "Shard: rows: expected rows as a tuple of integers (first, end), the end excluded, "
            "got [0, 10]",
        ),
        "negative-row": (
            lambda: shard(rows=(-1, 10)),
            "Shard: rows.0: expected rows as a tuple of integers (first, end), the end excluded, "
            "got -1",
        ),
        "rank": (
            lambda: shard(devices=0),
            "Shard: devices: expected a tuple of integers from 0, got 0",
        ),
        "shard-of-torch": (
            lambda: shard(shard_offsets=[0, 0]),
            "Shard: expected table=, rows=, columns=, devices=, got shard_offsets=",
        ),
    },
)
def test_a_mistake_in_a_sharding_by_hand_is_an_input_error(build, message):
    with pytest.raises(InputError) as raised:
        build()
    assert str(raised.value).startswith(message)


def test_overlapping_shards_by_hand_are_refused_with_both():
    halves = shard(rows=(0, 6)), shard(rows=(5, 10), devices=(1,))
    plan = EmbeddingModuleShardingPlan(t=by_hand(sharding_spec=halves))
    message = "shards.1: expected rectangles of t that do not overlap, got one over shards.0"
    with pytest.raises(InputError, match=message):
        check_module_plan(plan, [TABLE], world_size=4, where="here", device="cpu")


def test_kernels_of_unified_memory_are_for_cuda_and_shards():
    for kernel in ("fused_uvm", "fused_uvm_caching"):
        for device in ("cuda", None):
            plan = made_up(compute_kernel=kernel)
            check_module_plan(plan, [TABLE], world_size=4, where="here", device=device)
    replicas = made_up("data_parallel", "fused_uvm", devices=(0, 1, 2, 3))
    with pytest.raises(InputError, match="expected 'dense' with data_parallel on cuda, got 'fused"):
        check_module_plan(replicas, [TABLE], world_size=4, where="here", device="cuda")


def test_json_of_another_shape_is_refused_with_its_field():
    text = '{"format_version": 0, "plan": {"m": {"t": {"sharding_type": 1}}}}'
    message = r"^plan.json: plan\.m\.t.*; expected a file that ShardingPlan.save wrote$"
    with pytest.raises(DataError, match=message):
        ShardingPlan.from_json(text, name="plan.json")
