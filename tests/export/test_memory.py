"""An export holds a slice of a table, never a copy of it; of a folder not even the table."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.package import Schema, SparseInput
from embershard.sharding import save_state
from embershard.training import MappedTables
from tests.export.expanding import Forward

MIB = 1 << 20
TABLE_BYTES = 128 * MIB
ROW_BYTES = 256

EXPORT = f"""
import sys
from embershard.export import export_model
from tests.export.test_memory import peak_bytes, ranker

export_model(*ranker({10 * ROW_BYTES}), f"{{sys.argv[1]}}/m/1")  # Loads what an export needs.
model = ranker({TABLE_BYTES})
before = peak_bytes()
export_model(*model, f"{{sys.argv[1]}}/m/2")
print(peak_bytes() - before)
"""
EXPORT_STATE = """
import os, sys
from embershard.export import export_checkpoint
from tests.export.test_memory import peak_bytes

peaks = []
for version, size in enumerate(sys.argv[2:], start=1):
    os.environ["TABLE_BYTES"] = size
    export_checkpoint(
        f"{sys.argv[1]}/{size}", f"{sys.argv[1]}/m/{version}",
        model="tests.export.test_memory:make",
    )
    peaks.append(peak_bytes())
print(peaks[1] - peaks[0])
"""


def peak_bytes():
    """Of this process: `ru_maxrss` begins with that of the process which started it."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def ranker(table_bytes, device=None):
    torch.manual_seed(0)
    rows = table_bytes // ROW_BYTES
    tables = [
        EmbeddingBagConfig(name="t", num_embeddings=rows, embedding_dim=64, feature_names=["x"])
    ]
    module = Forward(
        lambda m, d, s: m.e(s)["x"].sum(1), e=EmbeddingBagCollection(tables, device=device)
    )
    return module, Schema(sparse=[SparseInput("x")])


def make():
    return ranker(int(os.environ["TABLE_BYTES"]), device="meta")


def grown_bytes(script, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_the_peak_of_memory_grows_by_less_than_a_quarter_of_the_table(tmp_path):
    assert grown_bytes(EXPORT, tmp_path) < TABLE_BYTES / 4
    assert (tmp_path / "m/2/tables/t/00000.safetensors").stat().st_size > TABLE_BYTES / 4


@pytest.mark.slow
def test_the_peak_of_memory_of_an_exported_folder_is_that_of_a_smaller_table(tmp_path):
    sizes = TABLE_BYTES, 2 * TABLE_BYTES
    for size in sizes:
        (tmp_path / f"tables.{size}").mkdir()
        module, _ = ranker(size, device="meta")
        MappedTables(tmp_path / f"tables.{size}").place(module)
        save_state(module, tmp_path / str(size))
    assert grown_bytes(EXPORT_STATE, tmp_path, *sizes) < 16 * MIB
    assert (tmp_path / "m/2/tables/t/00000.safetensors").stat().st_size > TABLE_BYTES / 2
