"""Topologies and constraints that are refused."""

import numpy as np
import pytest
import torch

from embershard.errors import InputError
from embershard.planner import Device, ParameterConstraints, Topology
from tests.planner.training_cases import machine_of


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"world_size": 0}, "world_size: expected an integer of 1 .. 1,048,576, got 0"),
        ({"world_size": "2"}, "world_size: expected an integer of 1 .. 1,048,576, got '2'"),
        ({"world_size": 2, "ddr_cap": 0}, "rank 0: memory: expected 1 .. 1e\\+18 bytes, got 0"),
        ({"world_size": 2, "ddr_cap": torch.nan}, "expected 1 .. 1e\\+18 bytes, got nan"),
        ({"world_size": 2, "ddr_cap": torch.inf}, "expected 1 .. 1e\\+18 bytes, got inf"),
        ({"world_size": 2, "compute_device": "tpu"}, "expected cpu or cuda, got 'tpu'"),
        ({"world_size": 2, "hbm_cap": 1 << 30}, "cpu: expected ddr_cap, got hbm_cap"),
        (
            {"world_size": 1, "devices": [Device(memory_bytes=1, host_memory_bytes=5)]},
            "rank 0: host memory: expected a number of 0 .. 0, got 5",
        ),
        (
            {"world_size": 2, "compute_device": "cuda", "ddr_cap": -1},
            "rank 0: host memory: expected a number of 0 .. 1e\\+18, got -1",
        ),
        (
            {
                "world_size": 1,
                "compute_device": "cuda",
                "ddr_cap": 5,
                "devices": [Device(memory_bytes=1)],
            },
            "expected devices, or ddr_cap and hbm_cap, got both",
        ),
        ({"world_size": 4, "local_world_size": 3}, "local_world_size: expected a divisor of 4"),
        (
            {"world_size": 1, "devices": [Device(memory_bytes=1, speed=-1)]},
            "rank 0: speed: expected a number of 1e-06 .. 1e\\+06, got -1",
        ),
        ({"world_size": 2, "devices": [Device(memory_bytes=1)]}, "expected 2 devices, got 1"),
        ({"world_size": 2, "devices": "ab"}, "devices: expected a list of Device, got 'ab'"),
        ({"world_size": 2, "devices": 5}, "devices: expected a list of Device, got 5"),
        ({"world_size": 2, "devices": [5, 6]}, "devices: rank 0: expected a Device, got 5"),
        ({"world_size": 2, "machine": 3}, "machine: expected a Machine: read_machine.FILE., got 3"),
        (
            {"world_size": 2, "inter_host_bw": -1.0},
            "inter_host_bw, bytes a millisecond: expected .*, got -1",
        ),
        (
            {"world_size": 2, "inter_host_bw": torch.inf},
            "inter_host_bw, .*: expected a number of 1 .. 1e\\+15, got inf",
        ),
        ({"world_size": 2, "inter_host_bw": 5e-324}, "of 1 .. 1e\\+15, got 5e-324"),
        ({"world_size": 2, "intra_host_bw": 6e8}, "intra_host_bw: expected machine=read_machine"),
    ],
)
def test_a_bad_topology_is_refused(settings, message):
    with pytest.raises(InputError, match=message):
        Topology(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sharding_types": []}, "sharding_types: expected a list of some of"),
        ({"sharding_types": ["diagonal"]}, "sharding_types: expected a list of some of"),
        (
            {"compute_kernels": ["dense"]},
            "compute_kernels: expected 'fused' or 'fused_uvm_caching'",
        ),
        (
            {"sharding_types": ["data_parallel"], "compute_kernels": ["fused"]},
            "compute_kernels: expected 'dense' among them",
        ),
        ({"min_partition": 0}, "min_partition: expected an integer of 1 .. .*, got 0"),
        ({"cached_share": 1.5}, "cached_share: expected a number of 0 .. 1, got 1.5"),
        (
            {"pooling_factors": [-1.0]},
            "pooling_factors: expected a number of 0 .. 1e\\+09, got -1.0",
        ),
        ({"sharding_types": "row_wise"}, "sharding_types: expected a list .*, got 'row_wise'"),
        ({"compute_kernels": [3]}, "compute_kernels: expected a list of some of"),
        ({"min_partition": 2.5}, "min_partition: expected an integer of 1 .. .*, got 2.5"),
        ({"cached_share": "0.5"}, "cached_share: expected a number of 0 .. 1, got '0.5'"),
        ({"pooling_factors": [1e308]}, "pooling_factors: expected .*, got 1e\\+308"),
        ({"pooling_factors": 3.0}, "pooling_factors: expected a list of numbers, got 3.0"),
        ({"pooling_factors": np.array(3.0)}, "pooling_factors: expected a list .*, got 3.0"),
        (
            {"pooling_factors": np.ones((1, 2))},
            "pooling_factors: expected a number .*, got .1.0, 1",
        ),
        ({"sharding_types": {"row_wise", 3}}, "expected a list .*, got .3, 'row_wise'"),
        (
            {"access_counts": torch.ones(2).to_sparse()},
            "real number a row, got torch.float32, torch.sp",
        ),
        ({"access_counts": torch.ones(2) * 1j}, "real number a row, got torch.complex64"),
        ({"access_counts": torch.ones(2, device="meta")}, "torch.strided, device meta"),
        ({"access_counts": [1, 2]}, "access_counts: expected a dense tensor .*, got list"),
        ({"access_counts": torch.full((9,), 1e308, dtype=torch.double)}, "with a finite sum"),
        ({"access_counts": torch.tensor([1, -1])}, "access_counts: expected numbers of at least 0"),
        (
            {"access_counts": torch.tensor([1, torch.nan])},
            "access_counts: expected numbers of at least 0",
        ),
    ],
)
def test_bad_constraints_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        ParameterConstraints(**settings)


