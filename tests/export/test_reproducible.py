"""Two processes in two folders export the same module to the same bytes, without their paths."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXPORTS = {
    "pooled": """
from tests.serving.models import export_ranker
export_ranker(Path.cwd() / "repository")
""",
    "sequences": """
from tests.serving.attending import export_attending
export_attending(Path.cwd() / "repository", weights="int8")
""",
}
PREPARE = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
"""


@pytest.fixture(scope="module", params=EXPORTS)
def packages(request, tmp_path_factory):
    """Packages of processes with different hash seeds, whose sets of strings have other orders."""
    results = []
    for seed in ("1", "2"):
        folder = tmp_path_factory.mktemp(f"machine-{seed}")
        environment = {**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", PREPARE + EXPORTS[request.param], str(ROOT)]
        subprocess.run(command, cwd=folder, env=environment, check=True, timeout=100)
        (package,) = (folder / "repository").glob("*/1")
        results.append(package)
    return results


def contents(package):
    return {
        file.relative_to(package).as_posix(): file.read_bytes()
        for file in sorted(package.rglob("*"))
        if file.is_file()
    }


@pytest.mark.slow
def test_every_file_is_the_same(packages):
    first, second = map(contents, packages)
    assert list(first) == list(second)
    assert [name for name in first if first[name] != second[name]] == []


def test_no_file_names_the_exporters_folders(packages):
    paths = [str(ROOT), str(packages[0].parents[2]), sys.prefix, "site-packages"]
    with zipfile.ZipFile(packages[0] / "programs" / "dense.pt") as archive:
        files = {
            **contents(packages[0]),
            **{name: archive.read(name) for name in archive.namelist()},
        }
    assert [(name, path) for name in files for path in paths if path.encode() in files[name]] == []
