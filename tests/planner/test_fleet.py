"""Devices of a serving plan, and their memory."""

import pytest

from embershard.errors import InputError
from embershard.package import Package, Plan
from embershard.package.rectangles import Shard
from embershard.planner import Fleet, check_memory, load_of, parse_fleet
from embershard.planner.fleet import reserved_bytes, without_reserve
from tests.cases import cases, refused
from tests.package.building import table_spec


@cases(
    ("text", "devices", "memory"),
    {
        "one": ("cpu", ("cpu:0",), None),
        "two": ("2xcpu", ("cpu:0", "cpu:1"), None),
        "MiB": ("2xcpu:500MiB", ("cpu:0", "cpu:1"), 500 << 20),
        "GB": ("1xcuda:80GB", ("cuda:0",), 80 * 10**9),
        "torch-cpu": ("1xtorch-cpu", ("torch-cpu:0",), None),
        "part of a gb": ("1xcuda:1.5gb", ("cuda:0",), 1_500_000_000),
    },
)
def test_devices_and_their_memory_are_read(text, devices, memory):
    fleet = parse_fleet(text)
    assert (fleet.devices, fleet.memory_bytes) == (devices, memory)


@cases(
    ("text", "parts"),
    {
        "gpu-without-memory": ("8xcuda", ["8xcuda: memory", "got none"]),
        "no-memory": ("2xcpu:0GB", ["2xcpu: memory", "got '0GB'"]),
        "negative": ("2xcpu:-1GB", ["2xcpu: memory", "got '-1GB'"]),
        "absurd": ("1xcuda:999999999TB", ["1xcuda: memory", "got '999999999TB'"]),
        "no-unit": ("2xcpu:80", ["2xcpu: memory", "got '80'"]),
        "unknown": ("2xtpu", ["devices", "got '2xtpu'"]),
    },
)
def test_bad_devices_are_refused(text, parts):
    with refused(InputError, *parts):
        parse_fleet(text)


@pytest.fixture
def tiny():
    """A package and its load."""
    package = Package.open("tests/golden/format_0/tiny/1")
    manifest = package.manifest
    load = load_of(manifest.tables, manifest.sparse, package.samples(), source="samples")
    return package, load


def test_gpus_keep_memory_for_batches_the_program_and_cuda(tiny):
    package, load = tiny
    # 10 examples have 16 pooled columns, 2 dense inputs and 3 outputs each, and at most 34 ids in
    # all.
    reserved = 3 * (2 * 4 * 210 + 12 * 34) + 2513 + 10**9
    usable = without_reserve(parse_fleet("1xcuda:2GB"), package.manifest, load, 10)
    assert usable.memory_bytes == 2 * 10**9 - reserved


def test_sequences_need_memory_for_a_vector_of_each_id(tiny):
    package, load = tiny
    manifest = package.manifest
    *others, item = manifest.inputs
    (pooled,) = item.lookups
    lookups = (pooled.model_copy(update={"output": "sequence", "pooling": None}),)
    inputs = (*others, item.model_copy(update={"lookups": lookups}))
    # 10 examples have only 8 pooled columns, and 20 ids have vectors of 8 columns.
    values = (8 + 2 + 3) * 10 + 20 * 8
    reserved = 3 * (2 * 4 * values + 12 * 34) + 2513 + 10**9
    assert reserved_bytes(manifest.model_copy(update={"inputs": inputs}), load, 10) == reserved


def test_processors_keep_none_of_their_memory(tiny):
    package, load = tiny
    for text in ("2xcpu:8GB", "1xtorch-cpu", "1xtorch-cpu:1MB"):
        fleet = parse_fleet(text)
        assert without_reserve(fleet, package.manifest, load, 256) == fleet


def test_a_plan_above_the_memory_names_the_largest_tables():
    tables = [table_spec("small", 5), table_spec("large", 100)]
    shards = tuple(
        Shard(table=table.name, rows=(0, table.rows), columns=(0, 8), devices=(0,))
        for table in tables
    )
    fleet = Fleet(devices=("cuda:0",), memory_bytes=1000)
    plan = Plan(format_version=0, name="gpu", devices=fleet.devices, shards=shards)
    with refused(InputError, "plan gpu: device cuda:0", "1,712", "'large' 1,616, 'small' 96"):
        check_memory(plan, tables, fleet)
