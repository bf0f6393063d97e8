"""The costs that ship with embershard: of a processor as ``embershard calibrate`` measured it, of
GPUs as published."""

from functools import cache
from pathlib import Path

from embershard.planner.machine import Machine, read_machine
from embershard.planner.published_gpus import gpu_for, gpu_machine

XEON = Path(__file__).with_name("xeon_amx.json")
"""Of a processor; the file says where each figure is from."""


def default_machine(kind: str = "cpu", memory_bytes: float = 0) -> Machine:
    """Of any processor, or of the smallest GPU with enough memory.

    Args:
        kind: "cpu" or "cuda".
        memory_bytes: of a GPU.
    """
    return gpu_machine(gpu_for(memory_bytes).name) if kind == "cuda" else _processor()


@cache
def _processor() -> Machine:
    return read_machine(XEON)
