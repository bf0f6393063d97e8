"""Data sets and training runs for the benchmarks of Parquet files, made when they are needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.checkout import ROOT, Checkout, Command
from benchmarks.harness import Block, Session
from benchmarks.local import Child

CLICKS: Final = "clicks"
EXAMPLES: Final = 400_000

SHARED_IDS, OWN_IDS, DENSE, HISTORY = 4, 4, 12, 50
MODELS: Final = {"dlrm": "dense_layers = [64, 32]\n", "two_tower": ""}
"""Models that train on request rows, with TOML lines for their layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSide:
    """A worker in a task's folder. Sides of a comparison share the folder."""

    worker: str
    arguments: tuple[str, ...]
    task: str | int = CLICKS
    """``clicks`` for the five commands of README, or the number of candidates of each request."""

    is_peer: bool = False

    def start(self, session: Session, checkout: Checkout) -> Block:
        make = clicks if self.task == CLICKS else requests
        folder = session.shared((self.task, checkout), lambda: make(checkout, self.task))
        command = checkout.module(f"benchmarks.workers.{self.worker}", folder, *self.arguments)
        return Child(command=lambda _: command, cores=(), seconds=5.0).start(session, checkout)


@contextmanager
def clicks(checkout: Checkout, _: object) -> Iterator[Path]:
    """Make a folder with ``clicks/``, ``ranker.toml`` and the package ``repository/ranker/1``."""
    with TemporaryDirectory(prefix="clicks-") as name:
        folder = Path(name)
        make = ROOT / "examples" / "clicks" / "make_clicks.py"
        config, checkpoint = folder / "ranker.toml", folder / "checkpoints"
        Command((checkout.python, str(make), str(folder / "clicks"))).output()
        checkout.module("embershard", "data", "init", folder / "clicks", "--out", config).output()
        text = config.read_text().replace("epochs = 5", "epochs = 1")
        config.write_text(text.replace("checkpoints/ranker", str(checkpoint)))
        checkout.module("embershard", "train", config).output()
        package = folder / "repository" / "ranker" / "1"
        checkout.module("embershard", "export", checkpoint, "--out", package).output()
        yield folder


@contextmanager
def requests(_: Checkout, candidates: str | int) -> Iterator[Path]:
    """Make a folder with the same examples as request rows and as impression rows, and their
    configurations."""
    with TemporaryDirectory(prefix="requests-") as name:
        folder = Path(name)
        for rows, table in _tables(int(candidates)).items():
            pq.write_table(table, folder / f"{rows}.parquet", row_group_size=100_000)
            for model, layers in MODELS.items():
                text = _config(folder / f"{rows}.parquet", rows, model) + layers
                (folder / f"{model}_{rows}.toml").write_text(text)
        yield folder


def _tables(candidates: int) -> Mapping[str, pa.Table]:
    rng = np.random.default_rng(0)
    count = EXAMPLES // candidates
    shared = {f"user_{at}": pa.array(rng.integers(0, 10_000, count)) for at in range(SHARED_IDS)}
    shared["time"] = pa.array(np.arange(count))
    shared["history"] = _lists(rng.integers(0, 10_000, count * HISTORY), HISTORY)
    own: dict[str, NDArray[Any]] = {
        f"item_{at}": rng.integers(0, 10_000, EXAMPLES) for at in range(OWN_IDS)
    }
    own |= {f"dense_{at}": rng.random(EXAMPLES, np.float32) for at in range(DENSE)}
    own["click"] = rng.integers(0, 2, EXAMPLES)
    row_of = pa.array(np.repeat(np.arange(count), candidates))
    lists = {name: _lists(values, candidates) for name, values in own.items()}
    return {
        "request": pa.table(shared | lists),
        "impression": pa.table(
            {name: column.take(row_of) for name, column in shared.items()} | own
        ),
    }


def _lists(values: NDArray[Any], size: int) -> pa.Array:
    offsets = np.arange(0, len(values) + 1, size, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))


def _config(files: Path, rows: str, model: str) -> str:
    hashed = 'ids = "hash"\nbuckets = 20000\n'
    users = "".join(
        f'[data.sparse.{name}]\nscope = "request"\n{hashed}'
        for name in [*(f"user_{at}" for at in range(SHARED_IDS)), "history"]
    )
    items = "".join(f"[data.sparse.item_{at}]\n{hashed}" for at in range(OWN_IDS))
    dense = "".join(f"[data.dense.dense_{at}]\n" for at in range(DENSE))
    return (
        f'[data]\nname = "parquet"\nfiles = ["{files}"]\nrows = "{rows}"\n'
        f'[data.split]\nby = "time"\ncolumn = "time"\n{dense}{users}{items}'
        '[tasks.click]\nlabel = "click"\n'
        '[checkpoint]\nfolder = "checkpoints"\n'
        "[training]\nbatch_size = 4096\nthreads = 1\n"
        f'[model]\nname = "{model}"\nembedding_dim = 32\n'
    )
