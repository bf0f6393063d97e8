"""What the manifest says of a module and its program."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence

import embershard.version
from embershard.errors import ExportError
from embershard.export.dense_program import DenseProgram
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
)
from embershard.package.schema import SparseInput
from embershard.package.schema_json import vocabulary_files
from embershard.package.writer import PackageContents, PackageWriter

__all__ = ["PROGRAM_FILE", "contents_of", "write_inputs"]

PROGRAM_FILE = "programs/dense.pt"
FBGEMM_DISTRIBUTIONS = ("fbgemm-gpu-cpu", "fbgemm-gpu")


def write_inputs(writer: PackageWriter, program: DenseProgram) -> list[InputSpec]:
    """Write the vocabularies; what the manifest says of the inputs."""
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


def contents_of(
    model: str,
    version: int,
    *,
    inputs: Sequence[InputSpec],
    program: DenseProgram,
    tables: Sequence[TableSpec],
    plan: str,
    limits: Limits,
) -> PackageContents:
    """What the manifest says, given what was written.

    Raises:
        ExportError: FBGEMM is not installed.
    """
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


def _fbgemm_version() -> str:
    for name in FBGEMM_DISTRIBUTIONS:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    raise ExportError(f"expected one of {FBGEMM_DISTRIBUTIONS} to be installed, got neither")
