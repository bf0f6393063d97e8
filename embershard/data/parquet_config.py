"""The section ``[data]`` of a run on Parquet files; docs/data.md explains its keys. pyarrow is not
imported here, so that a file can be checked without it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Never, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from embershard.errors import InputError
from embershard.package.id_maps import MAX_ROWS
from embershard.package.names import name_problem
from embershard.package.schema import MAX_LENGTH, Keep, Scope
from embershard.sections import Section, as_tuple

SPLITS: Final = ("train", "valid", "test")
SHUFFLE_ROWS: Final = 262_144
DEFAULT_SHARE: Final = 0.1
ID_KEYS: Final = ("ids", "buckets", "rows", "min_count", "max_size", "unknown")
"""Keys of `SparseColumn` that are equal for inputs with one id map."""


def _check_name(name: str) -> str:
    if problem := name_problem(name):
        raise ValueError(f"expected {problem}")
    return name


def _check_transforms(value: object) -> object:
    """The transforms of a TOML file, with tuples for lists."""
    if not isinstance(value, list | tuple):
        raise ValueError("expected a list of transforms")
    transforms = [_checked_transform(transform) for transform in value]
    if transforms.count("standardize") > 1:
        raise ValueError("expected 'standardize' at most once")
    return tuple(transforms)


def _checked_transform(transform: Any) -> object:
    match transform:
        case "log1p" | "standardize":
            return transform
        case {"clip": [low, high]} if len(transform) == 1 and _rising([low, high]):
            return {"clip": (float(low), float(high))}
        case {"bucketize": [_, *_] as boundaries} if len(transform) == 1 and _rising(boundaries):
            return {"bucketize": tuple(float(boundary) for boundary in boundaries)}
    raise ValueError(
        "expected 'log1p', 'standardize', { clip = [low, high] } or { bucketize = [boundaries] } "
        f"with rising numbers, got {transform!r}"
    )


def _rising(numbers: list[object]) -> bool:
    floats = [
        float(number)
        for number in numbers
        if isinstance(number, int | float) and not isinstance(number, bool)
    ]
    finite = len(floats) == len(numbers) and all(map(math.isfinite, floats))
    return finite and all(low < high for low, high in itertools.pairwise(floats))


Text = Annotated[str, Field(min_length=1)]
InputName = Annotated[str, AfterValidator(_check_name)]
Files = Annotated[tuple[Text, ...], BeforeValidator(as_tuple)]
Share = Annotated[float, Field(ge=0, lt=1)]
Transforms = Annotated[
    tuple[str | dict[str, tuple[float, ...]], ...], BeforeValidator(_check_transforms)
]


def check_shares(section: Section) -> None:
    """Refuses ``valid`` and ``test`` of a section if they leave no rows to train. The error names a
    key that the user set."""
    chosen = section.model_dump(include={"valid", "test"}, exclude_unset=True, exclude_none=True)
    shares = {"valid": DEFAULT_SHARE, "test": DEFAULT_SHARE} | chosen
    if sum(shares.values()) < 1:
        return
    key, other = ("test", "valid") if "test" in chosen else ("valid", "test")
    suffix = "" if other in chosen else " by default"
    problem = PydanticCustomError(
        "shares",
        "expected valid and test to be less than 1 together, and {other} is {share}{suffix}",
        {"other": other, "share": shares[other], "suffix": suffix},
    )
    raise ValidationError.from_exception_data(
        type(section).__name__, [{"type": problem, "loc": (key,), "input": shares[key]}]
    )


class SplitConfig(Section):
    """Division of the rows into training, validation and test split."""

    by: Literal["time", "hash", "files"]
    """``time``: the newest rows are the test split, those before them the validation split.
    ``hash``: rows with equal values of a column stay together. ``files``: the files of each split
    are listed."""

    column: Annotated[Text | None, Field(validate_default=True)] = None
    """``time``: a column of timestamps, dates or numbers. ``hash``: a column of integers or
    strings, such as the user's id."""

    valid: Share = DEFAULT_SHARE
    """``time`` and ``hash``: the share of rows in the validation split."""

    test: Share = DEFAULT_SHARE
    """``time`` and ``hash``: the share of rows in the test split."""

    valid_files: Files = ()
    """``files``: files of the validation split, as in ``data.files``. They do not train the model
    even if ``data.files`` has them."""

    test_files: Files = ()
    """``files``: files of the test split."""

    @field_validator("column")
    @classmethod
    def _check_column(cls, column: str | None, info: ValidationInfo) -> str | None:
        by = info.data.get("by")
        if by == "files" and column is not None:
            raise ValueError('expected none with by = "files"')
        if by in ("time", "hash") and column is None:
            raise ValueError(f'expected a column with by = "{by}"')
        return column

    @model_validator(mode="after")
    def _leave_rows_to_train(self) -> Self:
        check_shares(self)
        return self

    @field_validator("valid_files", "test_files", "valid", "test", mode="before")
    @classmethod
    def _is_of_this_kind(cls, value: object, info: ValidationInfo) -> object:
        by = info.data.get("by")
        names_files = str(info.field_name).endswith("_files")
        if by is not None and names_files != (by == "files"):
            raise ValueError(f'expected none with by = "{by}"')
        return value


