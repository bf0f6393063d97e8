"""`calibrate`, of small tables and few messages."""

from functools import partial

import pytest

from embershard.planner import (
    EmbeddingShardingPlanner,
    Topology,
    calibrate,
    calibration,
    measurements,
    read_machine,
)
from embershard.planner.link import measure_link
from embershard.planner.machine import processor_name
from embershard.serving.local import lookup_seconds
from tests.planner.training_cases import model_of, sharders

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

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


def test_this_machine_is_measured_and_plans_by_it(small, tmp_path):
    said = []
    machine = calibrate(lookup_seconds=lookup_seconds, progress=said.append)
    assert machine.processor == processor_name()
    assert machine.mismatch() is None
    assert machine.origin == f"costs of {processor_name()}"
    assert [each for each in said if "updates" in each] == [
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
