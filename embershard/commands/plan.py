"""`embershard plan`."""

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
        help="add a plan to a package: which part of which table lies on which device",
        description="Adds a plan to a package, whole or not at all. `embershard serve --plan NAME` "
        "serves it; scores stay the same, up to rounding where rows are cut.",
    )
    add_package(command, optional=True)
    add = command.add_argument
    add(
        "--devices",
        metavar="DEVICES",
        help="how many, of what kind, and the memory of each: 4xcpu, 2xcpu:8GiB, 8xcuda:80GB; "
        "without memory, cpu devices have no cap. The threads of a batch are shared out among "
        "them. 1xtorch-cpu tries a plan for a GPU without one",
    )
    add(
        "--strategy",
        default=AUTO,
        metavar="STRATEGY",
        help="table (whole tables), row, column (each table cut), replicate (each table "
        "everywhere) or auto, by measured costs and load (default: %(default)s)",
    )
    add("--name", metavar="NAME", help="of the plan: a new one (default: the devices, as 4xcpu)")
    add("--default", action="store_true", help="serve it where no other plan is asked for")
    add("--dry-run", action="store_true", help="print the plan, and leave the package as it is")
    _add_measured(command)
    _add_compared(command)
    command.set_defaults(run=_plan)


def _add_measured(command: argparse.ArgumentParser) -> None:
    measured = command.add_argument_group("load and costs of --strategy auto")
    measured.add_argument(
        "--samples",
        type=Path,
        metavar="FILE",
        help="requests in the form of a package's samples.safetensors, whose lookups are the load "
        "(default: the package's own samples)",
    )
    measured.add_argument(
        "--requests",
        type=Path,
        metavar="FILE",
        help="what `embershard serve --record` wrote, in place of --samples",
    )
    measured.add_argument(
        "--batch-examples",
        type=int,
        metavar="N",
        help=f"examples of a batch to plan for (default: {BATCH_EXAMPLES})",
    )
    measured.add_argument(
        "--machine",
        type=Path,
        metavar="FILE",
        help="what `embershard calibrate` wrote (default: the costs that ship)",
    )
    measured.add_argument(
        "--constraint",
        action="append",
        default=[],
        metavar="TABLE=CUT,CUT",
        help="cuts that a table may have: table, column, row, replicate; may be repeated",
    )
    shown = command.add_argument_group("report of --strategy auto")
    shown.add_argument("--report", type=Path, metavar="FILE.html", help="write the report there")
    shown.add_argument("--explain", metavar="TABLE", help="print every cut of a table")


def _add_compared(command: argparse.ArgumentParser) -> None:
    closed = command.add_argument_group("comparison with what was measured, in place of a new plan")
    closed.add_argument(
        "--compare",
        metavar="HOST:PORT|RUN",
        help="print measured time beside the estimate. Of a server, the lookups of each device: "
        "where `embershard serve --metrics-port` listens, or a file with what it said; --name says "
        'which plan it serves. Of training with sharding.plan = "auto", the step of each rank: '
        "the run's checkpoint folder, without a package",
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
            f"strategy: expected one of {', '.join([*STRATEGIES, AUTO])}, got {args.strategy!r}"
        )
    if args.strategy == AUTO:
        plan, text = _explained(args, package, fleet, name)
    else:
        wanted = f"expected --strategy auto, got --strategy {args.strategy}"
        _refuse(args, ONLY_AUTO, wanted)
        plan = make_plan(package, fleet.devices, name=name, strategy=args.strategy)
        fleet = without_reserve(fleet, package.manifest, _load(args, package), BATCH_EXAMPLES)
        check_memory(plan, package.manifest.tables, fleet)
        text = "\n".join(_device_lines(package, plan)) + "\n"
    if not args.dry_run:
        add_plan(folder, plan, default=args.default)
    by_default = ", by default" if args.default else ""
    kept = "; not added" if args.dry_run else ""
    print(
        f"{folder}: plan {plan.name}: {len(plan.shards)} shards on {len(plan.devices)} devices"
        f"{by_default}{kept}"
    )
    print(text, end="")


REPORTED = ("constraint", "report", "explain")
ONLY_AUTO = ("samples", "requests", "batch_examples", "machine", *REPORTED)
NOT_COMPARED = ("devices", "batch_examples", *REPORTED, "default", "dry_run")


def _refuse(args: argparse.Namespace, options: Sequence[str], wanted: str) -> None:
    for option in options:
        value = getattr(args, option)
        if not (value is None or value is False or value == []):
            raise InputError(f"--{option.replace('_', '-')}: {wanted}")


def _compare(args: argparse.Namespace) -> None:
    """Of a server with a package, or of a training run without one."""
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
            f"--compare {args.compare}, no folder"
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
    """The costs, and what makes them doubtful; without a fleet those of processors."""
    from embershard.planner import read_machine
    from embershard.planner.machine import default_machine

    kind, memory = ("cpu", 0) if fleet is None else (fleet.kind, fleet.memory_bytes or 0)
    machine, warnings = default_machine(kind, memory), list[str]()
    if args.machine is not None:
        machine = read_machine(args.machine)
        if found := machine.mismatch(kind):
            warnings.append(f"{args.machine}: {found}")
    if kind != "cpu":
        where = repr(machine.processor) if kind == "cuda" else kind
        warnings.append(f"costs of a server's lookups on {where} are not measured")
    return machine, warnings


def _warn(*warnings: str) -> None:
    for each in warnings:
        print(f"embershard plan: warning: {each}", file=sys.stderr)


def _explained(
    args: argparse.Namespace, package: Package, fleet: Fleet, name: str
) -> tuple[Plan, str]:
    """The plan, and what is printed of it; writes the report."""
    from embershard.planner import explained_plan, parse_constraints, serving_problem
    from embershard.planner.fleet import without_reserve

    check_folder("--report", args.report)
    machine, warnings = _machine(args, fleet)
    if args.samples is None and args.requests is None:
        warnings.append(
            f"the load is that of the package's {len(package.samples()):,} samples, random ones if "
            "its export got none: --requests or --samples gives requests"
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
    found = explained_plan(problem, name=name, warnings=warnings)
    text = f"load of {load.source}\n{found.report.to_text()}"
    if args.explain is not None:
        text += f"\n{found.report.explain(args.explain)}"
    if args.report is not None:
        manifest = package.manifest
        title = f"Plan {name} of {manifest.model} {manifest.version}"
        args.report.write_text(found.report.to_html(title=title), encoding="utf-8")
        text += f"report: {args.report}\n"
    return found.plan, text


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
