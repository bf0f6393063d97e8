"""The latency that serving adds to a request that has the server to itself, beyond a call of the
model in process and a round trip to an echo."""

from dataclasses import replace

from benchmarks.harness import Bench, Measured, Ratio
from benchmarks.loads import Load
from benchmarks.local import Local
from benchmarks.packages import SMALL, Requests
from benchmarks.servers import ONE_THREAD, Echo, Serve
from benchmarks.statistics import Values

P50 = "p50_us"
PAUSE_US = 100
"""About the round trip of an echo: a server's thread sleeps as long between two requests."""


def measure(bench: Bench) -> None:
    direct = Local(package=SMALL, requests=Requests())
    served = Load(server=Serve(flags=ONE_THREAD), requests=Requests(), in_flight=1, seconds=0.4)
    delay_us = round(bench.once(direct)[P50])

    def delayed_echo(of: Measured) -> dict[str, Values]:
        return {P50: of["delayed echo"][P50] - delay_us}

    def own(of: Measured) -> dict[str, Values]:
        return {P50: of["served"][P50] - delayed_echo(of)[P50] - of["call after a pause"][P50]}

    bench.compare(
        "*small*, 1 example, one request at a time, 1 thread, median of a block",
        {
            "served": served,
            "served, one core": replace(served, server=Serve(flags=ONE_THREAD, one_core=True)),
            "echo": replace(served, server=Echo()),
            "delayed echo": replace(served, server=Echo(busy_us=delay_us)),
            "direct call": direct,
            "call after a pause": replace(direct, pause_us=PAUSE_US),
        },
        [
            Ratio("latency", P50, "served", "direct call + echo"),
            Ratio("added", P50, "served - (direct call + echo)"),
            Ratio("one_core", P50, "served, one core", "served"),
            Ratio("paused", P50, "call after a pause", "direct call"),
            Ratio("delayed_echo", P50, "delayed echo - its delay", "echo"),
            Ratio("own", P50, "served - (delayed echo + call after a pause)"),
        ],
        blocks=15,
        derived={
            "direct call + echo": lambda of: {P50: of["direct call"][P50] + of["echo"][P50]},
            "served - (direct call + echo)": lambda of: {
                P50: of["served"][P50] - of["direct call"][P50] - of["echo"][P50]
            },
            "delayed echo - its delay": delayed_echo,
            "served - (delayed echo + call after a pause)": own,
        },
    )
