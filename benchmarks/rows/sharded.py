"""Sharded training of a DLRM with gloo: 26 tables of 100,000 x 64, one id per bag, 512 examples
per rank."""

from dataclasses import replace

from benchmarks.harness import Bench, Ratio, benchmark
from benchmarks.local import Child, ranks
from benchmarks.sharded_step import PEER_WORKER, WORKER
from benchmarks.statistics import Bound

EXAMPLES, CPU = "examples_per_second", "examples_per_cpu_second"
TABLES = 26


@benchmark(peers=True)
def sharded_training(bench: Bench) -> None:
    """A step with row-wise Adagrad, and only its sparse part, compared with TorchRec."""
    ours, theirs, bound = "embershard", "TorchRec", Bound(at_least=1.2)
    for part, what in {"step": "training step", "sparse": "the sparse part of a step"}.items():
        for plan in ("table_wise", "row_wise", "column_wise"):
            case = (part, plan, TABLES)
            bench.compare(
                f"{what}, {plan}, 2 ranks",
                {ours: ranks(2, WORKER, *case), theirs: ranks(2, PEER_WORKER, *case, is_peer=True)},
                [
                    Ratio(f"{part}_{plan}", EXAMPLES, ours, theirs, bound=bound),
                    Ratio(f"{part}_{plan}_cpu", CPU, ours, theirs),
                ],
            )


@benchmark()
def sharded_options(bench: Bench) -> None:
    """Two ranks compared with one, and with a pipeline, access counts, or smaller vectors."""

    def side(part: str, count: int = 2) -> Child:
        return ranks(count, WORKER, part, "row_wise", TABLES)

    bench.compare(
        "the step, row_wise",
        {
            "two ranks": side("step"),
            "one rank": side("step", 1),
            "pipeline": side("pipelined"),
        },
        [
            Ratio("ranks", EXAMPLES, "two ranks", "one rank"),
            Ratio("pipeline", EXAMPLES, "pipeline", "two ranks"),
        ],
    )
    comms = ("fp16", "bf16", "int8")
    bench.compare(
        "the sparse part of a step, row_wise, 2 ranks",
        {"fp32": side("sparse"), **{kind: side(kind) for kind in ("counted", *comms)}},
        [
            Ratio("access_counts", CPU, "counted", "fp32"),
            *(Ratio(f"{kind}_bytes", "vector_bytes_a_step", kind, "fp32") for kind in comms),
            *(Ratio(f"{kind}_cpu", CPU, kind, "fp32") for kind in comms),
        ],
    )


@benchmark()
def sharded_kernels(bench: Bench) -> None:
    """Tables of 1,000 x 64 on one rank that Adagrad trains in the backward pass, compared with the
    dense kernel and torch's Adagrad."""
    for count in (10, 100, 1000):
        bench.compare(
            f"the sparse part of a step, {count} tables",
            {part: ranks(1, WORKER, part, "table_wise", count) for part in ("fused", "dense")},
            [Ratio(f"tables_{count}", EXAMPLES, "fused", "dense")],
        )


@benchmark()
def sharded_state(bench: Bench) -> None:
    """Peak memory of a rank compared with its shards and with the docs' formula, and the pause of
    training for an asynchronous save compared with one copy."""
    side, rank = "a rank", ranks(2, "benchmarks.workers.sharded_state")
    # Makes glibc return freed memory to the system, so that only memory in use is measured.
    environment = {**rank.environment, "MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
    bench.compare(
        "a table of 1,600,000 x 64 in row ranges over 2 ranks",
        {side: replace(rank, environment=environment)},
        [
            Ratio("peak", "peak_bytes", side, side, "state_bytes"),
            Ratio("stated", "peak_bytes", side, side, "stated_bytes", bound=Bound(at_most=1.0)),
            Ratio("hold", "hold_us", side, side, "copy_us", bound=Bound(at_most=1.5)),
        ],
    )
