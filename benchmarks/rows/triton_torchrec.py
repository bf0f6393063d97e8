"""Two models in NVIDIA Triton: a package with our backend, and TorchRec's quantized model with the
same weights in Triton's backend for Python. Needs a tritonserver (`scripts/install.sh triton`)."""

from benchmarks.harness import Bench, Ratio
from benchmarks.servers import Server
from benchmarks.statistics import Bound
from benchmarks.triton_models import MODES, InTriton, TorchRecInTriton, inferring

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
                inferring(servers, examples),
                [
                    Ratio(f"small_{examples}_{mode}", "requests_per_cpu_second", ours, theirs,
                          bound=Bound(1.0))
                ],
            )  # fmt: skip
