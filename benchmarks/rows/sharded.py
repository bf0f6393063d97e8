"""Sharded training: DLRM, 26 tables of 100,000 x 64, one id a bag, 512 examples a rank, gloo."""

from dataclasses import replace

from benchmarks.harness import Bench, Ratio, benchmark
from benchmarks.local import Child, ranks
from benchmarks.sharded_step import PEER_WORKER, WORKER
from benchmarks.statistics import Bound

EXAMPLES, CPU = "examples_per_second", "examples_per_cpu_second"
TABLES = 26


@benchmark(peers=True)
def sharded_training(bench: Bench) -> None:
    """A step beside TorchRec's, row-wise Adagrad: the whole step, and the sparse part alone."""
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
    """Two ranks beside one; with a pipeline, access counts, and vectors in fewer bits."""

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
        {"fp32": side("sparse"), **{each: side(each) for each in ("counted", *comms)}},
        [
            Ratio("access_counts", CPU, "counted", "fp32"),
            *(Ratio(f"{each}_bytes", "vector_bytes_a_step", each, "fp32") for each in comms),
            *(Ratio(f"{each}_cpu", CPU, each, "fp32") for each in comms),
        ],
    )


@benchmark()
def sharded_kernels(bench: Bench) -> None:
    """Tables that train in backward beside those of the dense kernel, which an optimizer of torch
    trains: 1,000 rows x 64 each, Adagrad, one rank."""
    for count in (10, 100, 1000):
        bench.compare(
            f"the sparse part of a step, {count} tables",
            {part: ranks(1, WORKER, part, "table_wise", count) for part in ("fused", "dense")},
            [Ratio(f"tables_{count}", EXAMPLES, "fused", "dense")],
        )


@benchmark()
def sharded_state(bench: Bench) -> None:
    """Peak memory of a rank beside its shards and what the docs state; how long an asynchronous
    save holds training beside one copy."""
    side, rank = "a rank", ranks(2, "benchmarks.workers.sharded_state")
    # glibc then returns what is freed to the system: buffers are measured, not its heap.
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
