"""Parquet files: scoring, reading, and request rows compared with impression rows."""

from benchmarks.harness import Bench, Ratio, benchmark
from benchmarks.parquet_tasks import ParquetSide
from benchmarks.statistics import Bound

TASK = "the five commands' task: 200,000 rows, 12 dense and 21 sparse inputs, DLRM, 2 tasks"


@benchmark()
def score(bench: Bench) -> None:
    """`embershard score`, and the predictor with the same rows in memory."""
    sides = ("files", "rows", "requests")
    bench.compare(
        TASK,
        {side: ParquetSide(worker="score", arguments=(side,)) for side in sides},
        [
            Ratio("rate", "rows_per_second", "files", "requests", bound=Bound(0.8)),
            Ratio("cpu", "rows_per_cpu_second", "files", "requests"),
            Ratio("beside_rows", "rows_per_second", "files", "rows"),
        ],
    )


@benchmark()
def parquet_reader(bench: Bench) -> None:
    """Share of a training step that waits for the reader, and the reader and a DataLoader."""
    sides = {
        reader: ParquetSide(
            worker="parquet_training",
            arguments=("ranker.toml", reader),
            is_peer=reader == "loader",
        )
        for reader in ("training", "batches", "loader")
    }
    bench.compare(
        f"{TASK}, batches of 256",
        sides,
        [
            Ratio("wait", "wait_us", "training", "training", "step_us", Bound(at_most=0.1)),
            Ratio("cpu", "reader_cpu_us", "training", "training", "step_cpu_us"),
            Ratio("loader", "examples_per_second", "batches", "loader"),
        ],
    )


@benchmark()
def request_rows(bench: Bench) -> None:
    """Training on request rows, and on impression rows with the same examples."""
    for model in ("dlrm", "two_tower"):
        for candidates in (20, 200):
            sides = {
                rows: ParquetSide(
                    worker="parquet_training",
                    arguments=(f"{model}_{rows}.toml", "training"),
                    task=candidates,
                )
                for rows in ("request", "impression")
            }
            name = f"{model}_{candidates}"
            bench.compare(
                f"{model}, {candidates} candidates a request, batches of 4,096 examples",
                sides,
                [
                    Ratio(name, "examples_per_second", "request", "impression"),
                    Ratio(f"{name}_cpu", "examples_per_cpu_second", "request", "impression"),
                ],
                blocks=12,
            )
