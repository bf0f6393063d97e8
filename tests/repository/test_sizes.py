"""No file has over 500 lines, and no function has over 60."""

import ast
from collections.abc import Iterator

import pytest

from tests.repository.sources import ROOT, own_files

LINES_MAX = 500
FUNCTION_LINES_MAX = 60


def test_no_file_is_over_500_lines():
    files = own_files(".py", ".h", ".cc", ".sh", ".cmake", ".proto", ".js", ".css")
    sizes = {
        path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in files
    }
    assert {name: size for name, size in sizes.items() if size > LINES_MAX} == {}


@pytest.mark.parametrize("folder", ["benchmarks", "embershard", "scripts", "examples"])
def test_no_python_function_is_over_60_lines(folder):
    """Docstrings do not count, since contracts may be long."""
    results = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {lines} lines"
        for path in own_files(".py")
        if path.relative_to(ROOT).parts[0] == folder
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if (lines := body_lines(node)) > FUNCTION_LINES_MAX
    ]
    assert results == []


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    documented = ast.get_docstring(node) is not None
    body = node.body[1:] if documented else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_no_function_in_cpp_is_over_60_lines():
    """Functions outside classes, from the first line to the closing brace."""
    results = [
        f"{path.relative_to(ROOT)}:{first} has {last - first + 1} lines"
        for path in own_files(".cc", ".h")
        if path.relative_to(ROOT).parts[0] != "tests"
        for first, last in cpp_functions(path.read_text())
        if last - first >= FUNCTION_LINES_MAX
    ]
    assert results == []


def cpp_functions(source: str) -> Iterator[tuple[int, int]]:
    """First and last lines, from 1. clang-format puts both at the left margin."""
    first = 0
    for number, line in enumerate(source.splitlines(), start=1):
        if line == "}":
            yield first, number
        elif line[:1] not in ("", " ", "#", "/", "}"):
            first = number
