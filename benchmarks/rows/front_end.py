"""The cost of the front end: embershard's server around a model that does no work, beside servers
that only echo the same messages."""

from benchmarks.harness import Bench, Ratio
from benchmarks.loads import Load
from benchmarks.packages import Requests
from benchmarks.servers import Echo, NoModel, Server
from benchmarks.statistics import Bound

SERVERS: dict[str, Server] = {
    "embershard, no model work": NoModel(),
    "C++ echo, async API": Echo(),
    "Python echo, grpc.aio": Echo(language="Python"),
}
BOUNDS = {"async": 0.6, "aio": 5.0}


def measure(bench: Bench) -> None:
    ours, *echoes = SERVERS
    bench.compare(
        "*small*, 1 example, 64 in flight",
        {
            name: Load(server=server, requests=Requests(), in_flight=64)
            for name, server in SERVERS.items()
        },
        [
            Ratio(row, "requests_per_cpu_second", ours, echo, bound=Bound(bound))
            for echo, (row, bound) in zip(echoes, BOUNDS.items(), strict=True)
        ],
    )
