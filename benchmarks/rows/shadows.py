"""What those who ask notice of a shadow version that goes wrong: the 99th percentile of the latency
at half of the capacity, beside that of a server without one."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.blocks import interleaved
from benchmarks.half_loaded import BLOCKS, LOAD, capacity, half_loaded, p99, server_of_two
from benchmarks.harness import About, Row, Series, paired_row
from benchmarks.servers import Served, pooled, serving
from embershard.data import workload
from embershard.export import export_model
from embershard.jagged import KeyedJaggedTensor

__all__ = ["measure"]

SHARE = 0.05
EXAMPLES = 16
DEAR = 1000.0
"""Of the first dense input, in every request: a program goes wrong from here on, and so does not
while its samples are checked."""

Kind = Literal["good", "slow", "throws", "nan"]
WRONG: dict[Kind, str] = {
    "slow": "a shadow of 40 ms and more a batch",
    "throws": "a shadow whose program throws",
    "nan": "a shadow that gives NaN",
}


class Ranker(nn.Module):
    """*small*, and what goes wrong with it."""

    zeros: Tensor

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.kind = kind
        self.model = workload("small").model()
        self.register_buffer("zeros", torch.zeros(1024, 1024))

    def forward(self, dense: Tensor, sparse: KeyedJaggedTensor) -> dict[str, Tensor]:
        score = torch.sigmoid(self.model(dense, sparse))[:, 0]
        first = dense[:, 0]
        if self.kind == "slow":
            product = self.zeros + 0 * first.sum()
            score = score + (product @ self.zeros @ self.zeros).sum()
        if self.kind == "throws":
            score = score + self.zeros[:1, 0][(first.abs() / DEAR).long()]
        if self.kind == "nan":
            score = score + 0 * torch.log(DEAR / 2 - first)
        return {"score": score}


def measure() -> list[Row]:
    """Latencies in microseconds."""
    small = workload("small")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kinds: tuple[Kind, ...] = ("good", *WRONG)
        packages = {
            kind: export_model(Ranker(kind), small.schema(), folder / kind / "ranker" / "1")
            for kind in kinds
        }
        random = np.random.default_rng(2)
        requests = [small.request(random, EXAMPLES) for _ in range(500)]
        for request in requests:
            request.example_dense[:, 0] = DEAR
        pool = pooled(requests, packages["good"])

        def served(second: Kind, label: str = "stable", *flags: object) -> Served:
            both = (packages["good"], packages[second])
            command = server_of_two(folder / f"of_{second}", both, label, *flags)
            return stack.enter_context(serving(command))

        alone = served("good")
        rate = LOAD * capacity(alone, pool)
        others = [served(kind, "shadow", "--shadow-share", SHARE) for kind in WRONG]
        runs = [half_loaded(each, pool, rate) for each in (*others, alone)]
        (*beside, quiet), watch = interleaved(runs, blocks=BLOCKS)
    return [
        paired_row(
            About(
                name=f"shadows/{kind}",
                what=f"*small*, {EXAMPLES} examples, open loop at {LOAD:.0%} of the capacity, p99",
                unit="us",
                lower_is_better=True,
                note=f"that gets {SHARE:.0%} of the requests; {rate:.0f} requests/s",
            ),
            Series(title, p99(results)),
            Series("no shadow", p99(quiet)),
            watch=watch,
        )
        for (kind, title), results in zip(WRONG.items(), beside, strict=True)
    ]
