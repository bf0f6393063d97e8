import json

import numpy as np
import pytest

from embershard.cli import main
from embershard.errors import InputError
from embershard.planner import MeasuredRun, Topology, compare, read_machine, recalibrate
from embershard.planner.machine import Kernel, Link, Machine, RowCost, TableFactors
from embershard.planner.measured_run import RankSeconds, StepSeconds, measured_tables
from embershard.planner.served_devices import read_batches
from tests.cases import cases

COST = RowCost(start=1e-4, id=1e-8, id_byte=0, bag=0, bag_byte=2e-11)
KERNEL = Kernel(forward=COST, backward=COST)


def machine():
    link = Link(latency_seconds=0, bytes_per_second=1)
    return Machine(
        processor="test",
        versions={},
        caches=(1.0,),
        kernels={"sgd": KERNEL, "adagrad": KERNEL},
        host=link,
        network=link,
    )


def seconds(*pairs):
    return tuple(RankSeconds(lookup=lookup, update=update) for lookup, update in pairs)


@pytest.fixture
def run(tmp_path):
    MeasuredRun(
        optimizer="sgd",
        steps=10,
        estimated=seconds((1e-3, 2e-3), (3e-3, 2e-3)),
        measured=seconds((3e-3, 1e-3), (5e-3, 1e-3)),
        step=StepSeconds(estimated=8e-3, measured=1e-2),
    ).save(tmp_path)
    return tmp_path


def test_factors_are_those_of_all_ranks_together(run):
    found = compare(run)
    assert found.lookup_factor == pytest.approx(2.0)
    assert found.update_factor == pytest.approx(0.5)
    text = found.to_text()
    assert "lookups 2.00, updates 0.50" in text
    assert "| 1 | 5.000 | 3.000 | 1.000 | 2.000 |" in text
    assert "10.000 CPU ms, estimate 8.000: measured / estimated 1.25" in text


def test_recalibration_scales_the_costs_of_the_optimizer_alone(run):
    found = recalibrate(run, machine())
    assert found.kernels["adagrad"] == KERNEL
    kernel = found.kernels["sgd"]
    assert kernel.forward == RowCost(start=2e-4, id=2e-8, id_byte=0, bag=0, bag_byte=4e-11)
    assert kernel.backward.id == pytest.approx(5e-9)


def test_recalibration_learns_each_table(run):
    estimated, measured = {"sparse.a": np.array([1e-3, 2e-3])}, {"sparse.a": np.array([3e-3, 5e-4])}
    tables = measured_tables(estimated, [measured, measured, {"of another plan": np.ones(2)}])
    compare(run).model_copy(update={"tables": tables}).save(run)
    assert "| sparse.a | 6.000 | 1.000 | 1.000 | 2.000 |" in compare(run).to_text()
    before = machine().model_copy(
        update={
            "tables": {
                "sparse.a": TableFactors(lookup=0.5, update=2),
                "b": TableFactors(lookup=1, update=3),
            }
        }
    )
    found = recalibrate(run, before)
    # Six times the estimate of lookups, half of that of updates; of all tables 2 and 0.5.
    assert found.factors("sparse.a") == pytest.approx((0.5 * 6 / 2, 2 * 0.5 / 0.5))
    assert found.factors("b") == (1, 3)
    assert found.factors("c") == (1, 1)


def test_a_rank_that_takes_longer_than_its_shards_explain_gets_less(run, capsys):
    found = compare(run)
    # Lookups and updates are measured as 4 ms on rank 0 and 6 on rank 1; messages are 1 ms.
    estimated = tuple(
        each.model_copy(update={"step": each.lookup + each.update + 1e-3})
        for each in found.estimated
    )
    measured = tuple(
        each.model_copy(update={"step": step})
        for each, step in zip(found.measured, (1e-2, 1.3e-2), strict=True)
    )
    found.model_copy(update={"estimated": estimated, "measured": measured}).save(run)
    learned = recalibrate(run, machine())
    # Beside 5 and 7 ms rank 1 takes 1 ms more than rank 0.
    assert learned.speeds == pytest.approx((1, 7 / 8))
    assert [each.speed for each in Topology(2, machine=learned).devices] == list(learned.speeds)
    assert {each.speed for each in Topology(3, machine=learned).devices} == {1.0}
    machine().save(run / "before.json")
    told = ["--machine", str(run / "before.json"), "--recalibrate", str(run / "after.json")]
    assert main(["plan", "--compare", str(run), *told]) == 0
    assert "; speeds of ranks 1.000, 0.875\n" in capsys.readouterr().out


