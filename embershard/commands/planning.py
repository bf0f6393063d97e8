"""`embershard plan` and `embershard calibrate`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embershard.commands.packages import add_package, package_folder
from embershard.errors import InputError

if TYPE_CHECKING:
    from embershard.package import Package, Plan

__all__ = ["add_calibrate", "add_plan_command"]


def add_calibrate(commands: Any) -> None:
    """Adds `calibrate` to the commands of a parser."""
    command = commands.add_parser(
        "calibrate",
        help="measure this machine for the planner of sharded training",
        description="Measures lookups, updates and messages of this machine, on one core and in "
        "under two minutes when it is idle, and writes what they cost, for "
        "`Topology(machine=read_machine(FILE))`.",
    )
    command.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="JSON; replaced if it is there"
    )
    command.set_defaults(run=_calibrate)


def _calibrate(given: argparse.Namespace) -> None:
    from embershard.planner import calibrate

    if not given.out.parent.is_dir():
        raise InputError(f"--out: expected a file in a folder, got {given.out}")
    started = time.monotonic()
    machine = calibrate(progress=lambda text: print(text, file=sys.stderr, flush=True))
    machine.save(given.out)
    print(
        f"{given.out}: {machine.processor}, in {time.monotonic() - started:.0f} s; "
        f"two measurements differ by {machine.repeat_error:.0%}, costs from a measurement by "
        f"{machine.fit_error:.0%}"
    )


def add_plan_command(commands: Any) -> None:
    """Adds `plan` to the commands of a parser."""
    command = commands.add_parser(
        "plan",
        help="add a plan to a package: which part of which table lies on which device",
        description="Adds a plan to a package, whole or not at all. `embershard serve --plan NAME` "
        "serves it; scores stay the same, up to rounding where rows are cut.",
    )
    add_package(command)
    command.add_argument(
        "--devices",
        required=True,
        metavar="DEVICES",
        help="how many, of what kind: 4xcpu; the threads of a batch are shared out among them",
    )
    command.add_argument(
        "--strategy",
        default="auto",
        metavar="STRATEGY",
        help="table (whole tables), row, column (each table cut), replicate (each table "
        "everywhere) or auto (the default: by the bytes that lookups read)",
    )
    command.add_argument("--name", required=True, metavar="NAME", help="of the plan: a new one")
    command.add_argument(
        "--default", action="store_true", help="serve it where no other plan is asked for"
    )
    command.set_defaults(run=_plan)


def _plan(given: argparse.Namespace) -> None:
    from embershard.package import Package, add_plan, make_plan, parse_devices
    from embershard.package.plan import unserved_devices

    folder = package_folder(given.package)
    plan = make_plan(
        Package.open(folder),
        parse_devices(given.devices),
        name=given.name,
        strategy=given.strategy,
    )
    add_plan(folder, plan, default=given.default)
    by_default = ", by default" if given.default else ""
    print(
        f"{folder}: plan {plan.name}: {len(plan.shards)} shards on {len(plan.devices)} devices"
        f"{by_default}"
    )
    print("\n".join(_device_lines(Package.open(folder), plan)))
    if unserved := unserved_devices(plan):
        print(
            f"embershard plan: warning: plan {plan.name} is for {unserved[0]}: servers of this "
            "version have cpu devices only, and refuse it",
            file=sys.stderr,
        )


def _device_lines(package: Package, plan: Plan) -> list[str]:
    """What each device holds, and its share of the bytes that lookups read."""
    from embershard.package.placement import device_bytes, device_load, ids_of_tables

    tables = package.manifest.tables
    held = device_bytes(plan, tables)
    load = device_load(plan, tables, ids_of_tables(package))
    shares = ["" if load is None else f"  {share:6.1%} of the load" for share in load or held]
    return [
        f"  {name:<7} {size / 1e6:12,.3f} MB{share}"
        for name, size, share in zip(plan.devices, held, shares, strict=True)
    ]
