"""Fields of protobuf messages, written by hand: no Python code is generated for other protocols
than our own."""

from __future__ import annotations

__all__ = ["bytes_field", "number_field", "packed_field"]

VARINT, LENGTH_DELIMITED = 0, 2


def number_field(field: int, value: int) -> bytes:
    """A whole number of at least 0."""
    return _varint(field << 3 | VARINT) + _varint(value)


def bytes_field(field: int, data: bytes) -> bytes:
    """Bytes, a text in UTF-8, or a message."""
    return _varint(field << 3 | LENGTH_DELIMITED) + _varint(len(data)) + data


def packed_field(field: int, values: list[int]) -> bytes:
    """Repeated whole numbers of at least 0."""
    return bytes_field(field, b"".join(map(_varint, values)))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
