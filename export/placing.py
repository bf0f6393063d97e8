"""The plan of a package that is being written."""

from __future__ import annotations

from collections.abc import Sequence

from embershard.errors import InputError
from embershard.package.manifest import FORMAT_VERSION, TableSpec
from embershard.package.manifest_inputs import InputSpec, SparseInputSpec
from embershard.package.placement import STRATEGIES
from embershard.package.plan import Plan
from embershard.package.samples import SampleRequest
from embershard.planner import Fleet, check_memory, load_of, plan_package, serving_problem
from embershard.planner.default_machine import default_machine

NAME = "default"
AUTO = "auto"


def check_strategy(strategy: str) -> None:
    """Whether ``place`` knows it."""
    known = [*STRATEGIES, AUTO]
    if strategy not in known:
        raise InputError(f"plan: expected one of {', '.join(known)}, got {strategy!r}")


def place(
    tables: Sequence[TableSpec],
    inputs: Sequence[InputSpec],
    samples: Sequence[SampleRequest],
    fleet: Fleet,
    *,
    strategy: str,
) -> Plan:
    """The package's default plan, by one of ``STRATEGIES``, or ``auto``: by what the samples look
    up. `InputError`: the tables do not fit the fleet."""
    if strategy == AUTO:
        sparse = [each for each in inputs if isinstance(each, SparseInputSpec)]
        load = load_of(tables, sparse, samples, source="the samples")
        machine = default_machine(fleet.kind, fleet.memory_bytes or 0)
        return plan_package(serving_problem(tables, fleet, load, machine), name=NAME)
    shards = tuple(STRATEGIES[strategy](tables, fleet.devices))
    plan = Plan(format_version=FORMAT_VERSION, name=NAME, devices=fleet.devices, shards=shards)
    check_memory(plan, tables, fleet)
    return plan
