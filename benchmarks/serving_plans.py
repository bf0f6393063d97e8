"""``python -m benchmarks.serving_plans``: lookups of a server over two devices, by its plan.

Random models of 20 to 60 skewed tables. Of each, one package with four plans: the planner's, that
of the rule which placed tables by bytes read before (``placement_by_bytes``), tables by size, and
replicas of everything. One server each, and a second one with the planner's plan, whose ratio to
the first is the error of the measurement; one batch at a time; blocks of requests alternate A B C D
E, E D C B A. Planned by some requests, measured on others. Time is that of the busiest device, in
the mean over requests, of each request the least of all blocks; "over half" is that over half of
the work of both devices, which no plan of this work is below.
"""

from __future__ import annotations

import argparse
import shutil
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import grpc
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks.packages import message
from benchmarks.placement_by_bytes import place_by_bytes
from embershard.export import export_model
from embershard.jagged import KeyedJaggedTensor
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.package import (
    Identity,
    Package,
    Plan,
    SampleRequest,
    Schema,
    SparseInput,
    add_plan,
    ids_of_tables,
    make_plan,
)
from embershard.planner import Machine, load_of, parse_fleet, plan_package, read_machine
from embershard.planner.default_machine import default_machine
from embershard.planner.served_devices import ServedBatches, compare_devices
from embershard.serving import Server, ServerOptions

DEVICES = "2xcpu"
EXAMPLES = 256
PLANNED, MEASURED = 16, 32
"""Requests that the load is of, and others that are sent."""

PREDICT = "/embershard.v1.Predictor/Predict"
SIDES = ("planner", "by bytes", "table", "replicate", "again")


class DrawnTable(NamedTuple):
    """A table and its lookups."""

    name: str
    rows: int
    dim: int
    pooling: float
    skew: float
    """Of the ids: 1 is uniform, more is hotter."""


class Model(nn.Module):
    """The sum of all vectors: lookups alone."""

    def __init__(self, tables: Sequence[DrawnTable]) -> None:
        super().__init__()
        self.tables = EmbeddingBagCollection(
            [
                EmbeddingBagConfig(
                    name=each.name,
                    num_embeddings=each.rows,
                    embedding_dim=each.dim,
                    feature_names=[f"f_{each.name}"],
                )
                for each in tables
            ]
        )

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        """Scores ``[B]``; ``dense`` has no columns."""
        pooled: torch.Tensor = self.tables(sparse).values()
        return pooled.sum(1)


def draw_tables(random: np.random.Generator) -> list[DrawnTable]:
    """20 to 60 tables of a model."""
    return [
        DrawnTable(
            name=f"t{at:02}",
            rows=int(10 ** random.uniform(2, 5.5)),
            dim=int(random.choice((16, 32, 64, 128))),
            pooling=float(min(random.lognormal(1.0, 1.2), 60.0)),
            skew=float(random.uniform(1, 6)),
        )
        for at in range(int(random.integers(20, 61)))
    ]


def draw_request(tables: Sequence[DrawnTable], random: np.random.Generator) -> SampleRequest:
    """A request of ``EXAMPLES`` examples."""
    lengths = np.concatenate([random.poisson(each.pooling, EXAMPLES) for each in tables])
    values = np.concatenate(
        [
            (each.rows * random.random(int(of_table.sum())) ** each.skew).astype(np.int64)
            for each, of_table in zip(tables, np.split(lengths, len(tables)), strict=True)
        ]
    )
    return SampleRequest(
        num_examples=EXAMPLES,
        request_dense=np.zeros(0, np.float32),
        example_dense=np.zeros((EXAMPLES, 0), np.float32),
        lengths=lengths.astype(np.int32),
        values=values,
        weights=np.zeros(0, np.float32),
        outputs={},
    )


def export(tables: Sequence[DrawnTable], samples: Sequence[SampleRequest], out: Path) -> None:
    """Write the package of the model."""
    schema = Schema(
        dense=[],
        sparse=[SparseInput(f"f_{each.name}", ids=Identity(each.rows)) for each in tables],
    )
    export_model(Model(tables), schema, out, samples=samples)


def plans(package: Package, machine: Machine) -> dict[str, Plan]:
    """One a side."""
    manifest, fleet = package.manifest, parse_fleet(DEVICES)
    load = load_of(manifest.tables, manifest.sparse, package.samples(), source="samples")
    ours = plan_package(
        manifest.tables, fleet, load, machine, name="planner", batch_examples=EXAMPLES
    )
    rule = place_by_bytes(manifest.tables, fleet.devices, ids_of_tables(package))
    return {
        "planner": ours,
        "by bytes": ours.model_copy(update={"name": "by-bytes", "shards": tuple(rule)}),
        **{
            name: make_plan(package, fleet.devices, name=name, strategy=name)
            for name in ("table", "replicate")
        },
    }


