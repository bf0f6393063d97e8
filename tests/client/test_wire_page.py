"""The example of docs/protocols.md is the request that the page describes."""

import re
import struct
from pathlib import Path

import pytest
from google.protobuf import json_format

from embershard._proto import predictor_pb2 as pb

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "protocols.md").read_text()


def found(pattern: str) -> str:
    match = re.search(pattern, PAGE, re.DOTALL)
    assert match is not None, f"docs/protocols.md has nothing that looks like {pattern}"
    return match[1]


def test_the_request_in_json_is_the_one_that_the_page_describes() -> None:
    in_json = json_format.Parse(found(r"predictor.proto -d '(\{.*?\})'"), pb.PredictRequest())
    dense = {
        entry.name: struct.unpack(f"<{len(entry.values) // 4}f", entry.values)
        for entry in in_json.dense
    }
    assert dense == {
        "user_like_rate": pytest.approx((0.55,)),
        "user_log_count": (0.0,),
        "item_like_rate": pytest.approx((0.55, 0.7)),
        "item_log_count": (0.0, 4.0),
    }
    [item] = in_json.sparse
    assert struct.unpack("<2i", item.lengths) == (1, 1)
    assert struct.unpack("<2q", item.values) == (50, 181)
    assert in_json.num_examples == 2
