"""The dense program alone, as the server runs it, beside the peak of the same cores: in fp32
against torch's own linear layers, in bf16 against fp32."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.jit import optimized_execution  # type: ignore[attr-defined]

from benchmarks.harness import About, Blocks, Row, Side, Work, compare, loop, pinned
from benchmarks.packages import messages, package_of
from benchmarks.programs import machine_limit
from embershard._proto import predictor_pb2 as pb
from embershard.data import Workload, workload
from embershard.package import Package
from embershard.serving import LocalPredictor

__all__ = ["PEAKS", "flops", "measure"]

BILLIONTH = 1e-9
EXAMPLES = {"dlrm_v2_100": 256, "ranking": 200, "small": 512}
"""Of the one request in a batch."""

PEAKS = {"fp32": ("float32 peak", "fma"), "bf16": ("bfloat16 peak", "bf16")}
BLOCKS = Blocks(pairs=15)


def measure() -> list[Row]:
    """One thread and two; fp32 and bf16."""
    return [
        _measured(workload(name), examples, threads, dtype)
        for name, examples in EXAMPLES.items()
        for threads in (1, 2)
        for dtype in PEAKS
    ]


def _measured(asked: Workload, examples: int, threads: int, dtype: str) -> Row:
    name, units = PEAKS[dtype]
    peak = machine_limit(name, [units], threads=threads, scale=BILLIONTH)
    with pinned(set(range(threads))), peak as limit:
        torch.set_num_threads(threads)
        return compare(
            About(
                name=f"dense/{asked.name}_{threads}t" + ("_bf16" if dtype == "bf16" else ""),
                what=f"dense program of *{asked.name}*, 1 request of {examples} examples, "
                f"{threads} thread{'s' if threads > 1 else ''}",
                unit="GFLOP/s",
            ),
            ours=_served(f"as served, {dtype}", asked, examples, threads, dtype),
            theirs=loop("torch's layers, fp32", _torchs_own(asked, examples))
            if dtype == "fp32"
            else _served("as served, fp32", asked, examples, threads, "fp32"),
            limit=limit,
            blocks=BLOCKS,
        )


def _served(name: str, asked: Workload, examples: int, threads: int, dtype: str) -> Side:
    """The program inside the model, by the model's own clock."""
    package = package_of(asked, dense_dtype=dtype)
    predictor = LocalPredictor(package, threads=threads, slots=1)
    request = messages(asked, package, 1, examples)
    billions = flops(asked, examples) * BILLIONTH

    def block(seconds: float) -> Work:
        done, dense_seconds, started = 0.0, 0.0, time.perf_counter()
        while time.perf_counter() - started < seconds:
            [answer] = predictor.predict_merged(request)
            if isinstance(answer, Exception):
                raise answer
            dense_seconds += pb.PredictResponse.FromString(answer).timing.dense_us * 1e-6
            done += billions
        return Work(done, dense_seconds)

    return Side(name=name, block=block)


def _torchs_own(asked: Workload, examples: int) -> Callable[[], float]:
    package = Package.open(package_of(asked))
    file = package.path / package.manifest.programs[0].file
    program = torch.jit.freeze(torch.jit.load(file).eval())  # type: ignore[no-untyped-call]
    inputs = _inputs(asked, examples)
    billions = flops(asked, examples) * BILLIONTH

    def run() -> float:
        with torch.inference_mode(), optimized_execution(False):
            program(*inputs)
        return billions

    return run


def _inputs(asked: Workload, examples: int) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Of the program: dense and pooled inputs of both scopes, and which request is whose."""
    random = np.random.default_rng(0)

    def drawn(rows: int, columns: int) -> Tensor:
        return torch.from_numpy(random.standard_normal((rows, columns), np.float32))

    pooled = {
        scope: asked.dim * sum(each.scope == scope for each in asked.sparse)
        for scope in ("request", "example")
    }
    return (
        [drawn(1, asked.request_dense), drawn(1, pooled["request"])],
        [drawn(examples, asked.example_dense), drawn(examples, pooled["example"])],
        torch.zeros(examples, dtype=torch.int64),
    )


def flops(asked: Workload, examples: float) -> float:
    """Two for each multiply-add of the matrices, as the program must do them for one request of so
    many examples: what vectors of the request scope give each other, once."""
    vectors = len(asked.sparse) + 1
    user = sum(each.scope == "request" for each in asked.sparse)
    first, *above = asked.over_layers
    if asked.cross is not None or user < 2:
        user = 0
    item = vectors - user
    once = user * user * asked.dim + user * (user - 1) // 2 * first
    if asked.cross is None:
        adds = item * vectors * asked.dim
        width = asked.dim + item * (item - 1) // 2 + item * user
    else:
        layers, rank = asked.cross
        width = vectors * asked.dim
        adds = layers * 2 * width * rank
    dense = asked.request_dense + asked.example_dense
    for sizes in ((dense, *asked.dense_layers), (width, first, *above)):
        adds += sum(above * below for above, below in pairwise(sizes))
    return 2.0 * (adds * examples + once)
