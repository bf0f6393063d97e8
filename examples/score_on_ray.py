"""Scores Parquet files with a package on a Ray cluster, and writes Parquet files.

pip install 'ray[data]', then
python examples/score_on_ray.py repository/ranker/1 --data candidates/ --out scores --workers 2

The package must be on storage that all nodes mount. So must the data and the output, unless they
are URLs. Rows keep their columns but not their order, so the data should have a key column.
"""

import argparse
from collections.abc import Sequence

import pyarrow as pa
import ray
import ray.data

from embershard.score import BatchScorer

BATCHES_PER_BLOCK = 16


class Scorer:
    """A `BatchScorer` that also accepts batches without rows."""

    def __init__(self, package: str, threads: int) -> None:
        self._scorer = BatchScorer(package, threads=threads)

    def __call__(self, rows: pa.Table) -> pa.Table:
        return self._scorer(rows) if len(rows) else rows


def score(
    package: str, files: Sequence[str], out: str, *, workers: int, cores: int, batch_rows: int
) -> int:
    """Score every row of the files, and return the number of written rows.

    Args:
        package: folder of one version, the same on every node.
        files: files and folders of Parquet files.
        workers: number of processes that score. Each has the package in memory.
        batch_rows: rows of a worker's call.
    """
    # Ray would join small files to one block for a single worker.
    blocks = ray.data.read_parquet(list(files)).repartition(
        target_num_rows_per_block=BATCHES_PER_BLOCK * batch_rows
    )
    scored = blocks.map_batches(
        Scorer,
        fn_constructor_args=(package, cores),
        compute=ray.data.ActorPoolStrategy(size=workers),
        num_cpus=cores,
        batch_size=batch_rows,
        batch_format="pyarrow",
    )
    scored.write_parquet(out)
    rows: int = ray.data.read_parquet(out).count()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("package", help="folder of one version")
    parser.add_argument("--data", nargs="+", required=True, help="Parquet files or folders")
    parser.add_argument("--out", required=True, help="new folder to write to")
    parser.add_argument("--workers", type=int, default=2, help="processes that score (default: 2)")
    parser.add_argument("--cores", type=int, default=1, help="cores of a worker (default: 1)")
    parser.add_argument("--batch-rows", type=int, default=8192, help="rows of a batch")
    args = parser.parse_args()
    ray.init(ignore_reinit_error=True)
    cluster_cores = int(ray.cluster_resources()["CPU"])
    if args.workers * args.cores >= cluster_cores:
        parser.error(
            f"--workers x --cores: expected fewer than the cluster's {cluster_cores} cores, since "
            f"Ray needs one to read and write, got {args.workers * args.cores}"
        )
    rows = score(
        args.package,
        args.data,
        args.out,
        workers=args.workers,
        cores=args.cores,
        batch_rows=args.batch_rows,
    )
    print(f"scored {rows:,} rows into {args.out}")


if __name__ == "__main__":
    main()
