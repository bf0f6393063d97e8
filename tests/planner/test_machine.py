"""Calibrations: fitted to measurements, written, read, and what is refused."""

import errno
import json

import numpy as np
import pytest

from embershard.errors import InputError
from embershard.package import sealing
from embershard.planner import Topology, read_machine
from embershard.planner.fit import Measured, fit, fit_exchange
from embershard.planner.machine import MissCost, RowCost
from tests.planner.training_cases import machine_of


def test_costs_are_found_again_in_exact_measurements():
    cost = RowCost(start=1e-4, id=1e-8, id_byte=2e-11, bag=3e-9, bag_byte=0)
    assert _found_again(cost, shares=(0,), missed=((),)) == pytest.approx(_values(cost), abs=1e-15)


def test_costs_of_rows_and_misses_are_found_again_in_exact_measurements():
    cost = RowCost(
        start=1e-4,
        id=1e-8,
        id_byte=0,
        bag=3e-9,
        bag_byte=2e-11,
        row=4e-7,
        row_byte=1e-10,
        misses=(MissCost(row=2e-8, row_byte=0), MissCost(row=0, row_byte=3e-10)),
    )
    missed = (0.0, 0.0), (0.5, 0.0), (0.9, 0.6)
    found = _found_again(cost, shares=(1, 7), missed=missed)
    assert found == pytest.approx(_values(cost), abs=1e-15)


def _found_again(cost, *, shares, missed):
    """What is fitted to seconds that are the cost's."""
    measured = [
        Measured(
            ids=ids,
            bags=ids // length,
            row_bytes=row_bytes,
            rows=ids // share if share else 0,
            missed=each,
        )
        for ids in (4096, 16384)
        for length in (1, 8, 32)
        for row_bytes in (64, 256, 1024)
        for share in shares
        for each in missed
    ]
    seconds = [
        cost.start
        + cost.seconds(
            ids=each.ids,
            bags=each.bags,
            row_bytes=each.row_bytes,
            rows=each.rows or None,
            missed=each.missed,
        )
        for each in measured
    ]
    found, error = fit(measured, np.array(seconds))
    assert error < 1e-9
    return _values(found)


def _values(cost):
    misses = [value for each in cost.misses for value in (each.row, each.row_byte)]
    return [cost.start, cost.id, cost.id_byte, cost.bag, cost.bag_byte, cost.row, *misses]


def test_an_exchange_costs_nothing_by_the_bytes_of_rows_that_are_looked_up():
    shapes = [(ids, bags, size) for ids in (10, 300) for bags in (7, 90) for size in (64, 512)]
    measured = [Measured(*shape) for shape in shapes]
    seconds = np.array([ids * (3e-9 + 5e-11 * size) for ids, _, size in shapes])
    assert fit(measured, seconds)[0].id_byte > 0
    assert fit_exchange(measured, seconds)[0].id_byte == 0


def test_among_more_ranks_fewer_vectors_stay_on_their_rank():
    measured = RowCost(start=1, id=2, id_byte=0, bag=3, bag_byte=4e-10)
    machine = machine_of().model_copy(update={"exchange": measured, "socket_byte": 8e-10})
    assert machine.exchange_of(2) == measured
    # A half of the bytes stays on a rank of two, a quarter on one of four.
    assert machine.exchange_of(4).bag_byte == pytest.approx(4e-10 + 8e-10 / 4)
    assert machine.exchange_of(1).bag_byte == pytest.approx(0)


def test_a_calibration_is_read_back(tmp_path):
    path = tmp_path / "machine.json"
    machine_of().save(path)
    assert read_machine(path) == machine_of()


def test_a_calibration_that_cannot_be_written_leaves_the_one_before(tmp_path, monkeypatch):
    path = tmp_path / "machine.json"
    machine_of().save(path)

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sealing, "sync", full)
    with pytest.raises(OSError, match="No space left"):
        machine_of().model_copy(update={"processor": "another"}).save(path)
    assert read_machine(path) == machine_of()


def test_a_bad_calibration_names_file_and_field(tmp_path):
    path = tmp_path / "machine.json"
    machine_of().save(path)
    content = json.loads(path.read_text())
    content["host"]["bytes_per_second"] = -1.0
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"machine\.json: host\.bytes_per_second"):
        read_machine(path)
    for field, value in (("caches", []), ("caches", [2e6, 1e6]), ("socket_byte", 1e308)):
        path.write_text(json.dumps(machine_of().model_dump() | {field: value}))
        with pytest.raises(InputError, match=rf"machine\.json: {field}"):
            read_machine(path)
    content["format_version"] = 0
    path.write_text(json.dumps(content))
    with pytest.raises(
        InputError, match=r"machine\.json: format_version: expected at least 1, got 0"
    ):
        read_machine(path)
    with pytest.raises(InputError, match="expected a calibration, got No such file"):
        read_machine(tmp_path / "none.json")


def test_an_optimizer_that_was_not_measured_is_refused():
    with pytest.raises(InputError, match="optimizer: expected one of rowwise_adagrad"):
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
    assert ships.origin == (
        f"costs that ship, of {ships.processor}; `embershard calibrate` measures this machine"
    )
    own = machine_of().model_copy(update={"sources": {"host": "of NVIDIA H100 SXM: 370 GB/s"}})
    assert own.origin == "costs of test"
    assert machine_of().origin == "costs of test"