class DenseColumn(Section):
    """A dense input: one number for each candidate, or for each request."""

    column: Text | None = None
    """The column; without it the column with the input's name. Integers, floats, decimals and
    bool (0 and 1)."""

    scope: Scope = "example"
    """``request``: candidates of a request share the value. ``example``: each has its own."""

    null: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """The value that replaces null, also in requests that leave the input out. Without it a null
    is an error."""

    transforms: Transforms = ()
    """Applied in this order in training and in serving: ``"log1p"``, ``{ clip = [low, high] }``,
    ``"standardize"`` (by mean and deviation of the training split) and
    ``{ bucketize = [boundaries] }`` (the number of boundaries up to the value)."""


class SparseColumn(Section):
    """A sparse input: a list of ids a row, looked up in a table."""

    column: Text | None = None
    """The column; without it the column with the input's name. Integers or strings, one or a list
    of them in each row."""

    scope: Scope = "example"
    """``request``: candidates of a request share the list. ``example``: each has its own."""

    ids: Literal["vocabulary", "hash", "identity"] = "vocabulary"
    """``vocabulary``: each id of the training split has a row; ``unknown`` says what all others
    have. ``hash``: an id's row is its hash. ``identity``: the id is the row."""

    buckets: Annotated[
        Annotated[int, Field(ge=1, le=MAX_ROWS)] | None, Field(validate_default=True)
    ] = None
    """With ``ids = "hash"``: rows of the table."""

    rows: Annotated[
        Annotated[int, Field(ge=1, le=MAX_ROWS)] | None, Field(validate_default=True)
    ] = None
    """With ``ids = "identity"``: rows of the table. Other ids than 0 to rows - 1 are an error."""

    min_count: Annotated[int, Field(ge=1)] = 1
    """With ``ids = "vocabulary"``: ids that the training split has less often are unknown."""

    max_size: Annotated[int, Field(ge=1)] | None = None
    """With ``ids = "vocabulary"``: largest number of ids with a row of their own, the most
    frequent ones."""

    unknown: Literal["oov", "zero"] = "oov"
    """With ``ids = "vocabulary"``: with ``oov`` unknown ids share a row, with ``zero`` they have
    none, and their vector is zero."""

    vocabulary: InputName | None = None
    """With ``ids = "vocabulary"``: another table, which must not have this key. This table has a
    row of its own for each id of that one. By default the ids are those of this table's inputs."""

    null: Literal["empty", "error"] = "empty"
    """``empty``: a null stands for no id, also in a list. ``error``: it is an error."""

    max_ids: Annotated[int, Field(ge=0, le=MAX_LENGTH)] = 0
    """Largest number of ids of one list that count. 0: no limit."""

    keep: Keep = "reject"
    """The end of a longer list that counts, ``first`` or ``last``. ``reject``: it is an error."""

    table: InputName | None = None
    """The table of the ids; without it one with the input's name. Inputs that name one table share
    its rows."""

    pooling: Literal["sum", "mean"] | None = None
    """How the vectors of a list become one. Without it ``mean`` for a table with a column of
    lists, ``sum`` for others."""

    @field_validator("buckets", "rows")
    @classmethod
    def _has_rows(cls, value: int | None, info: ValidationInfo) -> int | None:
        owner = {"buckets": "hash", "rows": "identity"}[str(info.field_name)]
        ids = info.data.get("ids", owner)
        if value is None and ids == owner:
            raise ValueError(f'expected a number of rows with ids = "{owner}"')
        if value is not None and ids != owner:
            raise ValueError(f'expected none with ids = "{ids}"')
        return value

    @field_validator("min_count", "max_size", "unknown", "vocabulary", mode="before")
    @classmethod
    def _is_of_a_vocabulary(cls, value: object, info: ValidationInfo) -> object:
        ids = info.data.get("ids", "vocabulary")
        if ids != "vocabulary":
            raise ValueError(f'expected none with ids = "{ids}"')
        return value


