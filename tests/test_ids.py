"""Ids have 64 bits in clients, data and vocabularies."""

from decimal import Decimal
from enum import IntEnum

import numpy as np
import pytest

from embershard.errors import InputError
from embershard.ids import ids_from
from tests.cases import cases


class Shelf(IntEnum):
    """Named ids."""

    TOP = 3


# XXH3-64 of UTF-8 bytes as signed numbers, from the C library. They must never change, since
# packages outlive releases.
EMPTY, A = 0x2D06800538D394C2, 0xE6C632B61E964E1F - 2**64
GOLDEN = [
    pytest.param([], [], id="none"),
    pytest.param([0, 1, -1], [0, 1, -1], id="small"),
    pytest.param([-(2**63), 2**63 - 1], [-(2**63), 2**63 - 1], id="signed-ends"),
    pytest.param([2**63, 2**64 - 1], [-(2**63), -1], id="unsigned-upper-half"),
    pytest.param([-1, 2**64 - 1], [-1, -1], id="both-signs-of-the-same-bits"),
    pytest.param([2**53 + 1, 2**63 + 1], [2**53 + 1, -(2**63) + 1], id="beyond-floats"),
    pytest.param([np.int8(-1), np.uint8(255)], [-1, 255], id="numpy-bytes"),
    pytest.param([np.uint64(2**64 - 1), -5, np.int64(7)], [-1, -5, 7], id="numpy-beside-python"),
    pytest.param([Shelf.TOP], [3], id="enum"),
    pytest.param(np.array([-1, 5], np.int8), [-1, 5], id="int8-array"),
    pytest.param(np.array([255], np.uint8), [255], id="uint8-array"),
    pytest.param(np.array([2**63, 2**64 - 1], np.uint64), [-(2**63), -1], id="uint64-array"),
    pytest.param(np.array([258, -2], ">i8"), [258, -2], id="big-endian-array"),
    pytest.param(np.array([2**64 - 2], ">u8"), [-2], id="big-endian-unsigned-array"),
    pytest.param(np.arange(6)[::2], [0, 2, 4], id="strided-array"),
    pytest.param(np.array([2**64 - 1, -1], dtype=object), [-1, -1], id="object-array"),
    pytest.param(np.array([], np.float64), [], id="empty-float-array"),
    pytest.param([""], [EMPTY], id="empty-string"),
    pytest.param(["a"], [A], id="ascii"),
    pytest.param(["é"], [-606849052844159821], id="two-bytes-of-utf8"),
    pytest.param(["日本", "🙂"], [3177284604324879296, -272767050586417753], id="beyond-latin"),
    pytest.param(["a\0"], [970730967732026843], id="trailing-nul"),
    pytest.param([np.str_("a")], [A], id="numpy-string"),
    pytest.param(np.array(["a", ""]), [A, EMPTY], id="string-array"),
    pytest.param(np.array(["a"], dtype=object), [A], id="strings-as-objects"),
]


@pytest.mark.parametrize(("values", "expected"), GOLDEN)
def test_ids_are_64_bits(values, expected):
    ids = ids_from(values)
    assert ids.dtype == np.int64
    assert ids.tolist() == expected


@cases(
    "values",
    {
        "bool": [True],
        "bool-beside-int": [1, False],
        "numpy-bool": [np.True_],
        "bool-array": np.array([True]),
        "whole-float": [1.0],
        "nan-beside-int": [2, float("nan")],
        "numpy-float": [np.float32(1)],
        "float-array": np.array([1.0]),
        "decimal": [Decimal(1)],
        "none": [None],
        "bytes": [b"a"],
        "bytes-array": np.array([b"a"]),
        "duration-array": np.array([5], "m8[ns]"),
        "moment-array": np.array([5], "M8[ns]"),
        "list-of-lists": [[1]],
        "65-bits": [2**64],
        "below-64-bits": [-(2**63) - 1],
        "65-bits-as-an-object": np.array([2**64], dtype=object),
        "string-then-int": ["a", 1],
        "int-then-string": [1, "a"],
        "lone-surrogate": ["\ud800"],
    },
)
def test_what_is_no_id_is_refused(values):
    with pytest.raises(InputError):
        ids_from(values)
