"""Requests on `PredictStream` against a call each, with a real model and with none."""

from benchmarks.harness import Bench, Ratio
from benchmarks.loads import Load
from benchmarks.packages import Requests
from benchmarks.servers import ONE_THREAD, NoModel, Serve, Server
from benchmarks.statistics import Bound

SERVERS: dict[str, Server] = {"front_end": NoModel(), "served": Serve(flags=ONE_THREAD)}
SIDES = {"PredictStream, 4 streams": 4, "Predict, a call each": 0}


def measure(bench: Bench) -> None:
    stream, calls = SIDES
    for row, server in SERVERS.items():
        bench.compare(
            f"*small*, 1 example, 64 in flight, {'no' if row == 'front_end' else 'real'} model",
            {
                name: Load(server=server, requests=Requests(), in_flight=64, streams=streams)
                for name, streams in SIDES.items()
            },
            [Ratio(row, "requests_per_cpu_second", stream, calls, bound=Bound(1.1))],
        )
