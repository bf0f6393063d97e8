"""The command `embershard plan`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embershard.commands.packages import add_package, check_folder, package_folder
from embershard.errors import InputError

if TYPE_CHECKING:
    from embershard.package import Package, Plan
    from embershard.planner import Fleet, LookupLoad, Machine

AUTO = "auto"
BATCH_EXAMPLES = 256


def add_plan_command(commands: Any) -> None:
    command = commands.add_parser(
        "plan",
        help="add a plan to a package, which places its tables on devices",
        description="Adds a plan to a package atomically. `embershard serve --plan NAME` uses it. "
        "Scores stay the same, except for rounding if a table is cut by rows.",
    )
    add_package(command, optional=True)
    add = command.add_argument
    add(
        "--devices",
        metavar="DEVICES",
        help="number, kind and memory of devices, such as 4xcpu, 2xcpu:8GiB or 8xcuda:80GB. "
        "Without a size, the memory of cpu devices is not limited. The threads of a batch are "
        "divided among them. 1xtorch-cpu tests a plan for a GPU on a machine without one",
    )
    add(
        "--strategy",
        default=AUTO,
        metavar="STRATEGY",
        help="table (whole tables), row or column (every table is cut), replicate (every table on "
        "every device), or auto, from measured costs and load (default: %(default)s)",
    )
    add("--name", metavar="NAME", help="name of the new plan (default: the devices, as in 4xcpu)")
    add("--default", action="store_true", help="make it the plan that servers use by default")
    add("--dry-run", action="store_true", help="print the plan without changing the package")
    _add_measured(command)
    _add_compared(command)
    command.set_defaults(run=_plan)


def _add_measured(command: argparse.ArgumentParser) -> None:
    measured = command.add_argument_group("load and costs of --strategy auto")
    measured.add_argument(
        "--samples",
        type=Path,
        metavar="FILE",
        help="file of requests in the format of samples.safetensors, whose lookups are the load "
        "(default: the package's samples)",
    )
    measured.add_argument(
        "--requests",
        type=Path,
        metavar="FILE",
        help="file of requests from `embershard serve --record`, instead of --samples",
    )
    measured.add_argument(
        "--batch-examples",
        type=int,
        metavar="N",
        help=f"examples in the batch whose time is minimized (default: {BATCH_EXAMPLES})",
    )
    measured.add_argument(
        "--machine",
        type=Path,
        metavar="FILE",
        help="file of `embershard calibrate` (default: the built-in costs)",
    )
    measured.add_argument(
        "--constraint",
        action="append",
        default=[],
        metavar="TABLE=CUT,CUT",
        help="allowed cuts of a table: table, column, row, replicate; may be repeated",
    )
    shown = command.add_argument_group("report of --strategy auto")
    shown.add_argument("--report", type=Path, metavar="FILE.html", help="file for the report")
    shown.add_argument("--explain", metavar="TABLE", help="print all cuts of this table")


def _add_compared(command: argparse.ArgumentParser) -> None:
    compared = command.add_argument_group("comparison with measurements, instead of a new plan")
    compared.add_argument(
        "--compare",
        metavar="HOST:PORT|RUN",
        help="compare measured times with the estimate. HOST:PORT of `embershard serve "
        "--metrics-port`, or a file with its metrics: the lookups of each device; --name is the "
        "plan that the server uses. RUN, the checkpoint folder of training with sharding.plan = "
        '"auto": the step of each rank; takes no package',
    )


def _plan(args: argparse.Namespace) -> None:
    from embershard.package import STRATEGIES, Package, add_plan, make_plan
    from embershard.planner import check_memory, parse_fleet
    from embershard.planner.fleet import without_reserve

    if args.compare is not None:
        _compare(args)
        return
    if args.package is None:
        raise InputError(
            "plan: expected a package, or --compare with the folder of a run, got neither"
        )
    folder = package_folder(args.package)
    if args.devices is None:
        raise InputError("plan: expected --devices, or --compare, got neither")
    fleet = parse_fleet(args.devices)
    package = Package.open(folder)
    name = fleet.name if args.name is None else args.name
    if args.strategy not in {AUTO, *STRATEGIES}:
        raise InputError(
            f"--strategy: expected one of {', '.join([*STRATEGIES, AUTO])}, got {args.strategy!r}"
        )
    if args.strategy == AUTO:
        plan, text = _auto_plan(args, package, fleet, name)
    else:
        problem = f"expected --strategy auto, got --strategy {args.strategy}"
        _refuse(args, ONLY_AUTO, problem)
        plan = make_plan(package, fleet.devices, name=name, strategy=args.strategy)
        fleet = without_reserve(fleet, package.manifest, _load(args, package), BATCH_EXAMPLES)
        check_memory(plan, package.manifest.tables, fleet)
        text = "\n".join(_device_lines(package, plan)) + "\n"
    if not args.dry_run:
        add_plan(folder, plan, default=args.default)
    default = ", the default" if args.default else ""
    dry_run = "; not added" if args.dry_run else ""
    print(
        f"{folder}: plan {plan.name}: {len(plan.shards)} shards on {len(plan.devices)} devices"
        f"{default}{dry_run}"
    )
    print(text, end="")


REPORTED = ("constraint", "report", "explain")
ONLY_AUTO = ("samples", "requests", "batch_examples", "machine", *REPORTED)
NOT_COMPARED = ("devices", "batch_examples", *REPORTED, "default", "dry_run")


def _refuse(args: argparse.Namespace, options: Sequence[str], problem: str) -> None:
    for option in options:
        value = getattr(args, option)
        if not (value is None or value is False or value == []):
            raise InputError(f"--{option.replace('_', '-')}: {problem}")


def _compare(args: argparse.Namespace) -> None:
    """A comparison with a server needs a package, one with a training run takes none."""
    from embershard.commands.calibrate import compare
    from embershard.package import Package
    from embershard.planner import compare as compare_run

    is_run = Path(args.compare).is_dir()
    if is_run and args.package is not None:
        raise InputError(
            f"plan: expected no package with the folder of a run, got {args.package} with "
            f"--compare {args.compare}"
        )
    if not is_run and args.package is None:
        raise InputError(
            "plan: expected a package, or --compare with the folder of a run, got "
            f"--compare {args.compare}, which is not a folder"
        )
    folder = None if is_run else package_folder(args.package)
    without = (*NOT_COMPARED, *(("name", "samples", "requests", "machine") if is_run else ()))
    _refuse(args, without, f"expected no --compare, got --compare {args.compare}")
    if folder is None:
        print(compare_run(args.compare).to_text(), end="")
        return
    machine, warnings = _machine(args, None)
    _warn(*warnings)
    package = Package.open(folder)
    print(compare(args, package, _load(args, package), machine), end="")


def _machine(args: argparse.Namespace, fleet: Fleet | None) -> tuple[Machine, list[str]]:
    """The costs of the fleet's devices, or of CPUs if it is None; and warnings about the costs."""
    from embershard.planner import read_machine
    from embershard.planner.machine import default_machine

    kind, memory = ("cpu", 0) if fleet is None else (fleet.kind, fleet.memory_bytes or 0)
    machine, warnings = default_machine(kind, memory), list[str]()
    if args.machine is not None:
        machine = read_machine(args.machine)
        if mismatch := machine.mismatch(kind):
            warnings.append(f"{args.machine}: {mismatch}")
    if kind != "cpu":
        where = repr(machine.processor) if kind == "cuda" else kind
        warnings.append(f"costs of a server's lookups on {where} are not measured")
    return machine, warnings


