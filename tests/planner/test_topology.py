"""Topologies and constraints: accepted forms, and those that are refused."""

import numpy as np
import torch

from embershard.errors import InputError
from embershard.planner import Device, ParameterConstraints, Topology
from tests.cases import cases, refused
from tests.planner.training_cases import machine_of

ONE_BYTE = Device(memory_bytes=1)
CUDA = {"world_size": 1, "compute_device": "cuda"}


@cases(
    ("settings", "parts"),
    {
        "no ranks": ({"world_size": 0}, ["world_size", "got 0"]),
        "text": ({"world_size": "2"}, ["world_size", "got '2'"]),
        "no memory": ({"ddr_cap": 0}, ["rank 0: memory", "got 0"]),
        "nan": ({"ddr_cap": torch.nan}, ["memory", "got nan"]),
        "infinite": ({"ddr_cap": torch.inf}, ["memory", "got inf"]),
        "device": ({"compute_device": "tpu"}, ["compute_device", "got 'tpu'"]),
        "memory of a GPU": ({"hbm_cap": 1 << 30}, ["cpu", "got hbm_cap"]),
        "host memory of a CPU": (
            {"world_size": 1, "devices": [Device(memory_bytes=1, host_memory_bytes=5)]},
            ["rank 0: host memory", "got 5"],
        ),
        "host memory": (CUDA | {"ddr_cap": -1}, ["rank 0: host memory", "got -1"]),
        "caps and devices": (CUDA | {"ddr_cap": 5, "devices": [ONE_BYTE]}, ["got both"]),
        "hosts": ({"world_size": 4, "local_world_size": 3}, ["local_world_size", "4, got 3"]),
        "speed": (
            {"world_size": 1, "devices": [Device(memory_bytes=1, speed=-1)]},
            ["rank 0: speed", "got -1"],
        ),
        "too few devices": ({"devices": [ONE_BYTE]}, ["2 devices", "got 1"]),
        "devices as text": ({"devices": "ab"}, ["devices", "got 'ab'"]),
        "no list": ({"devices": 5}, ["devices", "got 5"]),
        "no device": ({"devices": [5, 6]}, ["devices: rank 0", "got 5"]),
        "machine": ({"machine": 3}, ["machine", "got 3"]),
        "most bandwidth": ({"inter_host_bw": torch.inf}, ["inter_host_bw", "got inf"]),
        "bandwidth": ({"inter_host_bw": 5e-324}, ["inter_host_bw", "got 5e-324"]),
        "bandwidth in a host": ({"intra_host_bw": 6e8}, ["intra_host_bw", "read_machine"]),
    },
)
def test_a_bad_topology_is_refused(settings, parts):
    with refused(InputError, *parts):
        Topology(**{"world_size": 2} | settings)