def test_a_rank_without_shards_has_the_speed_of_the_machine(run):
    found = compare(run)
    nothing = RankSeconds(lookup=0, update=0)
    estimated = found.estimated[0].model_copy(update={"step": 4e-3}), nothing
    measured = (
        found.measured[0].model_copy(update={"step": 1.6e-2}),
        nothing.model_copy(update={"step": 1e-2}),
    )
    # 1 ms of messages, 4 of lookups and updates, and 11 besides, where rank 1 has 10.
    known = found.model_copy(update={"estimated": estimated, "measured": measured})
    assert known.speeds == pytest.approx((5 / 6, 1))


def test_a_run_that_knows_no_speeds_keeps_those_of_the_machine(run):
    before = machine().model_copy(update={"speeds": (1.0, 0.5)})
    assert recalibrate(run, before).speeds == (1, 0.5)


def test_a_table_becomes_no_more_than_8_times_as_expensive_or_as_cheap(run):
    tables = measured_tables({"a": np.array([1e-3, 1e-3])}, [{"a": np.array([0.1, 1e-5])}])
    compare(run).model_copy(update={"tables": tables}).save(run)
    assert recalibrate(run, machine()).factors("a") == (8, 1 / 8)


def test_a_table_that_was_too_short_to_time_keeps_its_costs(run):
    tables = measured_tables({"a": np.array([1e-9, 2e-9])}, [{"a": np.array([0, 1e-9])}])
    compare(run).model_copy(update={"tables": tables}).save(run)
    assert recalibrate(run, machine()).tables == {}


def test_a_run_without_measurements_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"sharding\.json: expected the measurements of a run"):
        compare(tmp_path)


def test_measurements_of_other_ranks_are_refused(run):
    content = json.loads((run / "sharding.json").read_text())
    content["measured"].pop()
    (run / "sharding.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="measured: expected 2 ranks, got 1"):
        compare(run)


def test_damaged_measurements_name_file_and_field(run):
    content = json.loads((run / "sharding.json").read_text())
    content["measured"][0]["lookup"] = -1
    (run / "sharding.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"sharding\.json: measured"):
        compare(run)


@pytest.mark.parametrize("measured", [0.0, 1e300])
def test_measurements_that_explain_no_costs_are_refused(run, measured):
    content = json.loads((run / "sharding.json").read_text())
    for rank in content["measured"]:
        rank["lookup"] = measured
    (run / "sharding.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="expected measured over estimated seconds of 1e-06"):
        recalibrate(run, machine())


@pytest.mark.parametrize("number", ["NaN", "-5", "+Inf"])
def test_metrics_that_are_no_sums_are_refused(number):
    labels = '{model="m",version="1",device="cpu:0"}'
    text = (
        f"embershard_device_lookup_seconds_total{labels} {number}\n"
        f"embershard_batch_examples_count{labels} 1\n"
    )
    with pytest.raises(InputError, match=r"metrics: expected sums of 0 \.\. 1e\+15"):
        read_batches(text, model="m", version=1, source="metrics")


def test_the_command_compares_and_recalibrates_a_run(run, tmp_path, capsys):
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    machine().save(before)
    told = ["--compare", str(run), "--machine", str(before), "--recalibrate", str(after)]
    assert main(["plan", *told]) == 0
    said = capsys.readouterr().out
    assert compare(run).to_text() in said
    assert f"{after}: costs of sgd: lookups times 2.000, updates times 0.500; factors of 0" in said
    assert read_machine(after).kernels == recalibrate(run, machine()).kernels


@cases(
    ("asked", "words"),
    {
        "package": (["pkg"], "expected no package with the folder of a run, got pkg"),
        "plan": (["--devices", "2xcpu"], "--devices: expected no --compare"),
        "name": (["--name", "x"], "--name: expected no --compare"),
    },
)
def test_options_of_a_package_do_not_fit_a_run(run, capsys, asked, words):
    assert main(["plan", *asked, "--compare", str(run)]) == 1
    assert words in capsys.readouterr().err


def test_a_plan_is_of_a_package_or_a_run(capsys):
    assert main(["plan", "--devices", "2xcpu"]) == 1
    words = "plan: expected a package, or --compare with the folder of a run, got "
    assert f"{words}neither" in capsys.readouterr().err
    assert main(["plan", "--compare", "nowhere"]) == 1
    assert f"{words}--compare nowhere, no folder" in capsys.readouterr().err
