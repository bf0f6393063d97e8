"""An export of a model holds a slice of a table, never a copy of it. An export of a state folder
does not even hold the table."""

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
ROW_BYTES = 256

START = """
import os, sys
from embershard.export import export_checkpoint, export_model
from tests.export.test_memory import make, peak_bytes

# Loads what an export needs.
os.environ["ROWS"], os.environ["DEVICE"] = "10", "cpu"
export_model(*make(), f"{sys.argv[1]}/m/1")
os.environ["ROWS"], os.environ["DEVICE"] = sys.argv[2:]
"""
EXPORT = """
model = make()
before = peak_bytes()
export_model(*model, f"{sys.argv[1]}/m/2")
print(peak_bytes() - before)
"""
EXPORT_FOLDER = """
before = peak_bytes()
export_checkpoint(
    f"{sys.argv[1]}/state", f"{sys.argv[1]}/m/2", model="tests.export.test_memory:make"
)
print(peak_bytes() - before)
"""


def peak_bytes():
    """Peak memory of this process. `ru_maxrss` would include the process that started it."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def make():
    torch.manual_seed(0)
    rows = int(os.environ["ROWS"])
    tables = [
        EmbeddingBagConfig(name="t", num_embeddings=rows, embedding_dim=64, feature_names=["x"])
    ]
    collection = EmbeddingBagCollection(tables, device=os.environ["DEVICE"])
    module = Forward(lambda m, d, s: m.e(s)["x"].sum(1), e=collection)
    return module, Schema(sparse=[SparseInput("x")])


def grown_bytes(script, folder, table_bytes, device):
    done = subprocess.run(
        [sys.executable, "-c", START + script, folder, str(table_bytes // ROW_BYTES), device],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (stored,) = (folder / "m/2/tables/t").iterdir()
    assert stored.stat().st_size > table_bytes / 4
    return int(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_peak_memory_grows_by_less_than_a_quarter_of_the_table(tmp_path):
    table_bytes = 200 * MIB
    assert grown_bytes(EXPORT, tmp_path, table_bytes, "cpu") < table_bytes / 4


@pytest.mark.slow
def test_a_folder_is_exported_in_less_than_half_of_its_table(tmp_path, monkeypatch):
    table_bytes = 448 * MIB  # Reading takes seven chunks of 64 MiB.
    monkeypatch.setenv("ROWS", str(table_bytes // ROW_BYTES))
    monkeypatch.setenv("DEVICE", "meta")
    module, _ = make()
    (tmp_path / "tables").mkdir()
    MappedTables(tmp_path / "tables").place(module)
    save_state(module, tmp_path / "state")
    assert grown_bytes(EXPORT_FOLDER, tmp_path, table_bytes, "meta") < table_bytes / 2