@cases(
    ("settings", "parts"),
    {
        "no type": ({"sharding_types": []}, ["sharding_types", "got []"]),
        "type": ({"sharding_types": ["diagonal"]}, ["sharding_types", "['diagonal']"]),
        "text": ({"sharding_types": "row_wise"}, ["sharding_types", "got 'row_wise'"]),
        "set": ({"sharding_types": {"row_wise", 3}}, ["sharding_types", "[3, 'row_wise']"]),
        "kernel": ({"compute_kernels": ["dense"]}, ["compute_kernels", "['dense']"]),
        "no name": ({"compute_kernels": ["fused", 3]}, ["compute_kernels", "3]"]),
        "replicas": (
            {"sharding_types": ["data_parallel"], "compute_kernels": ["fused"]},
            ["compute_kernels", "'dense' among them", "['fused']"],
        ),
        "no columns": ({"min_partition": 0}, ["min_partition", "got 0"]),
        "part of a column": ({"min_partition": 2.5}, ["min_partition", "got 2.5"]),
        "share": ({"cached_share": 1.5}, ["cached_share", "got 1.5"]),
        "factor": ({"pooling_factors": [-1.0]}, ["pooling_factors", "got -1.0"]),
        "most": ({"pooling_factors": [1e308]}, ["pooling_factors", "got 1e+308"]),
        "no list": ({"pooling_factors": 3.0}, ["pooling_factors", "got 3.0"]),
        "no array": ({"pooling_factors": np.array(3.0)}, ["pooling_factors", "got 3.0"]),
        "dimensions": ({"pooling_factors": np.ones((1, 2))}, ["pooling_factors", "[1.0, 1"]),
        "sparse": ({"access_counts": torch.ones(2).to_sparse()}, ["torch.sparse_coo"]),
        "complex": ({"access_counts": torch.ones(2) * 1j}, ["torch.complex64"]),
        "meta": ({"access_counts": torch.ones(2, device="meta")}, ["device meta"]),
        "list": ({"access_counts": [1, 2]}, ["access_counts", "got list"]),
        "sum": ({"access_counts": torch.full((9,), 1e308, dtype=torch.double)}, ["finite sum"]),
        "negative": ({"access_counts": torch.tensor([1, -1])}, ["access_counts", "least 0"]),
        "nan": ({"access_counts": torch.tensor([1, torch.nan])}, ["access_counts", "least 0"]),
    },
)
def test_bad_constraints_are_refused(settings, parts):
    with refused(InputError, *parts):
        ParameterConstraints(**settings)


def test_arrays_and_sets_are_taken_as_their_lists():
    names = {"table_wise", "row_wise"}
    constraints = ParameterConstraints(pooling_factors=np.array([2.0, 3.0]), sharding_types=names)
    listed = ParameterConstraints(
        pooling_factors=[2.0, 3.0], sharding_types=["row_wise", "table_wise"]
    )
    assert constraints == listed


def test_numpy_numbers_are_taken_as_pythons():
    # int32 would overflow at 2**31 - 1 + 1, and int8 at 100 + 100.
    memory = Device(memory_bytes=np.int32(2**31 - 1), speed=np.float32(0.5))
    topology = Topology(np.int64(2), local_world_size=np.int8(1), devices=[memory] * 2)
    assert topology.devices == (Device(memory_bytes=2**31 - 1, speed=0.5),) * 2
    constraints = ParameterConstraints(
        pooling_factors=[np.int8(100)] * 2, min_partition=np.int8(64)
    )
    assert sum(constraints.pooling_factors) == 200
    numbers = [topology.world_size, topology.local_world_size, topology.devices[0].memory_bytes]
    assert {type(number) for number in [*numbers, constraints.min_partition]} == {int}


def test_access_counts_may_require_a_gradient():
    constraints = ParameterConstraints(access_counts=torch.ones(2, requires_grad=True))
    assert not constraints.access_counts.requires_grad


def test_a_name_that_is_listed_twice_counts_once():
    constraints = ParameterConstraints(
        sharding_types=["data_parallel"] * 2, compute_kernels=["dense"]
    )
    assert constraints.sharding_types == ["data_parallel"]


def test_host_memory_needs_a_machine_that_says_how_fast_it_is():
    shipped = Topology(2, "cuda", ddr_cap=5)
    assert shipped.host_memory_rate == shipped.machine.host_memory_rate > 0
    in_torchrecs_order = Topology(2, "cuda", 7, 5)
    assert in_torchrecs_order.devices == (Device(memory_bytes=7, host_memory_bytes=5),) * 2
    assert Topology(2, "cuda").host_memory_rate == 0
    with refused(InputError, "host_memory_rate", "got 'test'"):
        _ = Topology(2, "cuda", ddr_cap=5, machine=machine_of()).host_memory_rate


def test_a_bandwidth_between_hosts_replaces_the_machines():
    topology = Topology(2, local_world_size=1, machine=machine_of(), inter_host_bw=12.5e6)
    assert topology.machine.network.bytes_per_second == 12.5e9
    assert topology.machine.host == machine_of().host
