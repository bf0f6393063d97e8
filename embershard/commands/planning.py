"""`embershard plan`."""

from __future__ import annotations

import argparse
from typing import Any

from embershard.commands.packages import add_package, package_folder

__all__ = ["add_plan_command"]


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
        help="how many, of what kind: 4xcpu; each gets threads of its own",
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
    from embershard.package import Package, add_plan, ids_of_tables, make_plan, parse_devices

    folder = package_folder(given.package)
    package = Package.open(folder)
    plan = make_plan(
        package.manifest.tables,
        parse_devices(given.devices),
        name=given.name,
        strategy=given.strategy,
        ids=ids_of_tables(package) if given.strategy == "auto" else {},
    )
    add_plan(folder, plan, default=given.default)
    by_default = ", by default" if given.default else ""
    print(
        f"{folder}: plan {plan.name}: {len(plan.shards)} shards on {len(plan.devices)} devices"
        f"{by_default}"
    )
