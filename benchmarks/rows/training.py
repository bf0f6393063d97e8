"""A training step of *small* with fused tables, beside plain torch and TorchRec's tables."""

from benchmarks.harness import Bench, Ratio
from benchmarks.local import Child
from benchmarks.torchrec import TorchRecTraining

PEERS = True

EXAMPLES = 512
OURS = "fused tables"


def measure(bench: Bench) -> None:
    def ours(kind: str) -> Child:
        return Child(
            command=lambda checkout: checkout.module("benchmarks.workers.training", kind, EXAMPLES),
            is_peer=False,
        )

    peers = {
        "TorchRec, fused tables": TorchRecTraining(kind="fused", examples=EXAMPLES),
        "TorchRec, plain tables": TorchRecTraining(kind="plain", examples=EXAMPLES),
    }
    bench.compare(
        f"training step of {EXAMPLES} examples, *small*, SGD, 1 thread",
        {OURS: ours("fused"), "plain torch": ours("plain"), **peers},
        [
            Ratio("small_torch", "examples_per_second", OURS, "plain torch"),
            Ratio("small_fused", "examples_per_second", OURS, "TorchRec, fused tables"),
            Ratio("small_plain", "examples_per_second", OURS, "TorchRec, plain tables"),
        ],
    )