def test_arrays_and_sets_are_taken_as_their_lists():
    names = {"table_wise", "row_wise"}
    constraints = ParameterConstraints(pooling_factors=np.array([2.0, 3.0]), sharding_types=names)
    listed = ParameterConstraints(
        pooling_factors=[2.0, 3.0], sharding_types=["row_wise", "table_wise"]
    )
    assert constraints == listed


def test_numpy_numbers_are_taken_as_pythons():
    # int32 and int8 would overflow: 2**31 - 1 and a byte more, 100 + 100.
    memory = Device(memory_bytes=np.int32(2**31 - 1), speed=np.float32(0.5))
    topology = Topology(np.int64(2), local_world_size=np.int8(1), devices=[memory] * 2)
    assert topology.devices == (Device(memory_bytes=2**31 - 1, speed=0.5),) * 2
    constraints = ParameterConstraints(
        pooling_factors=[np.int8(100)] * 2, min_partition=np.int8(64)
    )
    assert sum(constraints.pooling_factors) == 200
    numbers = [topology.world_size, topology.local_world_size, topology.devices[0].memory_bytes]
    assert {type(item) for item in [*numbers, constraints.min_partition]} == {int}


def test_access_counts_may_require_a_gradient():
    constraints = ParameterConstraints(access_counts=torch.ones(2, requires_grad=True))
    assert not constraints.access_counts.requires_grad


def test_a_name_that_is_listed_twice_counts_once():
    constraints = ParameterConstraints(
        sharding_types=["data_parallel"] * 2, compute_kernels=["dense"]
    )
    assert constraints.sharding_types == ["data_parallel"]


def test_memory_of_a_host_needs_a_machine_that_says_how_fast_it_is():
    shipped = Topology(2, "cuda", ddr_cap=5)
    assert shipped.host_memory_rate == shipped.machine.host_memory_rate > 0
    in_torchrecs_order = Topology(2, "cuda", 7, 5)
    assert in_torchrecs_order.devices == (Device(memory_bytes=7, host_memory_bytes=5),) * 2
    assert Topology(2, "cuda").host_memory_rate == 0
    with pytest.raises(InputError, match="a machine with host_memory_rate, got 'test' without"):
        _ = Topology(2, "cuda", ddr_cap=5, machine=machine_of()).host_memory_rate


def test_a_bandwidth_between_hosts_takes_the_place_of_the_machines():
    topology = Topology(2, local_world_size=1, machine=machine_of(), inter_host_bw=12.5e6)
    assert topology.machine.network.bytes_per_second == 12.5e9
    assert topology.machine.host == machine_of().host
