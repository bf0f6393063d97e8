"""From a trained module to a published package."""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

import embershard.version
from embershard.errors import ExportError
from embershard.export.dense_program import DenseProgram
from embershard.export.program import build_program
from embershard.export.report import report_json
from embershard.export.samples import random_samples, scored
from embershard.export.tables import write_table
from embershard.export.torchscript import save_program
from embershard.export.weights import Weights, weights_of
from embershard.models import LogitModel, Score
from embershard.package.id_maps import Hash, Identity, Vocabulary
from embershard.package.manifest import (
    DenseInputSpec,
    HashIds,
    IdentityIds,
    Ids,
    InputSpec,
    Limits,
    Producer,
    ProgramSpec,
    SparseInputSpec,
    TableSpec,
    VocabIds,
    default_limits,
)
from embershard.package.plan import parse_devices, place_tables
from embershard.package.samples import SampleRequest
from embershard.package.schema import Schema, SparseInput
from embershard.package.schema_json import vocabulary_files
from embershard.package.writer import PackageContents, PackageWriter

__all__ = ["ExportProgress", "export_model"]

PROGRAM_FILE = "programs/dense.pt"
FBGEMM_DISTRIBUTIONS = ("fbgemm-gpu-cpu", "fbgemm-gpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportProgress:
    """How far an export is."""

    table: str
    rows_done: int
    """Over all tables."""

    rows_total: int


def export_model(
    module: nn.Module,
    schema: Schema,
    out: str | Path,
    *,
    weights: Weights = "int8",
    devices: str = "1xcpu",
    samples: Sequence[SampleRequest] | None = None,
    limits: Limits | None = None,
    progress: Callable[[ExportProgress], None] | None = None,
    seed: int = 0,
) -> Path:
    """Export a module as a package: quantized tables, id maps, a plan and the dense program.

    Everything is written beside ``out`` and appears there whole, or not at all. The program is
    compared with the module on random batches first, and the package carries requests with the
    outputs that its own bytes must give.

    Args:
        module: ``forward(dense, sparse)``: float32 ``(B, inputs)`` in schema order and a
            KeyedJaggedTensor of rows; gives a tensor (the output ``score``) or a dict of them. It
            must trace with torch.fx. A ``LogitModel`` is exported as the sigmoid of its logits.
            Left as it was; tables are read slice by slice.
        schema: the inputs.
        out: ``<repository>/<model>/<version>``; must not be there yet.
        weights: how tables are stored: int8, int4 or fp16, or a mapping from patterns of table
            names.
        devices: what the default plan places the tables on: ``2xcpu``.
        samples: real requests; their outputs are computed anew. None: a few random ones.
        limits: most that one request may hold. None: 4096 examples, 2**20 ids.
        progress: called as rows are written.
        seed: of everything random.

    Returns:
        ``out``.

    Raises:
        ExportError: a module that cannot be exported, or arguments that do not fit it.
        InputError: something is at ``out`` already, or devices that cannot be read.
    """
    started = time.monotonic()
    model, version = _identity(Path(out))
    placed = parse_devices(devices)
    program = build_program(
        Score(module) if isinstance(module, LogitModel) else module, schema, seed=seed
    )
    kinds = weights_of(program.layout.tables, weights)
    limits = limits or default_limits()
    given = samples or random_samples(
        schema, program.layout, max_examples=limits.max_examples, seed=seed
    )
    with PackageWriter(Path(out)) as writer:
        tables = []
        report_progress = _Progress(program, progress)
        for name, weight in program.layout.tables.items():
            written = report_progress.of_table(name)
            tables.append(write_table(writer, name, weight, kinds[name], written=written))
        inputs = _inputs(writer, program)
        plan = place_tables(tables, placed)
        writer.add_plan(plan)
        save_program(program.script, writer.new_file(PROGRAM_FILE))
        checked = scored(given, program, kinds)
        writer.add_samples(checked)
        seconds = time.monotonic() - started
        writer.add_file(
            "report/report.json", report_json(tables, samples=len(checked), seconds=seconds)
        )
        return writer.publish(_contents(model, version, inputs, program, tables, plan.name, limits))


class _Progress:
    def __init__(
        self, program: DenseProgram, progress: Callable[[ExportProgress], None] | None
    ) -> None:
        self._progress = progress
        self._total = sum(len(weight) for weight in program.layout.tables.values())
        self._done = 0

    def of_table(self, name: str) -> Callable[[int], None]:
        def written(rows: int) -> None:
            self._done += rows
            if self._progress is not None:
                self._progress(
                    ExportProgress(table=name, rows_done=self._done, rows_total=self._total)
                )

        return written


def _identity(out: Path) -> tuple[str, int]:
    """Model and version, from the path."""
    version = out.name
    if not (version.isascii() and version.isdigit() and version[0] != "0"):
        raise ExportError(
            f"out: expected <repository>/<model>/<version>, the version a number from 1, got {out}"
        )
    model = out.absolute().parent.name
    return model, int(version)


def _inputs(writer: PackageWriter, program: DenseProgram) -> list[InputSpec]:
    """The manifest's inputs; vocabularies are written on the way."""
    schema = program.schema
    files = vocabulary_files(schema)
    paths: dict[str, str] = {}
    inputs: list[InputSpec] = [
        DenseInputSpec(kind="dense", name=item.name, scope=item.scope, default=item.default)
        for item in schema.dense
    ]
    for item in schema.sparse:
        file = files.get(item.name)
        if file is not None and file not in paths:
            assert isinstance(item.ids, Vocabulary)
            paths[file] = writer.add_vocabulary(file, item.ids)
        inputs.append(
            SparseInputSpec(
                kind="sparse",
                name=item.name,
                scope=item.scope,
                weighted=item.weighted,
                max_ids=item.max_ids,
                keep=item.keep,
                ids=_ids(item, program.layout.rows(item), paths[file] if file else ""),
                lookups=program.layout.of_input(item.name),
            )
        )
    return inputs


def _ids(item: SparseInput, rows: int, file: str) -> Ids:
    match item.ids:
        case Hash():
            return HashIds(kind="hash", rows=rows, seed=item.ids.seed)
        case Vocabulary():
            unknown = item.ids.unknown
            oov_row = rows - 1 if unknown == "oov" else None
            return VocabIds(kind="vocab", rows=rows, file=file, unknown=unknown, oov_row=oov_row)
        case Identity():
            unknown = item.ids.unknown
            oov_row = rows - 1 if unknown == "oov" else None
            return IdentityIds(kind="identity", rows=rows, unknown=unknown, oov_row=oov_row)
        case None:
            return IdentityIds(kind="identity", rows=rows, unknown="reject", oov_row=None)


def _contents(
    model: str,
    version: int,
    inputs: Sequence[InputSpec],
    program: DenseProgram,
    tables: Sequence[TableSpec],
    plan: str,
    limits: Limits,
) -> PackageContents:
    return PackageContents(
        model=model,
        version=version,
        producer=Producer(
            embershard=embershard.version.__version__,
            torch=importlib.metadata.version("torch"),
            fbgemm_gpu=_fbgemm_version(),
        ),
        inputs=inputs,
        outputs=program.outputs,
        tables=tables,
        programs=[
            ProgramSpec(kind="torchscript", target="cpu", dtype="float32", file=PROGRAM_FILE)
        ],
        plans=[plan],
        limits=limits,
    )


def _fbgemm_version() -> str:
    for name in FBGEMM_DISTRIBUTIONS:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    raise ExportError(f"expected one of {FBGEMM_DISTRIBUTIONS} to be installed, got neither")
