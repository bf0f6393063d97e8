"""`calibrate` with small tables and few messages, and costs that are fitted to measurements."""

from functools import partial

import numpy as np
import pytest

from embershard.planner import (
    EmbeddingShardingPlanner,
    Topology,
    calibrate,
    calibration,
    measurements,
    read_machine,
)
from embershard.planner.calibration import fit, fit_exchange
from embershard.planner.link import measure_link
from embershard.planner.machine import MissCost, RowCost, processor_name
from embershard.planner.measurements import Measured
from embershard.serving.local import lookup_seconds
from tests.cases import cases
from tests.planner.training_cases import model_of, sharders

CASES = ((2, 8, 1), (4, 8, 4), (2, 32, 4), (4, 16, 1))


@pytest.fixture
def small(monkeypatch):
    cpu = measurements.CPU._replace(table_bytes=(1 << 18, 1 << 20), ids=1 << 11)
    for module, name, value in (
        (measurements, "CPU", cpu),
        (measurements, "DIMS", (8, 16)),
        (measurements, "REPEATS", 1),
        (measurements, "TABLE_BYTES", (1 << 16, 1 << 18)),
        (measurements, "SIZES", ((1, 256), (8, 64))),
        (measurements, "LOOKUP_REPEATS", 1),
        (calibration, "measure_link", partial(measure_link, CASES, blocks=3)),
    ):
        monkeypatch.setattr(module, name, value)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_this_machine_is_measured_and_plans_by_it(small, tmp_path):
    messages = []
    machine = calibrate(lookup_seconds=lookup_seconds, progress=messages.append)
    assert machine.processor == processor_name()
    assert machine.mismatch() is None
    assert machine.origin == f"costs of {processor_name()}"
    assert [message for message in messages if "updates" in message] == [
        f"lookups and updates, {name}" for name in ("rowwise_adagrad", "adagrad", "sgd")
    ]
    for kernel in machine.kernels.values():
        for cost, rows in ((kernel.forward, None), (kernel.backward, 1e3)):
            assert cost.start + cost.seconds(ids=1e4, bags=1e3, row_bytes=64, rows=rows) > 0
    assert set(machine.lookups) == {"int8", "int4", "fp16", "fp32"}
    for cost in (*machine.lookups.values(), machine.exchange, machine.batch):
        assert cost.start + cost.seconds(ids=1e4, bags=1e3, row_bytes=64) > 0
    assert machine.socket_byte > 0
    assert machine.calibration_seconds > 0
    machine.save(tmp_path / "machine.json")
    assert read_machine(tmp_path / "machine.json") == machine
    planner = EmbeddingShardingPlanner(Topology(2, machine=machine), 64)
    plan = planner.plan(model_of((1000, 64), (2000, 32)), sharders())
    assert set(plan.plan["sparse"]) == {"t0", "t1"}


@cases(
    ("cost", "shares", "missed"),
    {
        "ids and bags": (
            RowCost(start=1e-4, id=1e-8, id_byte=2e-11, bag=3e-9, bag_byte=0),
            (0,),
            ((),),
        ),
        "rows and misses": (
            RowCost(
                start=1e-4,
                id=1e-8,
                id_byte=0,
                bag=3e-9,
                bag_byte=2e-11,
                row=4e-7,
                row_byte=1e-10,
                misses=(MissCost(row=2e-8, row_byte=0), MissCost(row=0, row_byte=3e-10)),
            ),
            (1, 7),
            ((0.0, 0.0), (0.5, 0.0), (0.9, 0.6)),
        ),
    },
)
def test_costs_are_found_again_in_exact_measurements(cost, shares, missed):
    sizes = [
        {"ids": ids, "bags": ids // length, "row_bytes": row_bytes, "missed": shares_missed}
        | ({"rows": ids // share} if share else {})
        for ids in (4096, 16384)
        for length in (1, 8, 32)
        for row_bytes in (64, 256, 1024)
        for share in shares
        for shares_missed in missed
    ]
    seconds = [cost.start + cost.seconds(**size) for size in sizes]
    result, error = fit([Measured(**size) for size in sizes], np.array(seconds))
    assert error < 1e-9
    assert _values(result) == pytest.approx(_values(cost), abs=1e-15)


def _values(cost):
    misses = [seconds for miss in cost.misses for seconds in (miss.row, miss.row_byte)]
    return [cost.start, cost.id, cost.id_byte, cost.bag, cost.bag_byte, cost.row, *misses]


def test_an_exchange_costs_nothing_by_the_bytes_of_rows():
    shapes = [(ids, bags, size) for ids in (10, 300) for bags in (7, 90) for size in (64, 512)]
    measured = [Measured(*shape) for shape in shapes]
    seconds = np.array([ids * (3e-9 + 5e-11 * size) for ids, _, size in shapes])
    assert fit(measured, seconds)[0].id_byte > 0
    assert fit_exchange(measured, seconds)[0].id_byte == 0
