"""What the manifest says of a module and its program."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence

import embershard.version
from embershard.errors import ExportError
from embershard.export.dense_program import DenseProgram
from embershard.package.id_maps import Vocabulary
from embershard.package.input_specs import specs_of, with_lookups
from embershard.package.manifest import Limits, Producer, ProgramSpec, TableSpec
from embershard.package.manifest_inputs import InputSpec
from embershard.package.schema_json import vocabulary_files
from embershard.package.writer import PackageContents, PackageWriter

__all__ = ["PROGRAM_FILE", "contents_of", "write_inputs"]

PROGRAM_FILE = "programs/dense.pt"
FBGEMM_DISTRIBUTIONS = ("fbgemm-gpu-cpu", "fbgemm-gpu")


def write_inputs(writer: PackageWriter, program: DenseProgram) -> list[InputSpec]:
    """Write the vocabularies; what the manifest says of the inputs."""
    schema, layout = program.schema, program.layout
    files = vocabulary_files(schema)
    paths: dict[str, str] = {}
    for item in schema.sparse:
        file = files.get(item.name)
        if file is not None and file not in paths:
            assert isinstance(item.ids, Vocabulary)
            paths[file] = writer.add_vocabulary(file, item.ids)
    dense, sparse = specs_of(schema, {name: paths[file] for name, file in files.items()})
    looked_up = (
        with_lookups(kept, layout.of_input(item.name), rows=layout.rows(item))
        for kept, item in zip(sparse, schema.sparse, strict=True)
    )
    return [*dense, *looked_up]


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
            ProgramSpec(kind="torchscript", target="cpu", dtype=program.dtype, file=PROGRAM_FILE)
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
