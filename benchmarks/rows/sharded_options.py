"""Options of sharded training beside each other: ranks, pipeline, quantized communication, access
counts. The model is that of `sharded_training`."""

from benchmarks.harness import Bench, Ratio
from benchmarks.local import Child, ranks
from benchmarks.sharded_step import WORKER

TABLES = 26
COMMS = ("fp16", "bf16", "int8")


def measure(bench: Bench) -> None:
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
            Ratio("ranks", "examples_per_second", "two ranks", "one rank"),
            Ratio("pipeline", "examples_per_second", "pipeline", "two ranks"),
        ],
    )
    bench.compare(
        "the sparse part of a step, row_wise, 2 ranks",
        {
            "fp32": side("sparse"),
            "counted": side("counted"),
            **{each: side(each) for each in COMMS},
        },
        [
            Ratio("access_counts", "examples_per_cpu_second", "counted", "fp32"),
            *(Ratio(f"{each}_bytes", "vector_bytes_a_step", each, "fp32") for each in COMMS),
            *(Ratio(f"{each}_cpu", "examples_per_cpu_second", each, "fp32") for each in COMMS),
        ],
    )
