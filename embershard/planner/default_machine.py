"""The calibrations that ship with embershard, each measured by ``embershard calibrate``."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from embershard.planner.machine import Machine, processor_name, read_machine

SHIPPED = {"Intel": "xeon_amx", "": "epyc_zen4"}
"""Files of processors whose name begins so.

xeon_amx    2 cores of an Intel Xeon with AMX (Granite Rapids), November 2026, an idle machine
epyc_zen4   2 cores of an AMD EPYC of the Zen 4 generation, which has no costs of a rank's own batch
"""


def default_machine() -> Machine:
    """Of the processors that are most like this one."""
    name = processor_name()
    return shipped_machine(next(file for begin, file in SHIPPED.items() if name.startswith(begin)))


@cache
def shipped_machine(file: str) -> Machine:
    """One of ``SHIPPED``."""
    return read_machine(Path(__file__).with_name(f"{file}.json"))
