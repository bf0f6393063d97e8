"""The models of inputs in manifest.json: id maps, lookups, dense and sparse inputs."""

from itertools import pairwise
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from embershard.package.id_maps import MAX_ROWS, UnknownIds
from embershard.package.names import FILE_PATTERN, NAME_PATTERN, name_problem
from embershard.package.schema import MAX_LENGTH, Keep, Scope
from embershard.package.transforms import NUMBER_LIMIT, SMALLEST_DEVIATION


def _checked_name(name: str) -> str:
    problem = name_problem(name)
    if problem:
        raise ValueError(problem)
    return name


PlainName: TypeAlias = Annotated[str, Field(pattern=NAME_PATTERN)]
Name: TypeAlias = Annotated[str, AfterValidator(_checked_name)]
FilePath: TypeAlias = Annotated[str, Field(pattern=FILE_PATTERN)]
Rows: TypeAlias = Annotated[int, Field(ge=1, le=MAX_ROWS)]


class Part(BaseModel):
    """Base of all models of a package's JSON. It is strict and frozen, and refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class IdentityIds(Part):
    """The id is the row."""

    kind: Literal["identity"]
    rows: Rows
    unknown: UnknownIds
    oov_row: Annotated[int, Field(ge=0)] | None


class HashIds(Part):
    """The row is the XXH3-64 of the id's eight bytes, with a seed, modulo rows."""

    kind: Literal["hash"]
    rows: Rows
    seed: Annotated[int, Field(ge=0, lt=1 << 64)]


class VocabIds(Part):
    """A vocabulary: a file has the row of each known id."""

    kind: Literal["vocab"]
    rows: Rows
    file: FilePath
    unknown: UnknownIds
    oov_row: Annotated[int, Field(ge=0)] | None


Ids: TypeAlias = Annotated[IdentityIds | HashIds | VocabIds, Field(discriminator="kind")]


class Lookup(Part):
    """A lookup of a sparse input in a table. Its output is one pooled vector per list, or a
    sequence of one vector per id, which has no pooling."""

    table: PlainName
    output: Literal["pooled", "sequence"]
    pooling: Literal["sum", "mean"] | None


Number: TypeAlias = Annotated[float, Field(gt=-NUMBER_LIMIT, lt=NUMBER_LIMIT)]


class Log1pSpec(Part):
    """log(1 + x)."""

    kind: Literal["log1p"]


class ClipSpec(Part):
    """min(max(x, low), high), with low below high."""

    kind: Literal["clip"]
    low: Number
    high: Number

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if not self.low < self.high:
            raise ValueError("low below high")
        return self


class StandardizeSpec(Part):
    """(x - mean) / deviation."""

    kind: Literal["standardize"]
    mean: Number
    deviation: Annotated[float, Field(ge=SMALLEST_DEVIATION, lt=NUMBER_LIMIT)]


def _increasing(numbers: tuple[float, ...]) -> tuple[float, ...]:
    if not all(low < high for low, high in pairwise(numbers)):
        raise ValueError("strictly increasing numbers")
    return numbers


class BucketizeSpec(Part):
    """The number of boundaries that are at most x. Boundaries strictly increase."""

    kind: Literal["bucketize"]
    boundaries: Annotated[
        tuple[Number, ...], Field(min_length=1, fail_fast=True), AfterValidator(_increasing)
    ]


TransformSpec: TypeAlias = Annotated[
    Log1pSpec | ClipSpec | StandardizeSpec | BucketizeSpec, Field(discriminator="kind")
]


class DenseInputSpec(Part):
    """A float per example or per request. The dense program applies the transforms. The key
    ``transforms`` is absent if there are none."""

    kind: Literal["dense"]
    name: Name
    scope: Scope
    default: Number | None
    transforms: Annotated[tuple[TransformSpec, ...], Field(min_length=1, fail_fast=True)] = ()

    @model_serializer(mode="wrap")
    def _omit_empty_transforms(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = write(self)
        if not self.transforms:
            del document["transforms"]
        return document


class KeptSparseSpec(Part):
    """A list of ids per example or per request, in a checkpoint, which knows no lookups."""

    kind: Literal["sparse"]
    name: Name
    scope: Scope
    weighted: bool
    max_ids: Annotated[int, Field(ge=0, le=MAX_LENGTH)]
    keep: Keep
    ids: Ids | None


class SparseInputSpec(KeptSparseSpec):
    """A list of ids per example or per request."""

    ids: Ids
    lookups: Annotated[tuple[Lookup, ...], Field(min_length=1, fail_fast=True)]


InputSpec: TypeAlias = Annotated[DenseInputSpec | SparseInputSpec, Field(discriminator="kind")]
