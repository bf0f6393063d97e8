"""*small* in Triton with 64 requests in flight. CPU time includes all processes of the server."""

from benchmarks.harness import Bench, Ratio, benchmark
from benchmarks.servers import Serve, Server
from benchmarks.statistics import Bound
from benchmarks.triton_models import MODES, InTriton, TorchRecInTriton, inferring

CPU = "requests_per_cpu_second"


@benchmark()
def triton(bench: Bench) -> None:
    """Our server and our backend with their defaults, a slot or an instance for each core."""
    servers: dict[str, Server] = {"embershard serve": Serve(), "Triton, our backend": InTriton()}
    ours, theirs = servers
    for examples in (1, 20):
        row = f"small_{examples}"
        bench.compare(
            f"*small*, examples: {examples}, 64 in flight, one package, ModelInfer, packed",
            inferring(servers, examples),
            [
                Ratio(row, CPU, ours, theirs, bound=Bound(1.0)),
                Ratio(f"{row}_backend", CPU, theirs),
            ],
        )


@benchmark(peers=True)
def triton_torchrec(bench: Bench) -> None:
    """Our backend and TorchRec's model, both in Triton."""
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
                    Ratio(f"small_{examples}_{mode}", CPU, ours, theirs, bound=Bound(1.0)),
                ],
            )
