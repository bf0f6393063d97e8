"""Calibrations are written and read, bad ones are refused, and default ones ship."""

import errno
import json

import pytest

from embershard.errors import InputError
from embershard.package import files
from embershard.planner import EmbeddingShardingPlanner, Topology, read_machine
from embershard.planner.machine import RowCost, default_machine
from tests.cases import cases, refused
from tests.planner.training_cases import machine_of, model_of, sharders


def test_among_more_ranks_fewer_vectors_stay_on_their_rank():
    measured = RowCost(start=1, id=2, id_byte=0, bag=3, bag_byte=4e-10)
    machine = machine_of().model_copy(update={"exchange": measured, "socket_byte": 8e-10})
    assert machine.exchange_of(2) == measured
    # With two ranks half of the bytes stay on their rank, with four ranks a quarter.
    assert machine.exchange_of(4).bag_byte == pytest.approx(4e-10 + 8e-10 / 4)
    assert machine.exchange_of(1).bag_byte == pytest.approx(0)


def test_a_failed_write_leaves_the_calibration_before(tmp_path, monkeypatch):
    path = tmp_path / "machine.json"
    machine_of().save(path)

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "sync", full)
    with pytest.raises(OSError, match="No space left"):
        machine_of().model_copy(update={"processor": "another"}).save(path)
    assert read_machine(path) == machine_of()


@cases(
    ("change", "field"),
    {
        "below": ({"host": {"latency_seconds": 0, "bytes_per_second": -1.0}}, "host.bytes_per_"),
        "no caches": ({"caches": []}, "caches"),
        "order": ({"caches": [2e6, 1e6]}, "caches"),
        "huge": ({"socket_byte": 1e308}, "socket_byte"),
        "version": ({"format_version": 0}, "format_version"),
    },
)
def test_a_bad_calibration_names_file_and_field(tmp_path, change, field):
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(machine_of().model_dump() | change))
    with refused(InputError, f"machine.json: {field}"):
        read_machine(path)


def test_costs_that_are_not_there_are_refused(tmp_path):
    with refused(InputError, "none.json", "No such file"):
        read_machine(tmp_path / "none.json")
    with refused(InputError, "optimizer", "'lamb'"):
        machine_of().kernel("lamb")


def test_the_machine_that_ships_prices_every_optimizer():
    machine = Topology(1).machine
    for optimizer in ("rowwise_adagrad", "adagrad", "sgd"):
        kernel = machine.kernel(optimizer)
        size = {"ids": 1e4, "bags": 1e3, "row_bytes": 256}
        cached = kernel.forward.seconds(**size)
        between = kernel.forward.seconds(**size, missed=(1.0, 0.0))
        assert 0 < cached < between < kernel.forward.seconds(**size, missed=(1.0, 1.0))


def test_costs_of_a_gpu_that_is_here_are_not_doubted(monkeypatch):
    machine = machine_of().model_copy(update={"processor": "NVIDIA Z80"})
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert machine.mismatch("cuda") == "costs of 'NVIDIA Z80', this machine has no GPU"
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda at: ("other", "NVIDIA Z80")[at])
    assert machine.mismatch("cuda") is None
    assert machine.mismatch().startswith("costs of 'NVIDIA Z80', this machine has ")


def test_costs_that_ship_are_told_from_measured_ones():
    ships = Topology(1).machine
    assert ships.origin.startswith(f"default costs, of {ships.processor}")
    measured = machine_of().model_copy(update={"sources": {"host": "of NVIDIA H100 SXM: 370 GB/s"}})
    assert measured.origin == "costs of test"
    assert machine_of().origin == "costs of test"


@cases(
    ("memory_bytes", "name"),
    {
        "H100": (80 << 30, "NVIDIA H100 80GB HBM3"),
        "more than an H100": ((80 << 30) + 1, "NVIDIA H200"),
        "more than any": (10**12, "NVIDIA H200"),
    },
)
def test_the_default_gpu_is_the_smallest_with_the_memory(memory_bytes, name):
    assert default_machine("cuda", memory_bytes).processor == name
    assert Topology(8, "cuda", hbm_cap=memory_bytes).machine.processor == name


def test_a_lookup_of_int8_rows_writes_sums_of_fp32():
    cost = default_machine("cuda", 100 << 30).lookup("int8")
    # A row of 128 columns has 128 codes, and scale and bias of 2 bytes each: 3 lines of 64 bytes.
    # A sum of rows has 512 bytes.
    seconds = cost.seconds(ids=20, bags=1, row_bytes=132, missed=(1.0,))
    assert seconds == pytest.approx((20 * (8 + 192) + 512) / (0.647 * 4.8e12))


def planned(topology):
    planner = EmbeddingShardingPlanner(topology, 64)
    planner.plan(model_of((1000, 64), (2000, 32)), sharders())
    return planner.report.to_text()


def test_a_plan_for_gpus_says_whose_costs_it_takes(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    text = planned(Topology(2, "cuda"))
    assert "default costs, of NVIDIA H100 80GB HBM3" in text
    assert "warning: machine" not in text
    text = planned(Topology(2, "cuda", machine=default_machine("cuda")))
    assert "machine: costs of 'NVIDIA H100 80GB HBM3', this machine has no GPU" in text


@pytest.mark.parametrize("value", [("cpu",), ("cuda",), ("cuda", 100 << 30)])
def test_every_shipped_machine_names_the_source_of_its_figures(value):
    sources = default_machine(*value).sources
    assert any("embershard calibrate" in source for source in sources.values())
    named = {name for names in sources for name in names.split(", ")}
    assert named >= {"kernels", "lookups", "exchange", "host", "network"}
