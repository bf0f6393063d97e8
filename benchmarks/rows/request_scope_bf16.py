"""The gain of request scope: *ranking* against the same model with request scope off, where the
user's inputs are sent, looked up and computed once per candidate."""

from dataclasses import replace

from benchmarks.harness import Bench, Ratio
from benchmarks.loads import Load
from benchmarks.packages import PackageSpec, Requests
from benchmarks.servers import Serve

ON = PackageSpec(workload="ranking", dense_dtype="bf16")
OFF = replace(ON, variant="request_scope_off")


def measure(bench: Bench) -> None:
    on = Load(
        server=Serve(package=ON),
        requests=Requests(package=ON, examples=200, count=60),
        in_flight=4,
        seconds=1.0,
    )
    off = Load(
        server=Serve(package=OFF),
        requests=Requests(package=OFF, examples=200, count=60, edit="request_scope_off"),
        in_flight=4,
        seconds=1.0,
    )
    bench.compare(
        "*ranking*, bf16: 1 user with 20 features and a history of 300, 200 candidates of 40 "
        "features, 4 in flight",
        {"request scope": on, "request scope off": off},
        [
            Ratio("in_flight", "examples_per_cpu_second", "request scope", "request scope off"),
            Ratio("bytes", "message_bytes", "request scope", "request scope off"),
        ],
        blocks=15,
    )
