"""The dense program alone, as the package holds it, beside the float32 peak of the same cores."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.jit import optimized_execution  # type: ignore[attr-defined]

from benchmarks.harness import About, Blocks, Row, compare, loop, pinned
from benchmarks.packages import package_of
from benchmarks.programs import machine_limit
from embershard.data import Workload, workload
from embershard.package import Package

__all__ = ["flops", "measure"]

BILLIONTH = 1e-9
EXAMPLES = {"dlrm_v2_100": 256, "ranking": 200}
"""Of the one request in a batch."""

BLOCKS = Blocks(pairs=15)


def measure() -> list[Row]:
    """One thread and two; float32."""
    return [
        _measured(workload(name), examples, threads)
        for name, examples in EXAMPLES.items()
        for threads in (1, 2)
    ]


def _measured(asked: Workload, examples: int, threads: int) -> Row:
    package = Package.open(package_of(asked))
    file = package.path / package.manifest.programs[0].file
    program = torch.jit.freeze(torch.jit.load(file).eval())  # type: ignore[no-untyped-call]
    inputs = _inputs(asked, examples)
    billions = flops(asked, examples) * BILLIONTH

    def run() -> float:
        # As the server runs it.
        with torch.inference_mode(), optimized_execution(False):
            program(*inputs)
        return billions

    peak = machine_limit("float32 peak", ["fma"], threads=threads, scale=BILLIONTH)
    with pinned(set(range(threads))), peak as limit:
        torch.set_num_threads(threads)
        return compare(
            About(
                name=f"dense/{asked.name}_{threads}t",
                what=f"dense program of *{asked.name}*, 1 request of {examples} examples, "
                f"{threads} thread{'s' if threads > 1 else ''}",
                unit="GFLOP/s",
            ),
            ours=loop("TorchScript, fp32", run),
            limit=limit,
            blocks=BLOCKS,
        )


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
