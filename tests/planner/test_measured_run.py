import json

import pytest

from embershard.cli import main
from embershard.errors import InputError
from embershard.planner import MeasuredRun, compare, read_machine, recalibrate
from embershard.planner.machine import Kernel, Link, Machine, RowCost
from embershard.planner.measured_run import RankSeconds, StepSeconds
from embershard.planner.served_devices import Comparison, DeviceComparison, read_batches
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
        costs=machine().digest,
    ).save(tmp_path)
    return tmp_path


def test_factors_are_those_of_all_ranks_together(run):
    found = compare(run)
    assert found.lookup_factor == pytest.approx(2.0)
    assert found.update_factor == pytest.approx(0.5)
    text = found.to_text()
    assert "lookups 2.00, updates 0.50" in text
    assert "| 1 | 5.000 | 3.000 | 1.000 | 2.000 |" in text
    assert text.endswith("10.000 CPU ms, estimate 8.000: measured / estimated 1.25\n")


def test_costs_that_are_far_off_are_told_how_to_replace(run):
    far = StepSeconds(estimated=8e-3, measured=2e-2)
    text = compare(run).model_copy(update={"step": far}).to_text()
    assert "measured / estimated 2.50\n" in text
    assert "`embershard plan --compare FOLDER --recalibrate NEW` learns from this run\n" in text


def test_recalibration_scales_the_costs_of_the_optimizer_alone(run):
    found = recalibrate(run, machine())
    assert found.kernels["adagrad"] == KERNEL
    kernel = found.kernels["sgd"]
    assert kernel.forward == RowCost(start=2e-4, id=2e-8, id_byte=0, bag=0, bag_byte=4e-11)
    assert kernel.backward.id == pytest.approx(5e-9)


def test_recalibration_refuses_other_costs_than_those_of_the_plan(run):
    other = machine().model_copy(update={"caches": (2.0,)})
    with pytest.raises(InputError, match=r"was planned by .*, got costs of test$"):
        recalibrate(run, other)


def test_measurements_of_an_earlier_version_are_not_held_to_costs(run):
    content = json.loads((run / "sharding.json").read_text())
    del content["costs"]
    (run / "sharding.json").write_text(json.dumps(content))
    assert recalibrate(run, machine()).kernels["adagrad"] == KERNEL


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


@pytest.mark.parametrize("measured", [0.0, 1e6])
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
    assert f"{after}: costs of sgd: lookups times 2.000, updates times 0.500\n" in said
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


@cases(
    ("measured", "hint"),
    {
        "half": (0.5, None),
        "twice": (2.0, None),
        "an-eighth": (0.125, "0.12"),
        "two-and-a-half": (2.5, "2.50"),
    },
)
def test_lookups_of_a_server_far_from_the_estimate_name_what_fits(measured, hint):
    device = DeviceComparison(device="cpu:0", measured_seconds=measured, estimated_seconds=1.0)
    found = Comparison(plan="default", examples=8.0, batches=10.0, devices=[device])
    words = (
        f"in all measured / estimated {hint}: costs of other tables or another machine. "
        "`--recalibrate FILE` writes costs that fit, `embershard calibrate` measures this machine\n"
    )
    assert found.to_text().endswith(words) is (hint is not None)
    assert ("--recalibrate" in found.to_text()) is (hint is not None)
