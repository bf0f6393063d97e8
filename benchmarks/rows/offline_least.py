"""DLRM-v2 in bfloat16, best against best: TorchRec's whole model beside the least that any model on
these libraries does, its lookups and the products of its linear layers and nothing between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from benchmarks.blocks import interleaved
from benchmarks.children import PEER_PYTHON, child_side
from benchmarks.harness import About, Row, Series, paired_row, pinned
from benchmarks.packages import messages, package_of
from benchmarks.peer_files import write_batch, write_model, write_weights
from benchmarks.rows.offline import MODES
from embershard._proto import predictor_pb2 as pb
from embershard.data import Workload, workload
from embershard.serving import LocalPredictor

__all__ = ["measure"]

PEERS = True

EXAMPLES = 256
PAIRS = 15
BLOCK_SECONDS = 0.4


def measure() -> list[Row]:
    """One thread and two."""
    asked = workload("dlrm_v2_100")
    with TemporaryDirectory() as folder:
        write_model(asked, Path(folder))
        write_weights(asked, Path(folder))
        write_batch(asked, asked.request(np.random.default_rng(3), EXAMPLES), Path(folder))
        return [row for threads in (1, 2) for row in _measured(asked, Path(folder), threads)]


def _measured(asked: Workload, folder: Path, threads: int) -> Iterator[Row]:
    title, environment, dense = MODES["bf16"]
    package = package_of(asked, devices=f"{threads}xcpu", dense_dtype=dense)
    command: list[str | Path] = [PEER_PYTHON, "-W", "ignore", "-m"]
    command += ["benchmarks.peers.torchrec_offline", folder, "bf16", str(threads)]
    cores = set(range(threads))
    with (
        pinned(cores),
        child_side(title, command, cores=[cores], environment=environment) as peer,
    ):
        sides = [_whole(asked, package, threads), _least(asked, package, threads)]

        def peers() -> float:
            work = peer.block(BLOCK_SECONDS)
            return work.units / work.seconds

        (whole, least, theirs), watch = interleaved([*sides, peers], blocks=PAIRS)
    what = (
        f"*{asked.name}*, {EXAMPLES} examples a batch, {threads} "
        f"thread{'s' if threads > 1 else ''}, bf16 dense"
    )
    parts = Series("lookups and products of linear layers alone", least)
    for name, ours, other in (
        ("allowed", parts, Series(title, theirs)),
        ("of_allowed", Series("LocalPredictor", whole), parts),
    ):
        about = About(name=f"offline_least/{name}_{threads}t", what=what, unit="examples/s")
        yield paired_row(about, ours, other, watch=watch)


def _whole(asked: Workload, package: Path, threads: int) -> Callable[[], float]:
    predictor = LocalPredictor(package, tables="resident", threads=threads)
    serialized = messages(asked, package, 1, EXAMPLES)

    def run() -> float:
        examples, begin = 0, time.perf_counter()
        while (passed := time.perf_counter() - begin) < BLOCK_SECONDS:
            predictor.predict_merged(serialized)
            examples += EXAMPLES
        return examples / passed

    return run


def _least(asked: Workload, package: Path, threads: int) -> Callable[[], float]:
    """A share of the batch on each core: lookups by the model's own clock, as they find the caches
    in a model; then products, which have the caches to themselves."""
    share = EXAMPLES // threads
    serialized = messages(asked, package, 1, share)
    predictors = [LocalPredictor(package, tables="resident", threads=1) for _ in range(threads)]
    layers = [_products(asked, share) for _ in predictors]

    def work(predictor: LocalPredictor, products: Callable[[], None]) -> float:
        torch.set_num_threads(1)  # Of this thread.
        lookup_us: list[int] = []
        end = time.perf_counter() + BLOCK_SECONDS / 2
        while time.perf_counter() < end:
            [answer] = predictor.predict_merged(serialized)
            if isinstance(answer, Exception):
                raise answer
            lookup_us.append(pb.PredictResponse.FromString(answer).timing.lookup_us)
        count, begin = 0, time.perf_counter()
        while (passed := time.perf_counter() - begin) < BLOCK_SECONDS / 2:
            products()
            count += 1
        return share / (float(np.mean(lookup_us)) * 1e-6 + passed / count)

    def run() -> float:
        with ThreadPoolExecutor(threads) as pool:
            return sum(pool.map(work, predictors, layers))

    return run


def _products(asked: Workload, rows: int) -> Callable[[], None]:
    """Of each matrix of the dense program, packed once, with so many rows of bfloat16."""
    product = torch.ops.mkldnn._linear_pointwise
    pairs = [
        (
            torch.randn(rows, weight.shape[1], dtype=torch.bfloat16),
            torch.ops.mkldnn._reorder_linear_weight(weight.to(torch.bfloat16), rows),
        )
        for weight in _matrices(asked)
    ]

    def run() -> None:
        with torch.inference_mode():
            for x, packed in pairs:
                product(x, packed, None, "none", [], "")

    return run


def _matrices(asked: Workload) -> Sequence[torch.Tensor]:
    return [
        each.detach()
        for name, each in asked.model().named_parameters()
        if each.dim() == 2 and "embedding" not in name
    ]
