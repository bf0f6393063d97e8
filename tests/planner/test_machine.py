"""Calibrations: fitted to measurements, written, read, and what is refused."""

import json

import numpy as np
import pytest

from embershard.errors import InputError
from embershard.planner import Topology, read_machine
from embershard.planner.fit import Measured, fit, fit_places
from embershard.planner.machine import RowCost
from tests.planner.training_cases import machine_of


def test_costs_are_found_again_in_exact_measurements():
    cost = RowCost(start=1e-4, id=1e-8, id_byte=2e-11, bag=3e-9, bag_byte=0)
    measured = [
        Measured(ids=ids, bags=ids // length, row_bytes=row_bytes)
        for ids in (4096, 16384)
        for length in (1, 8, 32)
        for row_bytes in (64, 256, 1024)
    ]
    seconds = np.array(
        [
            cost.start + cost.seconds(ids=each.ids, bags=each.bags, row_bytes=each.row_bytes)
            for each in measured
        ]
    )
    found, error = fit(measured, seconds)
    assert error < 1e-9
    assert found.model_dump() == pytest.approx(cost.model_dump(), abs=1e-15)


def test_costs_of_distinct_rows_are_found_again_in_exact_measurements():
    common = {"start": 1e-4, "id": 1e-8, "id_byte": 0, "bag": 3e-9, "bag_byte": 2e-11}
    costs = [RowCost(**common, row=4e-7, row_byte=0), RowCost(**common, row=5e-7, row_byte=1e-10)]
    measured = [
        Measured(ids=ids, bags=ids // length, row_bytes=row_bytes, rows=ids // share)
        for ids in (4096, 16384)
        for length in (1, 8, 32)
        for row_bytes in (64, 256, 1024)
        for share in (1, 7)
    ]
    seconds = [
        np.array([cost.start + cost.seconds(**_size(each)) for each in measured]) for cost in costs
    ]
    found, error = fit_places([measured, measured], seconds)
    assert error < 1e-9
    for one, cost in zip(found, costs, strict=True):
        assert one.model_dump() == pytest.approx(cost.model_dump(), abs=1e-15)


def _size(each):
    return {
        "ids": each.ids, "bags": each.bags, "row_bytes": each.row_bytes, "rows": each.rows
    }  # fmt: skip


def test_a_calibration_is_read_back(tmp_path):
    path = tmp_path / "machine.json"
    machine_of().save(path)
    assert read_machine(path) == machine_of()


def test_a_bad_calibration_names_file_and_field(tmp_path):
    path = tmp_path / "machine.json"
    machine_of().save(path)
    content = json.loads(path.read_text())
    content["host"]["bytes_per_second"] = -1.0
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"machine\.json: host\.bytes_per_second"):
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
        cached = kernel.forward_cached.seconds(ids=1e4, bags=1e3, row_bytes=256)
        assert 0 < cached < kernel.forward_memory.seconds(ids=1e4, bags=1e3, row_bytes=256)


def test_costs_that_ship_are_told_from_measured_ones():
    ships = Topology(1).machine
    assert ships.origin == (
        f"costs that ship, of {ships.processor}; `embershard calibrate` measures this machine"
    )
    assert Topology(1, "cuda").machine.origin == "costs of NVIDIA H100 SXM"
    assert machine_of().origin == "costs of test"
