"""What is shipped: the sdist makes a wheel, and the wheel is whole.

The wheel is installed into an environment of its own, to which the environment that runs this
test lends the dependencies, and only those: every file of embershard comes from the wheel.
"""

import json
import math
import os
import signal
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.cli.running import serving
from tests.repository.sources import ROOT

GOLDEN = ROOT / "tests" / "golden" / "format_0"

BUILD_SDIST = """
import sys
from scikit_build_core.build import build_sdist
build_sdist(sys.argv[1])
"""

ASK = """
import json, sys
import embershard
client = embershard.Client(sys.argv[1], timeout_seconds=30)
answer = client.predict(
    dense={"age": 0.5, "price": [0.25, -1.0]}, sparse={"user": ["bob"], "item": [[3], [0]]}
)
print(json.dumps({"score": answer["score"].tolist(), "file": embershard.__file__}))
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """What a command prints. Fails with all that it said."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": "", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built from the unpacked sdist, away from the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-c", BUILD_SDIST, folder, cwd=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    tree = folder / sdist.name.removesuffix(".tar.gz")
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index")
    run(*pip, "--wheel-dir", folder, tree, cwd=folder, CCACHE_BASEDIR=str(tree))
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture
def environment(tmp_path: Path, wheel: Path) -> Path:
    """A virtual environment with the wheel, and the path of this one's packages behind it."""
    home = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=tmp_path)
    python = home / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index")
    run(*pip, wheel, cwd=tmp_path)
    printed = run(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path
    )
    # A folder named in a .pth file is searched last, and its own .pth files are not read: the
    # checkout's editable install stays unseen.
    (Path(printed.strip()) / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_wheel_holds_the_library_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0] for name in names} == {"embershard", "embershard-0.1.0.dist-info"}
    kinds = {Path(name).suffix for name in names if name.startswith("embershard/")}
    assert kinds == {
        ".binpb",
        ".css",
        ".html",
        ".js",
        ".json",
        ".py",
        ".pyi",
        ".so",
        ".svg",
        ".typed",
    }
    assert {
        "embershard/_proto/predictor_pb2.py",
        "embershard/_proto/protocols.binpb",
        "embershard/export/__init__.py",
        "embershard/py.typed",
        "embershard/serving/__init__.py",
        "embershard/serving/metrics/page/index.html",
    } <= names
    extensions = {name.split(".")[0] for name in names if name.endswith(".so")}
    backend = "embershard/serving/triton/backends/embershard"
    assert extensions == {
        "embershard/serving/_predictor",
        "embershard/bench/_load",
        "embershard/kernels/_row_update",
        f"{backend}/libtriton_embershard",
        f"{backend}/batchstrategy",
    }


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_wheel_serves_the_golden_package(environment: Path, tmp_path: Path) -> None:
    command = [environment / "bin" / "embershard", "serve"]
    outside = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": ""}}
    with serving(GOLDEN, command=command, **outside) as server:
        assert server.line.startswith("serving tiny 1 on ")
        printed = run(environment / "bin" / "python", "-c", ASK, server.address, cwd=tmp_path)
        assert server.stop(signal.SIGTERM)[0] == 0

    answer = json.loads(printed.splitlines()[-1])
    assert Path(answer["file"]).is_relative_to(environment)
    # bob is row 1 of users, (16 + c) / 128 - 1; no tags; their 8 columns have this mean.
    request = 0.5 + ((16 * 4 + 0 + 1 + 2 + 3) / 128 - 4) / 8
    # Item r has the columns (r + c) / 2 - 1, c in 0..7: means of 2.25 and 0.75.
    logits = [request + 0.25 + 2.25, request - 1.0 + 0.75]
    assert answer["score"] == pytest.approx([1 / (1 + math.exp(-x)) for x in logits], abs=1e-6)
