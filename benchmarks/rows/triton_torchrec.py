"""Two models in NVIDIA Triton: a package with our backend, and TorchRec's quantized model with the
same weights in Triton's backend for Python. Needs a tritonserver (`scripts/install.sh triton`)."""

from __future__ import annotations

from benchmarks.harness import Bench, Ratio
from benchmarks.loads import Load
from benchmarks.packages import Requests
from benchmarks.servers import Server
from benchmarks.statistics import Bound
from benchmarks.triton_models import MODES, InTriton, TorchRecInTriton

__all__ = ["PEERS", "measure"]

PEERS = True


def measure(bench: Bench) -> None:
    for mode, title in MODES.items():
        servers: dict[str, Server] = {
            "our backend": InTriton(),
            title: TorchRecInTriton(mode=mode),
        }
        ours, theirs = servers
        for examples in (1, 20):
            bench.compare(
                f"*small*, examples: {examples}, 64 in flight, both in Triton; CPU time of all "
                "its processes",
                {
                    name: Load(
                        server=server,
                        requests=Requests(examples=examples),
                        in_flight=64,
                        seconds=0.8,
                        protocol="oip",
                        first_dimension=True,
                    )
                    for name, server in servers.items()
                },
                [
                    Ratio(f"small_{examples}_{mode}", "requests_per_cpu_second", ours,
                        theirs,
                          bound=Bound(1.0))
                ],
            )  # fmt: skip
