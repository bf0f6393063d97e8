"""``python -m benchmarks.serving_plans``: lookups of a server over two devices, by its plan.

The random models of ``executed_plans``. Of each, one package with two plans: the planner's, and
TorchRec's, or without ``--peers`` whole tables by the bytes that their lookups read. One server
each; one batch at a time; blocks of requests alternate A B, B A. Where the pages of a table
lie changes its lookups: servers start anew for each copy, and what counts is the mean of copies.
Planned by some requests, measured on others. Time is that of the busiest device, in the mean over
requests, of each request the least of all blocks; "over half" is that over half of the work of both
devices, which no plan of this work is below.
"""

import argparse
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks.packages import message
from benchmarks.planner import greedy, torchrec
from benchmarks.planner_tables import (
    DrawnTable,
    SkewedTable,
    collection_of,
    parser_of,
    shards_of,
    skewed_model,
)
from benchmarks.servers import copy_package
from embershard.export import export_model
from embershard.formatting import row_text, table_lines
from embershard.jagged import KeyedJaggedTensor
from embershard.package import (
    Identity,
    Package,
    Plan,
    SampleRequest,
    Schema,
    SparseInput,
    add_plan,
)
from embershard.package.samples import SampleLists
from embershard.planner import Machine, load_of, parse_fleet, plan_package, serving_problem
from embershard.planner.served_devices import ServedBatches, compare_devices
from embershard.serving import Server, ServerOptions

DEVICES = "2xcpu"
EXAMPLES = 256
PLANNED, MEASURED = 16, 32
"""Requests that the load is of, and others that are sent."""

PREDICT = "/embershard.v1.Predictor/Predict"
SIDES = ("planner", "other")


class Model(nn.Module):
    """The sum of all vectors: lookups alone."""

    def __init__(self, tables: Sequence[SkewedTable]) -> None:
        super().__init__()
        self.tables = collection_of(tables, "cpu")

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        """Scores ``[B]``; ``dense`` has no columns."""
        pooled: torch.Tensor = self.tables(sparse).values()
        return pooled.sum(1)


def draw_request(tables: Sequence[SkewedTable], random: np.random.Generator) -> SampleRequest:
    """A request of ``EXAMPLES`` examples."""
    lengths = [random.poisson(each.pooling, EXAMPLES) for each in tables]
    lists = [
        SampleLists(of_table, each.draw(int(of_table.sum()), random), None)
        for each, of_table in zip(tables, lengths, strict=True)
    ]
    return SampleRequest.of_lists(
        np.zeros(0, np.float32), np.zeros((EXAMPLES, 0), np.float32), lists
    )


def export(tables: Sequence[SkewedTable], samples: Sequence[SampleRequest], out: Path) -> None:
    """Write the package of the model."""
    schema = Schema(
        dense=[],
        sparse=[SparseInput(each.name, ids=Identity(each.rows)) for each in tables],
    )
    export_model(Model(tables), schema, out, samples=samples)


def plans(
    package: Package, tables: Sequence[SkewedTable], machine: Machine, peers: Path | None
) -> dict[str, Plan]:
    """One a side."""
    manifest, fleet = package.manifest, parse_fleet(DEVICES)
    load = load_of(manifest.tables, manifest.sparse, package.samples(), source="samples")
    problem = serving_problem(manifest.tables, fleet, load, machine, batch_examples=EXAMPLES)
    ours = plan_package(problem, name="planner")
    devices = len(fleet.devices)
    if peers is None:
        rule = greedy(tables, devices, "greedy by lookups")
    else:
        drawn = [DrawnTable(each.name, each.rows, each.dim, each.pooling, 0.0) for each in tables]
        rule, *_ = torchrec(drawn, devices, 64 << 30, peers, is_inference=True)
    return {
        "planner": ours,
        "other": ours.model_copy(update={"name": "other", "shards": tuple(shards_of(rule))}),
    }


class Side:
    """A server with one plan, asked over one connection."""

    def __init__(self, stack: ExitStack, repository: Path, plan: str, threads: int) -> None:
        options = ServerOptions(port=0, threads=threads, slots=1, plan=plan, tables="resident")
        self._server = stack.enter_context(Server(repository, options=options))
        channel = stack.enter_context(grpc.insecure_channel(self._server.address))
        self._predict = channel.unary_unary(PREDICT)

    def read(self) -> NDArray[np.float64]:
        """Of lookups on each device, since the start."""
        devices = self._server.metrics().by("embershard_device_lookup_seconds", "device")
        return np.array([devices[name] for name in sorted(devices)])

    def block(self, requests: Sequence[bytes]) -> NDArray[np.float64]:
        """Seconds of each request's lookups on each device."""
        read = [self.read()]
        for each in requests:
            self._predict(each, timeout=60, wait_for_ready=True)
            read.append(self.read())
        return np.diff(np.array(read), axis=0)