class Side:
    """A server with one plan, asked over one connection."""

    def __init__(self, stack: ExitStack, repository: Path, plan: str, threads: int) -> None:
        options = ServerOptions(port=0, threads=threads, slots=1, plan=plan, tables="resident")
        self._server = stack.enter_context(Server(repository, options=options))
        channel = stack.enter_context(grpc.insecure_channel(self._server.address))
        self._predict = channel.unary_unary(PREDICT)

    def read(self) -> NDArray[np.float64]:
        """Since the start: seconds of lookups, and of each device."""
        metrics = self._server.metrics()
        devices = metrics.by("embershard_device_lookup_seconds", "device")
        whole = metrics.histogram("embershard_lookup_seconds").sum
        return np.array([whole, *(devices[name] for name in sorted(devices))])

    def block(self, requests: Sequence[bytes]) -> NDArray[np.float64]:
        """Seconds of each request's lookups: whole, and on each device."""
        read = [self.read()]
        for each in requests:
            self._predict(each, timeout=60, wait_for_ready=True)
            read.append(self.read())
        return np.diff(np.array(read), axis=0)


def measure(
    seed: int, machine: Machine, given: argparse.Namespace
) -> tuple[list[str], list[float]]:
    """A row of the table: its head, and its ratios."""
    random = np.random.default_rng(seed)
    tables = draw_tables(random)
    planned = [draw_request(tables, random) for _ in range(PLANNED)]
    kept = given.packages / str(seed) / "model" / "1"
    if not kept.exists():
        export(tables, planned, kept)
    if not given.blocks:
        return [str(seed), str(len(tables)), "exported"], []
    with TemporaryDirectory() as folder, ExitStack() as stack:
        out = Path(folder) / "model" / "1"
        shutil.copytree(kept, out)
        package = Package.open(out)
        fingerprint = int(package.manifest.fingerprint, 16)
        requests = [message(draw_request(tables, random), fingerprint) for _ in range(MEASURED)]
        made = plans(package, machine)
        for plan in made.values():
            add_plan(out, plan)
        sides = {
            name: Side(stack, Path(folder), plan.name, given.threads)
            for name, plan in {**made, "again": made["planner"]}.items()
        }
        for side in sides.values():
            side.block(requests)
        blocks = {name: list[NDArray[np.float64]]() for name in sides}
        for block in range(given.blocks):
            for name in sorted(sides, reverse=bool(block % 2)):
                blocks[name].append(sides[name].block(requests))
        inputs = package.manifest.sparse
        load = load_of(package.manifest.tables, inputs, package.samples(), source="samples")
    # The least of all blocks: other processes only add to it.
    least = {name: np.min(each, axis=0) for name, each in blocks.items()}
    busiest = {name: float(each[:, 1:].max(1).mean()) for name, each in least.items()}
    seconds = dict(zip(made["planner"].devices, least["planner"][:, 1:].mean(0), strict=True))
    served = ServedBatches(examples=EXAMPLES, batches=1.0, seconds=seconds)
    compared = compare_devices(made["planner"], package.manifest.tables, load, machine, served)
    half = {name: float(each[:, 1:].sum(1).mean() / 2) for name, each in least.items()}
    ratios = [
        busiest["planner"] / busiest["by bytes"],
        busiest["again"] / busiest["planner"],
        busiest["planner"] / half["planner"],
        busiest["by bytes"] / half["by bytes"],
        1 / compared.factor,
    ]
    times = [f"{busiest[name] * 1e6:.0f}" for name in SIDES]
    return [str(seed), str(len(tables)), *times], ratios


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving_plans", description=__doc__)
    parser.add_argument("--machine", type=Path, help="a calibration; default: the one that ships")
    parser.add_argument("--models", type=int, default=10)
    parser.add_argument("--blocks", type=int, default=11, help="0: only export the packages")
    parser.add_argument(
        "--threads", type=int, default=1, help="1: one thread does both devices, one by one"
    )
    parser.add_argument("--packages", type=Path, required=True, help="folder that keeps packages")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    machine = default_machine() if given.machine is None else read_machine(given.machine)
    head = [
        "model", "tables", *(f"{name}, us" for name in SIDES), "planner / by bytes",
        "again / planner", "planner over half", "by bytes over half", "estimate / measured",
    ]  # fmt: skip
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
    ratios = list[list[float]]()
    for seed in range(given.models):
        cells, found = measure(seed, machine, given)
        ratios.append(found)
        print(f"| {' | '.join([*cells, *(f'{each:.3f}' for each in found)])} |", flush=True)
    means = np.exp(np.log(ratios).mean(0))
    print(f"geometric means: {', '.join(f'{each:.3f}' for each in means)}")


if __name__ == "__main__":
    main()
