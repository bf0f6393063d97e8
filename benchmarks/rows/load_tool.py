"""What the load tool sends from one core to a C++ echo on another one."""

import os

from benchmarks.harness import Bench, Ratio
from benchmarks.loads import Load
from benchmarks.packages import Requests
from benchmarks.servers import Echo

RATE = 15_000.0


def measure(bench: Bench) -> None:
    if bench.other is not None:
        return  # There is one load tool: this checkout's.
    echo = Echo(one_core=True)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        bench.compare(
            f"1 example; closed loop of 64, and an open loop of {RATE:,.0f} requests/s",
            {
                "closed loop": Load(server=echo, requests=Requests(), in_flight=64),
                "open loop": Load(server=echo, requests=Requests(), rate=RATE),
            },
            [
                Ratio("closed_loop", "requests_per_second", "closed loop"),
                Ratio("open_loop", "requests_per_second", "open loop"),
            ],
        )
    finally:
        os.sched_setaffinity(0, cores)