class ParquetConfig(Section):
    """Parquet files, and the columns of them that a model reads."""

    name: Literal["parquet"]
    """The data set's name."""

    files: Annotated[Files, Field(min_length=1)]
    """Files, folders, globs (``**`` goes through folders) and URLs that fsspec knows, such as
    ``s3://``. A folder stands for all files in it and below that end in ``.parquet``. Relative
    paths count from the current folder."""

    rows: Literal["impression", "request"] = "impression"
    """``impression``: a row is one candidate that a user was shown. ``request``: a row is a request
    with all of its candidates. Labels, masks and inputs with ``scope = "example"`` have a list with
    an element for each candidate then."""

    weight: Text | None = None
    """Column with the weight of each row's losses. A request row has one weight, or a list with one
    for each candidate."""

    request: Text | None = None
    """Column of integers or strings; rows with equal values belong to one request. Without it each
    request row is a request of its own."""

    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = 0
    """Seed of the split by ``hash``."""

    shuffle_rows: Annotated[int, Field(ge=1, le=1 << 26)] = SHUFFLE_ROWS
    """Rows that are held in memory and shuffled together, in each process. Choose fewer if each row
    is a request with many candidates."""

    split: SplitConfig
    """The splits."""

    dense: dict[InputName, DenseColumn] = Field(default={})
    """A section for each dense input, in the order of the model's columns."""

    sparse: dict[InputName, SparseColumn] = Field(default={})
    """A section for each sparse input, in the order of the model's keys."""

    @field_validator("sparse")
    @classmethod
    def _check_inputs(
        cls, sparse: dict[str, SparseColumn], info: ValidationInfo
    ) -> dict[str, SparseColumn]:
        if both := sparse.keys() & info.data.get("dense", {}).keys():
            raise ValueError(f"expected other names than those of dense inputs, got {min(both)!r}")
        tables = tables_of(sparse)
        for table, names in tables.items():
            _check_alike(sparse, names, (*ID_KEYS, "vocabulary"), f"table {table!r}")
            poolings = {sparse[name].pooling for name in names}
            if len(poolings - {None}) > 1:
                raise ValueError(f"expected one pooling for the inputs of table {table!r}")
        owners = [table for table, names in tables.items() if sparse[names[0]].vocabulary is None]
        for vocabulary, names in vocabularies_of(sparse).items():
            if vocabulary not in owners:
                raise ValueError(f"expected a vocabulary of {owners}, got {vocabulary!r}")
            _check_alike(sparse, names, ID_KEYS, f"vocabulary {vocabulary!r}")
        return sparse

    def at(self, path: Path) -> Never:
        """Refuses another folder: ``files`` says where the data lies."""
        raise InputError(f"data set 'parquet': expected no folder, got {path}; set data.files")


def tables_of(sparse: Mapping[str, SparseColumn]) -> dict[str, list[str]]:
    """Names of the inputs that share each table, in order."""
    return _grouped({name: column.table or name for name, column in sparse.items()})


def vocabularies_of(sparse: Mapping[str, SparseColumn]) -> dict[str, list[str]]:
    """Names of the inputs that share the ids of each table, in order."""
    return _grouped(
        {name: column.vocabulary or column.table or name for name, column in sparse.items()}
    )


def _grouped(groups: Mapping[str, str]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for name, group in groups.items():
        names.setdefault(group, []).append(name)
    return names


def _check_alike(
    sparse: Mapping[str, SparseColumn], names: Sequence[str], keys: Iterable[str], owner: str
) -> None:
    """Refuses inputs that differ in one of the keys."""
    first, *others = names
    for name, key in itertools.product(others, keys):
        if getattr(sparse[first], key) != getattr(sparse[name], key):
            raise ValueError(
                f"expected the same {key} for inputs {first!r} and {name!r} of {owner}"
            )
