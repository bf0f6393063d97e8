"""How a package is refused: the file, the field, what was expected and what is there.

Fields that are about a file as a whole rather than about something in it:

    file     it is missing, unexpected, or no regular file
    bytes    its size
    sha256   its digest
    json     it is no JSON, or JSON that two readers could read differently
    header   the head of a safetensors file
"""

from embershard.errors import PackageError

MANIFEST = "manifest.json"
MANIFEST_DIGEST = "manifest.sha256"

_SHOWN = 120


def refusal(file: str, field: str, *, expected: object, got: object) -> PackageError:
    """The error to raise for ``field`` of ``file``, a path inside the package. ``expected`` and
    ``got`` are shown as they are when they are strings and as ``repr`` otherwise; long ones are
    cut."""
    return PackageError(f"{file}: {field}: expected {shown(expected)}, got {shown(got)}")


def shown(value: object) -> str:
    """A value in a message, cut after 120 characters."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
