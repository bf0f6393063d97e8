"""The gain of batching, and the cost of serving beside the same batches in process."""

from benchmarks.harness import Bench, Measured, Ratio, Side
from benchmarks.loads import Load
from benchmarks.local import Local
from benchmarks.packages import SMALL, Requests
from benchmarks.servers import ONE_THREAD, Echo, Serve
from benchmarks.statistics import Bound, Values

ON = Serve(flags=ONE_THREAD, metrics=True)
OFF = Serve(flags=(*ONE_THREAD, "--merge-examples", "1"))
CPU = "examples_per_cpu_second"


def measure(bench: Bench) -> None:
    for examples, gain in ((1, 4.0), (200, 0.9)):
        requests = Requests(examples=examples, count=1000 // examples + 200)
        on = Load(server=ON, requests=requests, in_flight=64)
        merged = round(bench.once(on)["requests_per_batch"])
        sides: dict[str, Side] = {
            "batching": on,
            "one request a batch": Load(server=OFF, requests=requests, in_flight=64),
            "4 streams": Load(server=ON, requests=requests, in_flight=64, streams=4),
            "C++ echo": Load(server=Echo(), requests=requests, in_flight=64),
            "in process": Local(
                package=SMALL, requests=requests, merge_requests=merged, seconds=0.6
            ),
        }
        bench.compare(
            f"*small*, {examples} examples, 64 in flight, 1 thread; in process and in the server "
            f"{merged} requests a batch",
            sides,
            [
                Ratio(f"{examples}", "examples_per_second", "batching", "one request a batch",
                      bound=Bound(gain)),
                Ratio(f"{examples}_cpu", CPU, "batching", "one request a batch"),
                Ratio(f"{examples}_in_process", CPU, "batching", "in process"),
                Ratio(f"{examples}_stream_in_process", CPU, "4 streams", "in process"),
                Ratio(f"{examples}_least", CPU, "batching", "in process + echo"),
            ],
            blocks=15,
            derived={"in process + echo": least},
        )  # fmt: skip


def least(of: Measured) -> dict[str, Values]:
    """The CPU time of a batch in process and that of an echo of its messages."""
    return {CPU: 1 / (1 / of["C++ echo"][CPU] + 1 / of["in process"][CPU])}