def _warn(*warnings: str) -> None:
    for warning in warnings:
        print(f"embershard plan: warning: {warning}", file=sys.stderr)


def _auto_plan(
    args: argparse.Namespace, package: Package, fleet: Fleet, name: str
) -> tuple[Plan, str]:
    from embershard.planner import explained_plan, parse_constraints, serving_problem
    from embershard.planner.fleet import without_reserve

    check_folder("--report", args.report)
    machine, warnings = _machine(args, fleet)
    if args.samples is None and args.requests is None:
        warnings.append(
            f"the load is that of the package's {len(package.samples()):,} samples, which are "
            "random unless the export was given samples; pass --requests or --samples"
        )
    load = _load(args, package)
    examples = BATCH_EXAMPLES if args.batch_examples is None else args.batch_examples
    problem = serving_problem(
        package.manifest.tables,
        fleet,
        load,
        machine,
        batch_examples=examples,
        constraints=parse_constraints(args.constraint),
    )
    fleet = without_reserve(fleet, package.manifest, load, examples)
    problem = replace(problem, fleet=fleet)
    result = explained_plan(problem, name=name, warnings=warnings)
    text = f"load of {load.source}\n{result.report.to_text()}"
    if args.explain is not None:
        text += f"\n{result.report.explain(args.explain)}"
    if args.report is not None:
        manifest = package.manifest
        title = f"Plan {name} of {manifest.model} {manifest.version}"
        args.report.write_text(result.report.to_html(title=title), encoding="utf-8")
        text += f"report: {args.report}\n"
    return result.plan, text


def _load(args: argparse.Namespace, package: Package) -> LookupLoad:
    from embershard.package import read_samples
    from embershard.package.samples import check_samples
    from embershard.planner import load_of

    manifest = package.manifest
    if args.samples is not None and args.requests is not None:
        raise InputError("plan: expected --samples or --requests, got both")
    if args.requests is not None:
        from embershard.bench.recording import recorded_samples

        samples, source = recorded_samples(args.requests, manifest), str(args.requests)
    elif args.samples is not None:
        if not args.samples.is_file():
            raise InputError(f"--samples: expected a file, got {args.samples}")
        samples, source = read_samples(args.samples, file=str(args.samples)), str(args.samples)
        check_samples(samples, manifest, file=source, outputs=False)
    else:
        samples, source = package.samples(), "the package's samples"
    return load_of(
        manifest.tables, manifest.sparse, samples, source=f"{source}, {len(samples):,} requests"
    )


def _device_lines(package: Package, plan: Plan) -> list[str]:
    from embershard.package.placement import device_bytes, device_load, ids_of_tables

    tables = package.manifest.tables
    held = device_bytes(plan, tables)
    load = device_load(plan, tables, ids_of_tables(package))
    shares = ["" if load is None else f"  {share:6.1%} of the load" for share in load or held]
    return [
        f"  {name:<7} {size / 1e6:12,.3f} MB{share}"
        for name, size, share in zip(plan.devices, held, shares, strict=True)
    ]
