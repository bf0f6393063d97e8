"""Parses JSON strictly, so that all readers agree on it, and turns pydantic's errors into ours.
Files are UTF-8, without duplicate keys, and numbers are finite and fit into 64 bits."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, dataclass_transform

from pydantic import BaseModel, Field, RootModel, ValidationError

from embershard.errors import InputError, PackageError
from embershard.package.names import PATTERN_WORDS

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


MANIFEST = "manifest.json"
MANIFEST_DIGEST = "manifest.sha256"

_SHOWN = 120


def refusal(file: str, field: str, *, expected: object, got: object) -> PackageError:
    """The error to raise for a field of a file of a package. ``expected`` and ``got`` are strings,
    or values that appear as their ``repr``. Long ones are cut."""
    return PackageError(f"{file}: {field}: expected {shown(expected)}, got {shown(got)}")


def shown(value: object) -> str:
    """A value for a message, cut after 120 characters."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


BYTES_MAX = 64 << 20
DEPTH_MAX = 32
# Matches brackets, and whole strings to skip brackets in them. Possessive quantifiers and the
# optional closing quote make the search linear in the size of any text.
_BRACKETS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)


def parse_json(data: bytes, file: str) -> Any:
    """Parse a JSON file of a package, in time and memory linear in its size."""
    if len(data) > BYTES_MAX:
        raise refusal(file, "json", expected=f"at most {BYTES_MAX} bytes", got=f"{len(data)}")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        got = f"byte 0x{data[error.start]:02x} at {error.start}"
        raise refusal(file, "json", expected="UTF-8", got=got) from None
    if text.startswith("\ufeff"):
        raise PackageError(f"{file}: json: unexpected byte order mark")
    _check_depth(text, file)

    def constant(name: str) -> NoReturn:
        raise refusal(file, "json", expected="finite numbers", got=name)

    def number(digits: str) -> float:
        value = float(digits)
        if not math.isfinite(value):
            raise refusal(file, "json", expected="finite numbers", got=digits)
        return value

    def integer(digits: str) -> int:
        # Numbers of 64 bits have at most 20 characters. int() refuses very long texts.
        if len(digits) > 20 or not -(1 << 63) <= int(digits) < 1 << 64:
            raise refusal(file, "json", expected="integers of 64 bits", got=digits)
        return int(digits)

    def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        document = dict(pairs)
        if len(document) != len(pairs):
            times = Counter(key for key, _ in pairs)
            twice = next(key for key, count in times.items() if count > 1)
            raise PackageError(f"{file}: json: duplicate key {shown(repr(twice))}")
        return document

    try:
        document = json.loads(
            text,
            parse_constant=constant,
            parse_float=number,
            parse_int=integer,
            object_pairs_hook=without_duplicates,
        )
    except json.JSONDecodeError as error:
        got = f"{error.msg} at line {error.lineno}, column {error.colno}"
        raise refusal(file, "json", expected="JSON", got=got) from None
    if "\\u" in text:  # Only such an escape can be half of a surrogate pair.
        try:
            canonical_json(document)
        except UnicodeEncodeError:
            raise refusal(file, "json", expected="UTF-8", got="half of a surrogate pair") from None
    return document


def canonical_json(document: Any) -> bytes:
    """The form of JSON for digests: sorted keys, no spaces, UTF-8."""
    text = json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def _check_depth(text: str, file: str) -> None:
    """Refuse deep documents before the parser recurses into them."""
    depth = 0
    for token in _BRACKETS.finditer(text):
        match token[0][0]:
            case "[" | "{":
                depth += 1
            case "]" | "}":
                depth -= 1
        if depth > DEPTH_MAX:
            got = "deeper nesting"
            raise refusal(file, "json", expected=f"at most {DEPTH_MAX} levels", got=got)


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
    """Parse a JSON file of a package, check each field by itself, and return the model and its JSON
    values. Raises PackageError, the first error."""
    document = parse_json(data, file)
    _check_keys(model, document, file)
    try:
        return model.model_validate_json(data), document
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _refusal_of(first, document, file) from None


@dataclass_transform(kw_only_default=True, field_specifiers=(Field,))
class InputErrorMeta(type(BaseModel)):  # type: ignore[misc]  # pydantic's metaclass is private.
    """Metaclass of models that users create in Python. A wrong argument raises `InputError` with
    the field's description. Parsing a file does not call the class, and raises `PackageError`."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        where, fields = cls.__name__, cls.model_fields
        names = ", ".join(f"{name}=" for name in fields)
        if args:
            raise InputError(f"{where}: expected {names}, got {len(args)} arguments without names")
        try:
            return super().__call__(**kwargs)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
        name, path = str(first["loc"][0]), ".".join(map(str, first["loc"]))
        if name not in fields:
            raise InputError(f"{where}: expected {names}, got {name}=")
        got = "none" if first["type"] == "missing" else shown(repr(first["input"]))
        raise InputError(f"{where}: {path}: expected {fields[name].description}, got {got}")


def _check_keys(model: type[BaseModel], document: Any, file: str) -> None:
    """Refuse missing keys first, since pydantic keeps a copy of the document for each of them."""
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
    path, value = [], document
    for step in location:
        if step == "[key]":
            continue
        if isinstance(value, dict) and step not in value and step == value.get("kind"):
            continue
        path.append(str(step))
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            value = None
    return path