def measured(
    repository: Path, made: dict[str, Plan], requests: Sequence[bytes], given: argparse.Namespace
) -> dict[str, NDArray[np.float64]]:
    """By plan: seconds of each request's lookups on each device, of one copy."""
    with ExitStack() as stack:
        sides = {
            name: Side(stack, repository, plan.name, given.threads) for name, plan in made.items()
        }
        for side in sides.values():
            side.block(requests)
        blocks = {name: list[NDArray[np.float64]]() for name in sides}
        for block in range(given.blocks):
            for name in sorted(sides, reverse=bool(block % 2)):
                blocks[name].append(sides[name].block(requests))
    # The least of all blocks: other processes only add to it.
    return {name: np.min(each, axis=0) for name, each in blocks.items()}


def measure(
    seed: int, given: argparse.Namespace
) -> tuple[list[str], list[float], tuple[float, ...]]:
    """A row of the table: its head, its ratios, and seconds of our plan, of the other, and of the
    bound."""
    random, tables = np.random.default_rng(seed), skewed_model(seed)
    planned = [draw_request(tables, random) for _ in range(PLANNED)]
    kept = given.packages / str(seed) / "model" / "1"
    if not kept.exists():
        export(tables, planned, kept)
    if not given.blocks:
        return [str(seed), str(len(tables)), "exported"], [], ()
    with TemporaryDirectory() as folder:
        out = Path(folder) / "model" / "1"
        copy_package(kept, out)
        package = Package.open(out)
        manifest = package.manifest
        fingerprint = int(manifest.fingerprint, 16)
        requests = [message(draw_request(tables, random), fingerprint) for _ in range(MEASURED)]
        made = plans(package, tables, given.machine, given.peers)
        for plan in made.values():
            add_plan(out, plan)
        copies = [measured(Path(folder), made, requests, given) for _ in range(given.copies)]
        load = load_of(manifest.tables, manifest.sparse, package.samples(), source="samples")
    found = {name: np.array([each[name] for each in copies]) for name in made}
    of_copies = {name: each.max(2).mean(1) for name, each in found.items()}
    busiest = {name: float(each.mean()) for name, each in of_copies.items()}
    half = {name: float(each.mean((0, 1)).sum() / 2) for name, each in found.items()}
    ours = made["planner"]
    seconds = dict(zip(ours.devices, found["planner"].mean((0, 1)), strict=True))
    served = ServedBatches(examples=EXAMPLES, batches=1.0, seconds=seconds)
    compared = compare_devices(ours, manifest.tables, load, given.machine, served)
    ratios = [
        busiest["planner"] / busiest["other"],
        float(of_copies["planner"][1::2].mean() / of_copies["planner"][::2].mean()),
        busiest["planner"] / half["planner"],
        busiest["other"] / half["other"],
        1 / compared.factor,
    ]
    times = [f"{busiest[name] * 1e6:.0f}" for name in SIDES]
    gap = busiest["planner"], busiest["other"], min(half["planner"], half["other"])
    return [str(seed), str(len(tables)), *times], ratios, gap


def main() -> None:
    """Print the table."""
    parser = parser_of("serving_plans", __doc__)
    parser.add_argument("--models", type=int, nargs="+", default=list(range(10)), help="seeds")
    parser.add_argument("--copies", type=int, default=4, help="at least 2")
    parser.add_argument("--blocks", type=int, default=3, help="0: only export the packages")
    parser.add_argument(
        "--threads", type=int, default=1, help="1: one thread does both devices, one by one"
    )
    parser.add_argument("--peers", type=Path, help="environment of TorchRec")
    parser.add_argument("--packages", type=Path, required=True, help="folder that keeps packages")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    head = [
        "model", "tables", *(f"{name}, us" for name in SIDES), "planner / other",
        "halves", "planner over half", "other over half", "estimate / measured",
    ]  # fmt: skip
    print(*table_lines(head), sep="\n")
    ratios, gaps = list[list[float]](), list[tuple[float, ...]]()
    for seed in given.models:
        cells, found, gap = measure(seed, given)
        ratios.append(found)
        gaps.append(gap)
        print(row_text([*cells, *(f"{each:.3f}" for each in found)]), flush=True)
    if not given.blocks:
        return
    means = np.exp(np.log(ratios).mean(0))
    print(f"geometric means: {', '.join(f'{each:.3f}' for each in means)}")
    ours, rule, bound = np.array(gaps).sum(0)
    print(f"gap closed {(rule - ours) / (rule - bound):.0%} of {1 - bound / rule:.1%}")


if __name__ == "__main__":
    main()
