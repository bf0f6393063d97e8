"""`make coverage` with programs in place of Python's, which note their arguments."""

import os
import subprocess

import pytest

from tests.repository.sources import ROOT


def make_coverage(folder, tests, status):
    """Status, what was run, and what was said."""
    for name in ("pip", "coverage"):
        program = folder / name
        program.write_text(
            f'#!/bin/sh\necho {name} "$1" >> {folder}/log\n[ "$1" != run ] || exit {status}\n'
        )
        program.chmod(0o755)
    done = subprocess.run(
        ["make", "--assume-old=data", "coverage", f"bin={folder}", f"COVERAGE={tests}"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    log = folder / "log"
    return done.returncode, log.read_text().splitlines() if log.exists() else [], done.stderr


@pytest.mark.parametrize("status", [0, 1, 5], ids=["passed", "failed", "none-collected"])
def test_coverage_is_reported_and_fails_as_its_tests_do(tmp_path, status):
    code, ran, _ = make_coverage(tmp_path, "tests/jagged -k pair", status)
    assert (code == 0) == (status == 0)
    assert ran == [
        "pip install",
        "coverage erase",
        "coverage run",
        "coverage combine",
        "coverage report",
    ]


def test_coverage_of_tests_that_do_not_exist_is_refused(tmp_path):
    code, ran, said = make_coverage(tmp_path, "tests/jagged tests/nosuch tests/no.py::test_it", 0)
    assert code != 0
    assert ran == []
    assert "coverage: expected tests that exist, got tests/nosuch tests/no.py::test_it" in said
