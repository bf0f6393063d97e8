"""The fields that a package's JSON files share: names, paths, counts; and what its objects have in
common."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from embershard.package.id_maps import MAX_ROWS
from embershard.package.names import FILE_PATTERN, NAME_PATTERN, name_problem

__all__ = ["FilePath", "Name", "Part", "PlainName", "Rows"]


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
