"""Errors of the extension for keywords that do not fit. Python passes each by name."""

from types import SimpleNamespace

import pytest

from embershard.errors import RequestError
from embershard.serving import Server, ServerOptions
from embershard.serving._native import fbgemm_folder, load_extension
from tests.cases import cases


@pytest.fixture
def predictor(tmp_path):
    """Keywords that LocalPredictor takes; the folder holds no package."""
    return {
        "folder": str(tmp_path),
        "fbgemm_folder": fbgemm_folder(),
        "plan": "",
        "dense_program": "",
        "tables": "mmap",
        "half_transfers": False,
        "threads": 1,
        "slots": 1,
    }


def test_a_missing_keyword_is_named(predictor):
    del predictor["plan"]
    with pytest.raises(KeyError, match=r"^'plan'$"):
        load_extension().LocalPredictor(**predictor)


@cases(
    ("name", "value"),
    {
        "text-for-a-number": ("threads", "two"),
        "half-a-thread": ("threads", 1.5),
        "too-large": ("threads", 2**40),
        "none-for-text": ("plan", None),
    },
)
def test_a_value_of_another_type_is_named(predictor, name, value):
    with pytest.raises(
        TypeError, match=f"^LocalPredictor: keyword '{name}': unexpected value {value!r}"
    ):
        load_extension().LocalPredictor(**predictor | {name: value})


def test_a_time_out_of_range_is_named(repository, monkeypatch):
    extension = load_extension()

    def late(**keywords):
        return extension.Server(**keywords | {"slow_request_ms": -1.0})

    monkeypatch.setattr(
        "embershard.serving.server.load_extension", lambda: SimpleNamespace(Server=late)
    )
    with pytest.raises(
        RequestError, match=r"^slow_request_ms: expected 0\.\.2147483647, got -1\.0+$"
    ):
        Server(repository, options=ServerOptions(port=0))
