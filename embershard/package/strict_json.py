"""JSON as every reader reads it alike: UTF-8, no duplicate keys, finite numbers of 64 bits."""

import json
import math
import re
from collections import Counter
from typing import Any, NoReturn

from embershard.errors import PackageError
from embershard.package.refusal import refusal, shown

BYTES_MAX = 64 << 20
"""Largest JSON file of a package."""

DEPTH_MAX = 32
"""Arrays and objects inside one another."""

# Strings, to skip theirs. Possessive, and content with a string that never ends: no character is
# looked at twice, and nothing is kept to come back to.
_BRACKETS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)


def parse_json(data: bytes, file: str) -> Any:
    """Parses one JSON file of a package, in time and memory that grow as its size does. ``file``:
    its path in the package, for refusals."""
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
        # 20 characters hold every number of 64 bits; Python refuses to parse very long ones.
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
    if "\\u" in text:  # Nothing else can spell half a pair: a file in UTF-8 holds none.
        try:
            canonical_json(document)
        except UnicodeEncodeError:
            raise refusal(file, "json", expected="UTF-8", got="half of a surrogate pair") from None
    return document


def canonical_json(document: Any) -> bytes:
    """The one spelling that digests are taken of: sorted keys, no spaces, UTF-8."""
    text = json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def _check_depth(text: str, file: str) -> None:
    """Refuses deep documents before the parser recurses into them."""
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
