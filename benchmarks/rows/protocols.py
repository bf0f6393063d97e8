"""The cost of each protocol: the same requests around a model that does no work."""

from benchmarks.harness import Bench, Ratio
from benchmarks.loads import Load
from benchmarks.packages import Requests
from benchmarks.servers import NoModel
from embershard.bench.load_options import Protocol

PROTOCOLS: dict[Protocol, str] = {
    "embershard": "Predict, packed",
    "oip": "ModelInfer, packed",
    "torchrec": "TorchRec's Predict",
}


def measure(bench: Bench) -> None:
    for examples in (1, 100):
        bench.compare(
            f"*small*, examples: {examples}, 64 in flight, no model work",
            {
                title: Load(
                    server=NoModel(),
                    requests=Requests(examples=examples),
                    in_flight=64,
                    protocol=protocol,
                )
                for protocol, title in PROTOCOLS.items()
            },
            [
                Ratio(f"{name}_{examples}", "requests_per_cpu_second", title,
                      PROTOCOLS["embershard"])
                for name, title in PROTOCOLS.items()
                if name != "embershard"
            ],
        )  # fmt: skip
