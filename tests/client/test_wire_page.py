"""The example of docs/protocols.md: its two spellings are one request."""

import re
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from embershard._proto import predictor_pb2 as pb

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "protocols.md").read_text()


def found(pattern: str) -> str:
    match = re.search(pattern, PAGE, re.DOTALL)
    assert match is not None, f"docs/protocols.md has nothing that looks like {pattern}"
    return match[1]


def test_the_request_in_json_equals_the_one_in_python() -> None:
    in_json = json_format.Parse(found(r"predictor.proto -d '(\{.*?\})'"), pb.PredictRequest())
    names: dict[str, Any] = {}
    exec(found(r"```python\n((?:(?!```).)*?)with grpc"), names)
    assert names["request"] == in_json
    assert in_json.num_examples == 2
