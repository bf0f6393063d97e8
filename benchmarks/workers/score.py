"""Scores the rows of a folder of `benchmarks.parquet_tasks.clicks`. Speaks the protocol of `child`.

``python -m benchmarks.workers.score FOLDER SIDE``. The SIDE ``files`` does the same as `embershard
score`, ``rows`` scores Arrow batches in memory, ``requests`` passes requests to the predictor.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.child import answer
from embershard.data.parquet_files import find_files, read_footers
from embershard.score import BatchScorer, score_files
from embershard.score.files import row_batches
from embershard.serving import LocalPredictor

KEEP = ["user_id", "item_id"]


def main(folder: Path, side: str) -> None:
    package = folder / "repository" / "ranker" / "1"
    scorer, predictor = BatchScorer(package), LocalPredictor(package)
    files = find_files([str(folder / "clicks")], "clicks")
    batches = [
        rows
        for file, footer in zip(files, read_footers(files), strict=True)
        for rows in row_batches(scorer, file, footer, KEEP)
    ]
    requests = [[part.request for part in scorer.prepare(rows).requests] for rows in batches]
    count = sum(len(rows.numbers) for rows in batches)

    def run() -> float:
        match side:
            case "files":
                with TemporaryDirectory() as out:
                    return score_files(scorer, [str(folder / "clicks")], Path(out), keep=KEEP).rows
            case "rows":
                for rows in batches:
                    scorer.run(scorer.prepare(rows))
            case _:
                for batch in requests:
                    predictor.predict_merged(batch)
        return count

    answer("rows", run)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
