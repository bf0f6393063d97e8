"""The example scores on a local Ray cluster what `embershard score` scores here."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embershard.score import BatchScorer
from tests.repository.sources import ROOT
from tests.score.conftest import ROWS, package, rows  # noqa: F401

CLUSTER = """
import runpy, sys, tempfile
import ray

with tempfile.TemporaryDirectory(prefix="ray-") as folder:  # pytest's folder name is too long.
    ray.init("local", num_cpus=4, include_dashboard=False, object_store_memory=200 << 20,
             _node_ip_address="127.0.0.1", _temp_dir=folder)
    runpy.run_path(sys.argv.pop(1), run_name="__main__")
    ray.shutdown()
"""


def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
    example = ROOT / "examples/score_on_ray.py"
    return subprocess.run(
        [sys.executable, "-c", CLUSTER, example, *map(str, arguments)],
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_cluster_of_two_workers_gives_the_same_rows_by_key(
    package: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    pytest.importorskip("ray.data", reason="needs Ray: pip install 'ray[data]'")
    (tmp_path / "data").mkdir()
    for part in range(3):
        pq.write_table(rows().slice(part * 100, 100), tmp_path / "data" / f"{part}.parquet")

    job = run(package, "--data", tmp_path / "data", "--out", tmp_path / "out", "--batch-rows", "4")

    assert job.returncode == 0, job.stderr
    assert f"scored {ROWS} rows into" in job.stdout
    scored = pa.concat_tables(map(pq.read_table, (tmp_path / "out").glob("*.parquet")))
    scored = scored.sort_by("key")
    expected = BatchScorer(package)(rows())
    assert scored.column_names == expected.column_names
    assert scored["key"].to_pylist() == list(range(ROWS))
    np.testing.assert_allclose(
        scored["score"].to_numpy(), expected["score"].to_numpy(), rtol=1e-6, atol=1e-6
    )
    vectors = [np.stack(table["vector"].to_numpy()) for table in (scored, expected)]
    np.testing.assert_array_equal(*vectors)
