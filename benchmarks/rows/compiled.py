"""When compiling pays: processor time of a request with the dense program as TorchScript and as
AOTInductor compiles it for this machine, each in fp32 and in bf16."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.blocks import interleaved
from benchmarks.harness import About, Row, Series, paired_row, pinned
from benchmarks.packages import compiled_package_of, messages, package_of
from embershard.data import Workload, workload
from embershard.serving import LocalPredictor

__all__ = ["measure"]

WORKLOADS = ("ranking", "dlrm_v2_100")
DTYPES = ("fp32", "bf16")
EXAMPLES = 200
REQUESTS = 16
"""Different ones, sent in turn."""

BLOCKS = 15
BLOCK_SECONDS = 0.8


def measure() -> list[Row]:
    """One thread on one core: lookups, which are the same on every side, and the dense program.

    The first run compiles four programs, a minute or two each; they are kept with the packages.
    """
    return [row for name in WORKLOADS for row in _measured(workload(name))]


def _measured(asked: Workload) -> list[Row]:
    with pinned({0}):
        runs = []
        for dtype in DTYPES:
            package = package_of(asked, dense_dtype=dtype)
            requests = messages(asked, package, REQUESTS, EXAMPLES)
            for folder in (compiled_package_of(asked, dense_dtype=dtype), package):
                runs.append(_cpu_ms(LocalPredictor(folder, threads=1), requests))
        values, watch = interleaved(runs, blocks=BLOCKS)
    return [
        paired_row(
            About(
                name=f"compiled/{asked.name}_{dtype}",
                what=f"*{asked.name}*, 1 request of {EXAMPLES} examples in process, 1 thread, "
                f"dense program in {dtype}",
                unit="CPU ms/request",
                lower_is_better=True,
            ),
            Series("AOTInductor", values[2 * place]),
            Series("TorchScript", values[2 * place + 1]),
            watch=watch,
        )
        for place, dtype in enumerate(DTYPES)
    ]


def _cpu_ms(predictor: LocalPredictor, requests: list[bytes]) -> Callable[[], float]:
    """A block of requests, one behind the other: their mean processor time."""

    def run() -> float:
        done, cpu, end = 0, time.process_time(), time.perf_counter() + BLOCK_SECONDS
        while time.perf_counter() < end:
            [answer] = predictor.predict_merged([requests[done % REQUESTS]])
            if isinstance(answer, Exception):
                raise answer
            done += 1
        return (time.process_time() - cpu) / done * 1e3

    return run
