"""Whole models in process, beside TorchRec's quantized ones: int8 tables, the same weights, the
same batch, and scores that are compared first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from benchmarks.children import PEER_PYTHON, child_side
from benchmarks.harness import About, Blocks, Row, compare, loop, pinned
from benchmarks.packages import message, package_of
from benchmarks.peer_files import write_batch, write_model, write_weights
from benchmarks.programs import machine_limit
from benchmarks.watch import Limit
from embershard._proto import predictor_pb2 as pb
from embershard.data import Workload, workload
from embershard.package import Package, SampleRequest
from embershard.serving import LocalPredictor

__all__ = ["PEERS", "measure", "score_of"]

PEERS = True

BATCHES = {"dlrm_v2_100": (256,), "rm2_10": (64,), "small": (1, 512), "ranking": (200,)}
"""Examples of the one request in a batch."""

TUNED = {"THP_MEM_ALLOC_ENABLE": "1"}
MODES: dict[str, tuple[str, dict[str, str], str]] = {
    "eager": ("TorchRec, eager", {}, "fp32"),
    "script": ("TorchRec, TorchScript, tuned", TUNED, "fp32"),
    "bf16": ("TorchRec, TorchScript, tuned, bf16 dense", TUNED, "bf16"),
}
"""Its name, its environment, and what our dense program takes beside it: in bf16 best is compared
with best."""

CLOSE = {"eager": 2e-3, "script": 2e-3, "bf16": 3e-2}
"""How far two scores may differ: what int8 tables allow, and what bfloat16 does."""

TIMING = Blocks(pairs=15)

LOOKUPS = {"rm2_10"}
"""Whose time is for the most part that of rows drawn at random: what memory gives of them is their
limit."""


def measure() -> list[Row]:
    """One thread and two."""
    rows: list[Row] = []
    with TemporaryDirectory() as folder:
        for name, batches in BATCHES.items():
            for examples in batches:
                rows += _measured(workload(name), examples, Path(folder))
    return rows


def _measured(asked: Workload, examples: int, folder: Path) -> Iterator[Row]:
    request = asked.request(np.random.default_rng(3), examples)
    write_model(asked, folder)
    write_weights(asked, folder)
    write_batch(asked, request, folder)
    for threads in (1, 2):
        for mode in MODES:
            yield _row(asked, request, folder, threads, mode)


def _row(asked: Workload, request: SampleRequest, folder: Path, threads: int, mode: str) -> Row:
    title, environment, dense = MODES[mode]
    package = package_of(asked, devices=f"{threads}xcpu", dense_dtype=dense)
    serialized = [message(request, int(Package.open(package).manifest.fingerprint, 16))]
    examples = request.num_examples
    with (
        pinned(set(range(threads))),
        child_side(
            title,
            [PEER_PYTHON, "-W", "ignore", "-m", "benchmarks.peers.torchrec_offline",
             folder, mode, str(threads)],
            cores=[set(range(threads))],
            environment=environment,
        ) as peer,
        _limit(asked, threads) as limit,
    ):  # fmt: skip
        predictor = LocalPredictor(package, tables="resident", threads=threads)
        ours = score_of(predictor, serialized)
        difference = float(np.abs(np.load(folder / f"{mode}.npy") - ours).max())
        if difference > CLOSE[mode]:
            raise AssertionError(f"{title}: scores differ by {difference}")

        def run() -> float:
            predictor.predict_merged(serialized)
            return examples

        return compare(
            About(
                name=f"offline/{asked.name}_{examples}_{threads}t_{mode}",
                what=f"*{asked.name}*, {examples} example{'s' if examples > 1 else ''} "
                f"a batch, {threads} thread{'s' if threads > 1 else ''}",
                unit="examples/s",
                note=f"scores differ by at most {difference:.1e}",
            ),
            ours=loop(f"LocalPredictor, {dense} dense", run),
            theirs=peer,
            limit=limit,
            blocks=TIMING,
        )


def _limit(asked: Workload, threads: int) -> AbstractContextManager[Limit | None]:
    """Examples a second if the rest of the model took no time."""
    if asked.name not in LOOKUPS:
        return nullcontext()
    rows = sum(each.rows for each in asked.sparse)
    per_example = sum(each.ids for each in asked.sparse)
    return machine_limit(
        "random rows", ["gather", str(asked.dim), str(rows)], threads=threads, scale=1 / per_example
    )


def score_of(predictor: LocalPredictor, serialized: list[bytes]) -> NDArray[np.float32]:
    """The scores of one request."""
    [answer] = predictor.predict_merged(serialized)
    if isinstance(answer, Exception):
        raise answer
    [output] = pb.PredictResponse.FromString(answer).outputs
    return np.frombuffer(output.values, "<f4")
