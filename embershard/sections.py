"""Base class of the sections of TOML and JSON files, and messages for their errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


class Section(BaseModel):
    """Base of every section. Unknown keys are errors, and sections are immutable."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True
    )


def as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def problem_of(error: ErrorDetails, role: str = "") -> str:
    """Convert pydantic's error to "expected ..., got ...". ``role`` follows the expected value."""
    if error["type"] == "missing":
        return f"expected a value{role}, got none"
    got = error["input"]
    if error["type"] == "extra_forbidden":
        return f"expected no value of this name{role}, got {got!r}"
    message = (
        error["msg"]
        .removeprefix("Value error, ")
        .replace("Input should be", "expected")
        .replace("a valid tuple", "a list")
    )
    message = re.sub(r"^\w+ should have (.*?)( after validation.*)?$", r"expected \1", message)
    if ", got " in message:
        return message
    return f"{message}{role}, got {list(got) if isinstance(got, tuple) else got!r}"
