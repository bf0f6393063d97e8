"""An installation without the extension, or without torch, is named."""

import sys

import pytest

from embershard.errors import InternalError
from embershard.serving._native import extension_folder, load_extension
from tests.cases import cases

EXTENSION = "embershard.serving._predictor"


@cases(
    ("missing", "use", "message"),
    {
        "torch": ("torch", load_extension, "the Python package torch is not installed"),
        "extension": (EXTENSION, load_extension, "the C\\+\\+ extension does not load: import of"),
        "folder": (EXTENSION, extension_folder, f"extension {EXTENSION} is not installed"),
    },
)
def test_a_missing_part_is_an_internal_error(missing, use, message, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InternalError, match=message):
        use()
