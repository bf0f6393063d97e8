"""The costs that ship with embershard: of processors as ``embershard calibrate`` measured them, of
GPUs as published."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from embershard.planner.machine import Machine, processor_name, read_machine
from embershard.planner.published_gpus import gpu_for, gpu_machine

SHIPPED = {"Intel": "xeon_amx", "": "epyc_zen4"}
"""Files of processors whose name begins so; each says where its figures are from."""


def default_machine(kind: str = "cpu", memory_bytes: float = 0) -> Machine:
    """Of the processors that are most like this one, or of the smallest GPU with enough memory.

    Args:
        kind: "cpu" or "cuda".
        memory_bytes: of a GPU.
    """
    if kind == "cuda":
        return gpu_machine(gpu_for(memory_bytes).name)
    name = processor_name()
    return shipped_machine(next(file for begin, file in SHIPPED.items() if name.startswith(begin)))


@cache
def shipped_machine(file: str) -> Machine:
    """One of ``SHIPPED``."""
    return read_machine(Path(__file__).with_name(f"{file}.json"))
