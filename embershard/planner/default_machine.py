"""The calibration that ships with embershard."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from embershard.planner.machine import Machine, read_machine

__all__ = ["default_machine"]


@cache
def default_machine() -> Machine:
    """Of a 2-core AMD EPYC of the Zen 4 generation, measured by ``embershard calibrate``."""
    return read_machine(Path(__file__).with_name("epyc_zen4.json"))
