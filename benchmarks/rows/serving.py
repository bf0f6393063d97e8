"""A server under a closed loop, compared with programs that do less or other work."""

from dataclasses import replace

from benchmarks.harness import Bench, Measured, Ratio, Side, benchmark
from benchmarks.loads import Load
from benchmarks.local import Local
from benchmarks.packages import SMALL, PackageSpec, Requests
from benchmarks.servers import ONE_THREAD, Echo, NoModel, Serve, Server
from benchmarks.statistics import Bound, Values
from embershard.bench.load_options import Protocol

CPU, P50 = "requests_per_cpu_second", "p50_us"
EXAMPLES_CPU = "examples_per_cpu_second"
NO_MODEL = Load(server=NoModel(), requests=Requests(), in_flight=64)
SERVED = replace(NO_MODEL, server=Serve(flags=ONE_THREAD))
PAUSE_US = 100
"""About the round trip of an echo, for which a server's thread sleeps between two requests."""

PROTOCOLS: dict[Protocol, str] = {
    "embershard": "Predict, packed",
    "oip": "ModelInfer, packed",
    "torchrec": "TorchRec's Predict",
}


@benchmark()
def front_end(bench: Bench) -> None:
    """A server without model work, to see the costs of parsing, checks and threads."""
    bench.compare(
        "*small*, 1 example, 64 in flight",
        {
            "no model work": NO_MODEL,
            "C++ echo, async API": replace(NO_MODEL, server=Echo()),
            "Python echo, grpc.aio": replace(NO_MODEL, server=Echo(language="Python")),
        },
        [
            Ratio("async", CPU, "no model work", "C++ echo, async API", bound=Bound(0.6)),
            Ratio("aio", CPU, "no model work", "Python echo, grpc.aio", bound=Bound(5.0)),
        ],
    )


@benchmark()
def stream(bench: Bench) -> None:
    """PredictStream, and one call for each request."""
    for row, load in {"front_end": NO_MODEL, "served": SERVED}.items():
        bench.compare(
            f"*small*, 1 example, 64 in flight, {'no' if row == 'front_end' else 'real'} model",
            {"PredictStream, 4 streams": replace(load, streams=4), "Predict, a call each": load},
            [
                Ratio(row, CPU, "PredictStream, 4 streams", "Predict, a call each",
                      bound=Bound(1.1))
            ],
        )  # fmt: skip


@benchmark()
def protocols(bench: Bench) -> None:
    """The protocols, with the same requests to a model that does no work."""
    ours, *others = PROTOCOLS.values()
    for examples in (1, 100):
        load = replace(NO_MODEL, requests=Requests(examples=examples))
        bench.compare(
            f"*small*, examples: {examples}, 64 in flight, no model work",
            {title: replace(load, protocol=protocol) for protocol, title in PROTOCOLS.items()},
            [
                Ratio(f"{protocol}_{examples}", CPU, title, ours)
                for protocol, title in PROTOCOLS.items()
                if title in others
            ],
        )


@benchmark()
def batching(bench: Bench) -> None:
    """Batching compared with no batching, with streams, and with the same batches in process."""
    for examples, gain in ((1, 4.0), (200, 0.9)):
        requests = Requests(examples=examples, count=1000 // examples + 200)
        on = replace(SERVED, requests=requests, server=Serve(flags=ONE_THREAD, metrics=True))
        off: Server = Serve(flags=(*ONE_THREAD, "--merge-examples", "1"))
        merged = round(bench.once(on)["requests_per_batch"])
        local = Local(package=SMALL, requests=requests, merge_requests=merged, seconds=0.6)

        def least(of: Measured) -> dict[str, Values]:
            """A lower bound: the CPU time of a batch in process plus that of echoing it."""
            inverse = 1 / of["C++ echo"][EXAMPLES_CPU] + 1 / of["in process"][EXAMPLES_CPU]
            return {EXAMPLES_CPU: 1 / inverse}

        bench.compare(
            f"*small*, {examples} examples, 64 in flight, 1 thread; in process and in the server "
            f"{merged} requests a batch",
            {
                "batching": on,
                "one request a batch": replace(on, server=off),
                "4 streams": replace(on, streams=4),
                "C++ echo": replace(on, server=Echo()),
                "in process": local,
            },
            [
                Ratio(f"{examples}", "examples_per_second", "batching", "one request a batch",
                      bound=Bound(gain)),
                Ratio(f"{examples}_cpu", EXAMPLES_CPU, "batching", "one request a batch"),
                Ratio(f"{examples}_in_process", EXAMPLES_CPU, "batching", "in process"),
                Ratio(f"{examples}_stream_in_process", EXAMPLES_CPU, "4 streams", "in process"),
                Ratio(f"{examples}_least", EXAMPLES_CPU, "batching", "in process + echo"),
            ],
            blocks=15,
            derived={"in process + echo": least},
        )  # fmt: skip


@benchmark()
def idle(bench: Bench) -> None:
    """Latency of one request at a time, compared with a direct call and an echo."""
    direct = Local(package=SMALL, requests=Requests())
    served = replace(SERVED, in_flight=1, seconds=0.4)
    sides: dict[str, Side] = {
        "served": served,
        "served, one core": replace(served, server=Serve(flags=ONE_THREAD, one_core=True)),
        "echo": replace(served, server=Echo()),
        "direct call": direct,
        "call after a pause": replace(direct, pause_us=PAUSE_US),
    }
    bench.compare(
        "*small*, 1 example, one request at a time, 1 thread, median of a block",
        sides,
        [
            Ratio("latency", P50, "served", "direct call + echo"),
            Ratio("added", P50, "served - (direct call + echo)"),
            Ratio("one_core", P50, "served, one core", "served"),
            Ratio("paused", P50, "call after a pause", "direct call"),
        ],
        blocks=15,
        derived={
            "direct call + echo": lambda of: {P50: of["direct call"][P50] + of["echo"][P50]},
            "served - (direct call + echo)": lambda of: {
                P50: of["served"][P50] - of["direct call + echo"][P50]
            },
        },
    )


@benchmark()
def request_scope_bf16(bench: Bench) -> None:
    """Without request scope, the user's inputs are sent and computed once per candidate."""

    def side(variant: str) -> Load:
        package = PackageSpec(workload="ranking", dense_dtype="bf16", variant=variant)
        return Load(
            server=Serve(package=package),
            requests=Requests(package=package, examples=200, count=60),
            in_flight=4,
            seconds=1.0,
        )

    bench.compare(
        "*ranking*, bf16: 1 user with 20 features and a history of 300, 200 candidates of 40 "
        "features, 4 in flight",
        {"request scope": side(""), "request scope off": side("request_scope_off")},
        [
            Ratio("in_flight", EXAMPLES_CPU, "request scope", "request scope off"),
            Ratio("bytes", "message_bytes", "request scope", "request scope off"),
        ],
        blocks=15,
    )
