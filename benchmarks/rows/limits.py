"""What the cores and the memory of this machine can do at best, one core and two."""

from __future__ import annotations

from pathlib import Path

from benchmarks.children import ChildEndedError, child_side
from benchmarks.harness import About, Blocks, Row, compare
from benchmarks.programs import NOT_ON_THIS_MACHINE, program

__all__ = ["measure"]

GIGA = 1e-9
MILLIONTH = 1e-6
LIMITS = {
    "stream": (["stream"], "read from memory, huge pages", "GB/s", GIGA),
    "gather_d64": (["gather", "64"], "random int8 rows of 1 GiB, D64, sums of 20", "million rows/s",
                   MILLIONTH),
    "gather_d128": (["gather", "128"], "random int8 rows of 1 GiB, D128, sums of 20",
                    "million rows/s", MILLIONTH),
    "fp32": (["fma"], "float32 multiply-adds in registers", "GFLOP/s", GIGA),
    "bf16": (["bf16"], "bfloat16 dot products in registers", "GFLOP/s", GIGA),
    "int8": (["vnni"], "int8 dot products in registers", "GOP/s", GIGA),
}  # fmt: skip
BLOCKS = Blocks(seconds=0.1)


def measure() -> list[Row]:
    """Those that the processor has the instructions for."""
    return [
        row for name in LIMITS for cores in (1, 2) if (row := _measured(name, cores)) is not None
    ]


def _measured(name: str, cores: int) -> Row | None:
    arguments, what, unit, scale = LIMITS[name]
    command: list[str | Path] = [program("limits"), *arguments]
    pins = [{core} for core in range(cores)]
    try:
        with child_side("C++", command, cores=pins, scale=scale) as side:
            what = f"{what}, {cores} core{'s' if cores > 1 else ''}"
            about = About(name=f"limits/{name}_{cores}t", what=what, unit=unit)
            return compare(about, ours=side, blocks=BLOCKS)
    except ChildEndedError as error:
        if error.status != NOT_ON_THIS_MACHINE:
            raise
        return None
