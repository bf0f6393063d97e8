"""The models of manifest.json. docs/format.md is the manual, docs/manifest.schema.json the schema.
Each field is checked by itself; `embershard.package.manifest_checks` checks that fields agree."""

from __future__ import annotations

import math
from typing import Annotated, Final, Literal, TypeAlias

import xxhash
from pydantic import AfterValidator, ConfigDict, Field

from embershard.errors import InputError, NotFoundError
from embershard.package.manifest_inputs import (
    DenseInputSpec,
    FilePath,
    InputSpec,
    Name,
    Part,
    PlainName,
    Rows,
    SparseInputSpec,
)
from embershard.package.names import DIGEST_PATTERN
from embershard.package.row_format import RowFormat, WeightType
from embershard.package.schema import MAX_LENGTH, Scope
from embershard.package.validation import canonical_json

FORMAT_VERSION: Final = 0

CHUNK_ALIGN: Final = 4096
"""Bytes. The rows of a chunk start at a multiple of this, and full chunks are a multiple of it."""

CHUNK_BYTES_MAX: Final = 1 << 30


def _checked_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    if math.prod(shape) > MAX_LENGTH:
        raise ValueError(f"at most {MAX_LENGTH} values")
    return shape


Hex64: TypeAlias = Annotated[str, Field(pattern=DIGEST_PATTERN)]
DenseDtype: TypeAlias = Literal["float32", "bfloat16"]
Error: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Producer(Part):
    """Versions of the software that wrote the package."""

    embershard: str
    torch: str
    fbgemm_gpu: str


class OutputSpec(Part):
    """A named output, float32 ``[N or 1, *shape]``."""

    name: Name
    scope: Scope
    shape: Annotated[
        tuple[Annotated[int, Field(ge=1, le=MAX_LENGTH)], ...],
        Field(fail_fast=True),
        AfterValidator(_checked_shape),
    ]


class TableSpec(Part):
    """An embedding table and the files that hold its rows."""

    name: PlainName
    rows: Rows
    dim: Annotated[int, Field(ge=1)]
    weights: WeightType
    row_bytes: Annotated[int, Field(ge=1)]
    rows_per_chunk: Annotated[int, Field(ge=1, le=CHUNK_BYTES_MAX)]
    chunks: Annotated[tuple[FilePath, ...], Field(min_length=1, fail_fast=True)]
    mse: Error
    max_error: Error

    @property
    def row_format(self) -> RowFormat:
        return RowFormat(self.weights, self.dim)

    @property
    def table_bytes(self) -> int:
        return self.rows * self.row_bytes

    @property
    def fp32_bytes(self) -> int:
        return self.rows * self.dim * 4

    def with_error(self, *, mse: float, max_error: float) -> TableSpec:
        """A copy with the measured differences between stored values and float32 weights."""
        for field, value in (("mse", mse), ("max_error", max_error)):
            if not 0 <= value < math.inf:
                expected = "a finite number of at least 0"
                raise InputError(f"table {self.name}: {field}: expected {expected}, got {value}")
        return TableSpec(**{**self.__dict__, "mse": mse, "max_error": max_error})


class ProgramSpec(Part):
    """A dense program. Its inputs and outputs are float32; ``dtype`` is that of linear layers."""

    kind: Literal["torchscript"]
    target: Literal["cpu"]
    dtype: DenseDtype
    file: FilePath


class CompiledProgramSpec(Part):
    """A program that an earlier embershard compiled for one kind of machine. It is checked, but
    not run."""

    kind: Literal["aotinductor"]
    target: PlainName
    dtype: DenseDtype
    torch: PlainName
    instructions: Annotated[tuple[PlainName, ...], Field(min_length=1, fail_fast=True)]
    file: FilePath


AnyProgramSpec: TypeAlias = Annotated[
    ProgramSpec | CompiledProgramSpec, Field(discriminator="kind")
]


class Limits(Part):
    """Limits of one request."""

    max_examples: Annotated[int, Field(ge=1, le=MAX_LENGTH)]
    max_ids: Annotated[int, Field(ge=1, le=MAX_LENGTH)]


class FileSpec(Part):
    """Size and digest of a file."""

    bytes: Annotated[int, Field(ge=0, lt=1 << 63)]
    sha256: Hex64


class Manifest(Part):
    """The whole of manifest.json."""

    model_config = ConfigDict(title="embershard package manifest, format version 0")

    # No Literal, since pydantic accepts false for Literal[0].
    format_version: Annotated[int, Field(ge=FORMAT_VERSION, le=FORMAT_VERSION)]
    model: PlainName
    version: Annotated[int, Field(ge=1, lt=1 << 63)]
    producer: Producer
    # The key is "schema", a name that pydantic reserves.
    fingerprint: Annotated[str, Field(alias="schema", pattern=r"^[0-9a-f]{16}$")]
    inputs: Annotated[tuple[InputSpec, ...], Field(min_length=1, fail_fast=True)]
    outputs: Annotated[tuple[OutputSpec, ...], Field(min_length=1, fail_fast=True)]
    tables: Annotated[tuple[TableSpec, ...], Field(fail_fast=True)]
    programs: Annotated[tuple[AnyProgramSpec, ...], Field(min_length=1, fail_fast=True)]
    plans: Annotated[tuple[PlainName, ...], Field(min_length=1, fail_fast=True)]
    default_plan: PlainName
    limits: Limits
    samples: FilePath
    files: dict[FilePath, FileSpec]

    @property
    def dense(self) -> list[DenseInputSpec]:
        return [spec for spec in self.inputs if isinstance(spec, DenseInputSpec)]

    @property
    def sparse(self) -> list[SparseInputSpec]:
        return [spec for spec in self.inputs if isinstance(spec, SparseInputSpec)]

    @property
    def torchscript(self) -> ProgramSpec:
        """The dense program that every machine runs."""
        return next(program for program in self.programs if isinstance(program, ProgramSpec))

    def table(self, name: str) -> TableSpec:
        """The table of that name. `NotFoundError`: the package has no such table."""
        for table in self.tables:
            if table.name == name:
                return table
        known = ", ".join(table.name for table in self.tables)
        raise NotFoundError(f"table: expected one of {known}, got {name!r}")


def fingerprint_of(inputs: object, outputs: object) -> str:
    """The schema's fingerprint: 16 hex digits of the XXH3-64 of the canonical JSON of its inputs
    and outputs."""
    return xxhash.xxh3_64_hexdigest(canonical_json({"inputs": inputs, "outputs": outputs}))


def default_limits(*, max_examples: int = 4096, max_ids: int = 1 << 20) -> Limits:
    """Limits of one request. Raises InputError for one that is not 1 .. 2**31 - 1."""
    for field, limit in (("max_examples", max_examples), ("max_ids", max_ids)):
        if type(limit) is not int or not 1 <= limit <= MAX_LENGTH:
            raise InputError(f"limits: {field}: expected 1 .. {MAX_LENGTH}, got {limit!r}")
    return Limits(max_examples=max_examples, max_ids=max_ids)
