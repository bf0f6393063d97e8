"""The default plan that an export writes."""

import pytest

from embershard.errors import InputError
from embershard.export.exporter import check_strategy, make_default_plan
from embershard.package import STRATEGIES, Package
from embershard.planner import load_of, parse_fleet, plan_package, serving_problem
from embershard.planner.machine import default_machine
from tests.cases import refused
from tests.hostile.draft import GOLDEN

PACKAGE = Package.open(GOLDEN)


def placed(devices, strategy):
    manifest = PACKAGE.manifest
    return make_default_plan(
        manifest.tables, manifest.inputs, PACKAGE.samples(), parse_fleet(devices), strategy=strategy
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_rule_places_as_the_command_does(strategy):
    plan = placed("2xcpu", strategy)
    assert plan.name == "default"
    assert list(plan.shards) == [*STRATEGIES[strategy](PACKAGE.manifest.tables, plan.devices)]


def test_auto_is_the_planner_with_the_load_of_the_samples():
    manifest, fleet = PACKAGE.manifest, parse_fleet("2xcpu:4KiB")
    load = load_of(manifest.tables, manifest.sparse, PACKAGE.samples(), source="samples")
    problem = serving_problem(manifest.tables, fleet, load, default_machine())
    assert placed("2xcpu:4KiB", "auto") == plan_package(problem, name="default")


def test_a_rule_that_goes_over_the_memory_is_refused():
    with refused(InputError, "device cpu:0:", "10 bytes", "the strategy auto"):
        placed("1xcpu:10B", "table")


def test_an_unknown_strategy_is_refused():
    with refused(InputError, "plan:", "got 'rows'"):
        check_strategy("rows")
