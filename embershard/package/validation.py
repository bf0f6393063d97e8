"""From pydantic's verdict on a JSON file to the refusal of a package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, RootModel, ValidationError

from embershard.errors import PackageError
from embershard.package.names import PATTERN_WORDS
from embershard.package.refusal import refusal
from embershard.package.strict_json import parse_json

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Model = TypeVar("Model", bound=BaseModel)

_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "an object",
    "float_type": "a number",
    "int_type": "an integer",
    "model_type": "an object",
    "string_type": "text",
    "tuple_type": "an array",
}

_KEY_PROBLEMS = {"extra_forbidden": "unexpected key", "missing": "missing key"}

_WITH_BOUND = {
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
    "too_short": "at least {min_length} of them",
    "value_error": "{error}",
}


def parse_model(model: type[Model], data: bytes, file: str) -> tuple[Model, Any]:
    """Parses a JSON file of a package and checks each field by itself; returns the model and the
    JSON values it was made of. `PackageError`: the first thing that is wrong: "manifest.json:
    inputs.3.ids.rows: expected at least 1, got 0"."""
    document = parse_json(data, file)
    _check_keys(model, document, file)
    try:
        return model.model_validate_json(data), document
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _refusal_of(first, document, file) from None


def _check_keys(model: type[BaseModel], document: Any, file: str) -> None:
    """Refuses missing keys, before pydantic keeps one copy of the document for each."""
    if not isinstance(document, dict):
        raise refusal(file, "json", expected="an object", got=document)
    if issubclass(model, RootModel):
        return
    for name, field in model.model_fields.items():
        key = field.alias or name
        if field.is_required() and key not in document:
            raise PackageError(f"{file}: {key}: missing key")


def _refusal_of(error: ErrorDetails, document: Any, file: str) -> PackageError:
    kind, context = error["type"], error.get("ctx", {})
    path, got = _locate(error["loc"], document), error["input"]
    if kind == "union_tag_invalid":
        return refusal(
            file,
            ".".join([*path, "kind"]),
            expected=str(context["expected_tags"]),
            got=str(context["tag"]),
        )
    if kind == "union_tag_not_found":
        return PackageError(f"{file}: {'.'.join([*path, 'kind'])}: missing key")
    field = ".".join(path) or "json"
    if kind in _KEY_PROBLEMS:
        return PackageError(f"{file}: {field}: {_KEY_PROBLEMS[kind]}")
    if kind == "string_pattern_mismatch":
        expected = PATTERN_WORDS.get(context["pattern"], f"text that matches {context['pattern']}")
    elif kind in _WITH_BOUND:
        expected = _WITH_BOUND[kind].format(**context)
    else:
        expected = _EXPECTED.get(kind, error["msg"])
    return refusal(file, field, expected=expected, got=got)


def _locate(location: tuple[int | str, ...], document: Any) -> list[str]:
    """The path of a field, without the steps that pydantic adds for unions and for keys."""
    path, here = [], document
    for step in location:
        if step == "[key]":
            continue
        if isinstance(here, dict) and step not in here and step == here.get("kind"):
            continue
        path.append(str(step))
        if isinstance(here, dict) and isinstance(step, str):
            here = here.get(step)
        elif isinstance(here, list) and isinstance(step, int) and step < len(here):
            here = here[step]
        else:
            here = None
    return path
