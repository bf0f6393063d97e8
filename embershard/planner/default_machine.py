"""The costs that ship with embershard, as ``embershard calibrate`` measured them. The files say
where each figure is from."""

from functools import cache
from pathlib import Path
from typing import Final

from embershard.planner.machine import Machine, read_machine
from embershard.planner.published_gpus import GPUS, gpu_for

FOLDER = Path(__file__).parent
PROCESSOR: Final = "xeon_amx.json"
MEASURED: Final = dict(zip(GPUS, ("h100.json", "h200.json"), strict=True))


def default_machine(kind: str = "cpu", memory_bytes: float = 0) -> Machine:
    """Of any processor, or of the smallest GPU with enough memory.

    Args:
        kind: "cpu" or "cuda".
        memory_bytes: of a GPU.
    """
    return _read(MEASURED[gpu_for(memory_bytes)] if kind == "cuda" else PROCESSOR)


@cache
def _read(name: str) -> Machine:
    return read_machine(FOLDER / name)
