"""The public surface equals committed texts, so that every change of it shows in a text."""

import argparse
import re

import pytest

from embershard.cli import parser
from scripts.write_cli import PAGE, cli_page, commands_of
from scripts.write_configuration import PAGE as CONFIGURATION_PAGE
from scripts.write_configuration import configuration_page
from scripts.write_python import PAGE as PYTHON_PAGE
from scripts.write_python import python_page
from scripts.write_surface import FOLDER, SURFACE


@pytest.mark.parametrize("name", SURFACE)
def test_public_surface_is_as_committed(name):
    committed = (FOLDER / name).read_text().splitlines()
    assert list(SURFACE[name]()) == committed, "run python -m scripts.write_surface, and say why"


def test_cli_page_is_generated_from_the_parser():
    assert PAGE.read_text() == cli_page(), "run make docs"


IN_WORDS = ["fetch version 0", "load version 0", "unload version 0", "predict version 0"]
"""Options whose default the page describes in words."""


def test_cli_page_has_every_default():
    """Every change of a default then changes the page."""
    absent = []
    for name, (command, _) in commands_of(parser()):
        for action in command._actions:
            default, text = action.default, command._get_formatter()._expand_help(action)
            shown = f"{default:.16g}" if isinstance(default, float) else f"{default}"
            nothing = default in (None, "", [], argparse.SUPPRESS) or default is False
            if not nothing and not re.search(rf"default: ({re.escape(shown)}|{default})\b", text):
                absent.append(f"{name} {action.dest} {shown}")
    assert absent == IN_WORDS


def test_the_configuration_page_is_generated_from_its_classes():
    page = CONFIGURATION_PAGE.read_text()
    assert page == configuration_page(), "run make docs"


def test_python_page_is_generated_from_docstrings():
    assert PYTHON_PAGE.read_text() == python_page(), "run make docs"
