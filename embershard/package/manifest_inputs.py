"""What manifest.json says of inputs: id maps, lookups, dense and sparse inputs."""

from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from embershard.package.id_maps import MAX_ROWS, UnknownIds
from embershard.package.names import FILE_PATTERN, NAME_PATTERN, name_problem
from embershard.package.schema import MAX_LENGTH, Keep, Scope
from embershard.package.transforms import NUMBER_LIMIT


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
    """Base of every part of a package's JSON: strict, frozen, without unknown keys."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class IdentityIds(Part):
    """The id is the row."""

    kind: Literal["identity"]
    rows: Rows
    unknown: UnknownIds
    oov_row: Annotated[int, Field(ge=0)] | None


class HashIds(Part):
    """XXH3-64 of the id's eight bytes, with a seed, modulo rows."""

    kind: Literal["hash"]
    rows: Rows
    seed: Annotated[int, Field(ge=0, lt=1 << 64)]


class VocabIds(Part):
    """The row that a file gives to the id."""

    kind: Literal["vocab"]
    rows: Rows
    file: FilePath
    unknown: UnknownIds
    oov_row: Annotated[int, Field(ge=0)] | None


Ids: TypeAlias = Annotated[IdentityIds | HashIds | VocabIds, Field(discriminator="kind")]


class Lookup(Part):
    """One table that a sparse input is looked up in: for a vector a list, or for a sequence, which
    is a vector an id. A sequence has no pooling."""

    table: PlainName
    output: Literal["pooled", "sequence"]
    pooling: Literal["sum", "mean"] | None


class DenseInputSpec(Part):
    """A float per example or per request."""

    kind: Literal["dense"]
    name: Name
    scope: Scope
    default: Annotated[float, Field(gt=-NUMBER_LIMIT, lt=NUMBER_LIMIT)] | None


class KeptSparseSpec(Part):
    """A list of ids per example or per request, as a checkpoint keeps it: before export, when
    tables are not chosen yet."""

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
