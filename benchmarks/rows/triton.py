"""One package in embershard's server and in NVIDIA Triton, with the same messages. Needs a
tritonserver (`scripts/install.sh triton`)."""

from benchmarks.harness import Bench, Ratio
from benchmarks.servers import Serve, Server
from benchmarks.statistics import Bound
from benchmarks.triton_models import InTriton, inferring

CASES = (("small_1", 1), ("small_20", 20))
"""Rows, and examples of a request. Both sides run with their defaults: a slot or an instance for
each core."""

OURS, THEIRS = "embershard serve", "Triton, our backend"


def measure(bench: Bench) -> None:
    servers: dict[str, Server] = {OURS: Serve(), THEIRS: InTriton()}
    for row, examples in CASES:
        bench.compare(
            f"*small*, examples: {examples}, 64 in flight, one package, ModelInfer, packed",
            inferring(servers, examples),
            [
                Ratio(row, "requests_per_cpu_second", OURS, THEIRS, bound=Bound(1.0)),
                Ratio(f"{row}_backend", "requests_per_cpu_second", THEIRS),
            ],
        )
