import json

import pytest

from embershard.cli import main
from embershard.errors import InputError
from embershard.planner import MeasuredRun, compare
from embershard.planner.comparison import (
    Comparison,
    DeviceComparison,
    RankSeconds,
    StepSeconds,
    read_batches,
)
from tests.cases import cases, refused


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
    comparison = compare(run)
    assert comparison.lookup_factor == pytest.approx(2.0)
    assert comparison.update_factor == pytest.approx(0.5)
    text = comparison.to_text()
    assert "lookups 2.00, updates 0.50" in text
    assert "| 1 | 5.000 | 3.000 | 1.000 | 2.000 |" in text
    assert text.endswith("10.000 CPU ms, estimate 8.000: measured / estimated 1.25\n")


def test_costs_that_are_far_off_are_told_how_to_replace(run):
    far = StepSeconds(estimated=8e-3, measured=2e-2)
    text = compare(run).model_copy(update={"step": far}).to_text()
    assert "measured / estimated 2.50\n" in text
    assert "`embershard calibrate`" in text


def test_a_run_without_measurements_is_refused(tmp_path):
    with refused(InputError, "sharding.json"):
        compare(tmp_path)


@cases(
    ("measured", "parts"),
    {
        "ranks": ([{"lookup": 1, "update": 1}], ["measured", "2 ranks, got 1"]),
        "field": ([{"lookup": -1, "update": 1}] * 2, ["sharding.json: measured.0.lookup"]),
    },
)
def test_measurements_that_cannot_be_compared_are_refused(run, measured, parts):
    content = json.loads((run / "sharding.json").read_text())
    (run / "sharding.json").write_text(json.dumps(content | {"measured": measured}))
    with refused(InputError, *parts):
        compare(run)


@pytest.mark.parametrize("number", ["NaN", "-5", "+Inf"])
def test_metrics_that_are_no_sums_are_refused(number):
    labels = '{model="m",version="1",device="cpu:0"}'
    text = (
        f"embershard_device_lookup_seconds_total{labels} {number}\n"
        f"embershard_batch_examples_count{labels} 1\n"
    )
    with refused(InputError, "metrics: expected sums"):
        read_batches(text, model="m", version=1, source="metrics")


def test_the_command_prints_the_estimates_beside_a_run(run, capsys):
    assert main(["plan", "--compare", str(run)]) == 0
    assert capsys.readouterr().out == compare(run).to_text()


@cases(
    ("arguments", "words"),
    {
        "package": (["pkg", "--compare", "RUN"], "plan: expected no package"),
        "plan": (["--devices", "2xcpu", "--compare", "RUN"], "--devices: expected no --compare"),
        "name": (["--name", "x", "--compare", "RUN"], "--name: expected no --compare"),
        "machine": (["--machine", "m.json", "--compare", "RUN"], "--machine: expected no"),
        "neither": (["--devices", "2xcpu"], "got neither"),
        "no folder": (["--compare", "nowhere"], "got --compare nowhere"),
    },
)
def test_a_plan_is_of_a_package_or_a_run(run, capsys, arguments, words):
    assert (
        main(["plan", *(str(run) if argument == "RUN" else argument for argument in arguments)])
        == 1
    )
    assert words in capsys.readouterr().err


@cases(
    ("measured", "hint"),
    {
        "half": (0.5, None),
        "twice": (2.0, None),
        "an-eighth": (0.125, "0.12"),
        "two-and-a-half": (2.5, "2.50"),
    },
)
def test_lookups_far_from_the_estimate_name_what_fits(measured, hint):
    device = DeviceComparison(device="cpu:0", measured_seconds=measured, estimated_seconds=1.0)
    comparison = Comparison(plan="default", examples=8.0, batches=10.0, devices=[device])
    assert (f"all devices: measured / estimated {hint}: " in comparison.to_text()) is bool(hint)
    assert ("calibrate" in comparison.to_text()) is (hint is not None)
