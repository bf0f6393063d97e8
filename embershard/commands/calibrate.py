"""The command `embershard calibrate`, and the comparison with a server in `embershard plan`."""

from __future__ import annotations

import argparse
import os
import sys
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embershard.commands.packages import check_folder
from embershard.errors import InputError

if TYPE_CHECKING:
    from embershard.package import Package
    from embershard.planner import LookupLoad, Machine
    from embershard.planner.measurements import LookupSeconds


def add_calibrate(commands: Any) -> None:
    command = commands.add_parser(
        "calibrate",
        help="measure the costs of this machine, for plans of training and serving",
        description="Measures lookups, updates and messages on all cores of this machine, in under "
        "two minutes if it is idle. Writes their costs to a file for "
        "`Topology(machine=read_machine(FILE))` and `embershard plan --machine`. With a GPU it "
        "measures lookups, updates and copies, in half a minute and with 24 GiB of GPU memory; "
        "the costs of messages between GPUs and of a server's lookups are published figures.",
    )
    command.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="JSON file to write or replace"
    )
    command.add_argument(
        "--device",
        default="cpu",
        help="device to measure: cpu, or a GPU such as cuda or cuda:1 (default: %(default)s)",
    )
    command.set_defaults(run=_calibrate)


def _calibrate(args: argparse.Namespace) -> None:
    from embershard.malloc_options import set_malloc_options
    from embershard.planner import calibrate

    check_folder("--out", args.out)
    set_malloc_options(os.environ)  # Training sets them too.
    machine = calibrate(
        device=args.device,
        lookup_seconds=None if args.device.startswith("cuda") else _lookup_seconds(),
        progress=lambda text: print(text, file=sys.stderr, flush=True),
    )
    machine.save(args.out)
    print(
        f"{args.out}: {machine.processor}, in {machine.calibration_seconds:.0f} s; "
        f"repeated measurements differ by {machine.repeat_error:.0%}, computed costs from "
        f"measurements by {machine.fit_error:.0%}"
    )


def _lookup_seconds() -> LookupSeconds:
    from embershard.serving.local import lookup_seconds

    return lookup_seconds


TIMEOUT_SECONDS = 10
BYTES_MAX = 64 << 20


def compare(args: argparse.Namespace, package: Package, load: LookupLoad, machine: Machine) -> str:
    from embershard.planner.comparison import compare_devices, read_batches

    manifest = package.manifest
    name = args.name or manifest.default_plan
    if name not in manifest.plans:
        known = ", ".join(manifest.plans)
        raise InputError(f"--name: expected a plan of the package ({known}), got {name!r}")
    measured = read_batches(
        _metrics(args.compare),
        model=manifest.model,
        version=manifest.version,
        source=args.compare,
    )
    comparison = compare_devices(package.plan(name), manifest.tables, load, machine, measured)
    return f"load of {load.source}\n{comparison.to_text()}"


def _metrics(source: str) -> str:
    """``source`` is a file, or the address of a server's metrics port."""
    if Path(source).is_file():
        return Path(source).read_text(encoding="utf-8", errors="replace")
    address = source.removeprefix("http://").removesuffix("/metrics").rstrip("/")
    host, colon, port = address.rpartition(":")
    if not host or not colon or not port.isdecimal():
        raise InputError(
            f"--compare: expected a file, or HOST:PORT of a server's --metrics-port, got {source!r}"
        )
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=TIMEOUT_SECONDS) as answer:
            return bytes(answer.read(BYTES_MAX)).decode(errors="replace")
    except HTTPException as error:
        raise InputError(
            f"--compare: expected a server's --metrics-port, got {address}, which does not speak "
            "HTTP"
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)  # URLError has its cause in `reason`.
        raise InputError(f"--compare: expected metrics at {address}, got {reason}") from error
