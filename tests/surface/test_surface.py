"""The public surface is what the committed text says; a change of it is a change of that text."""

import pytest

from scripts.write_cli import PAGE, cli_page
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
    assert PAGE.read_text() == cli_page(), "run python -m scripts.write_cli"


def test_configuration_page_is_generated_from_the_classes_that_read_it():
    page = CONFIGURATION_PAGE.read_text()
    assert page == configuration_page(), "run python -m scripts.write_configuration"


def test_python_page_is_generated_from_docstrings():
    assert PYTHON_PAGE.read_text() == python_page(), "run python -m scripts.write_python"
