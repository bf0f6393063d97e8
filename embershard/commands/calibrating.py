"""`embershard calibrate`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from embershard.commands.planning import check_folder


def add_calibrate(commands: Any) -> None:
    """Adds `calibrate` to the commands of a parser."""
    command = commands.add_parser(
        "calibrate",
        help="measure this machine for plans of training and of serving",
        description="Measures lookups, updates and messages of this machine, on every core and in "
        "under two minutes when it is idle, and writes what they cost, for "
        "`Topology(machine=read_machine(FILE))` and `embershard plan --machine`.",
    )
    command.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="JSON; replaced if it is there"
    )
    command.set_defaults(run=_calibrate)


def _calibrate(given: argparse.Namespace) -> None:
    from embershard.planner import calibrate
    from embershard.serving.lookup_times import lookup_seconds

    check_folder("--out", given.out)
    machine = calibrate(
        lookup_seconds=lookup_seconds,
        progress=lambda text: print(text, file=sys.stderr, flush=True),
    )
    machine.save(given.out)
    print(
        f"{given.out}: {machine.processor}, in {machine.calibration_seconds:.0f} s; "
        f"two measurements differ by {machine.repeat_error:.0%}, costs from a measurement by "
        f"{machine.fit_error:.0%}"
    )
