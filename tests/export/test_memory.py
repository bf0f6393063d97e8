"""An export holds a slice of a table beside the table, never a second copy of it."""

import subprocess
import sys
from pathlib import Path

import pytest

TABLE_BYTES = 200 << 20

EXPORT = f"""
import resource, sys
import torch
from embershard.export import export_model
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.package import Schema, SparseInput
from tests.export.expanding import Forward

def ranker(rows):
    torch.manual_seed(0)
    tables = [
        EmbeddingBagConfig(name="t", num_embeddings=rows, embedding_dim=64, feature_names=["x"])
    ]
    return Forward(lambda m, d, s: m.e(s)["x"].sum(1), e=EmbeddingBagCollection(tables))

def export(module, version):
    export_model(module, Schema(sparse=[SparseInput("x")]), f"{{sys.argv[1]}}/m/{{version}}")

export(ranker(10), 1)  # Loads what an export needs.
module = ranker({TABLE_BYTES} // 256)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
export(module, 2)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_the_peak_of_memory_grows_by_less_than_a_quarter_of_the_table(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", EXPORT, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    grown_bytes = 1024 * int(done.stdout.splitlines()[-1])
    assert grown_bytes < TABLE_BYTES / 4
    assert (tmp_path / "m/2/tables/t/00000.safetensors").stat().st_size > TABLE_BYTES / 4
