"""The sdist makes a wheel, and the wheel works in an environment without a compiler.

That environment holds the wheel and the distributions that the wheel requires. They are links to
the packages of the environment that runs this test, so nothing is downloaded.
"""

import json
import os
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.cli.running import serving
from tests.repository.sources import ROOT

BUILD_SDIST = """
import sys
from scikit_build_core.build import build_sdist
build_sdist(sys.argv[1])
"""

EXPORT = """
import sys
import torch
import embershard as es

class Sums(torch.nn.Module):
    def __init__(self):
        super().__init__()
        table = es.EmbeddingBagConfig(
            name="items", num_embeddings=3, embedding_dim=4, feature_names=["item"]
        )
        self.embeddings = es.EmbeddingBagCollection([table])

    def forward(self, dense, sparse):
        return self.embeddings(sparse)["item"].sum(dim=1) + dense[:, 0]

model = Sums()
with torch.no_grad():
    rows, columns = torch.arange(3.0)[:, None], torch.arange(4.0)
    next(model.parameters()).copy_(rows + 85 * columns)
schema = es.Schema(
    dense=[es.DenseInput("price")],
    sparse=[es.SparseInput("item", ids=es.Identity(3, unknown="zero"))],
)
es.export_model(model, schema, sys.argv[1], weights="int8")
"""

ASK = """
import json, sys
import embershard
client = embershard.Client(sys.argv[1], timeout_seconds=30)
answer = client.predict(dense={"price": [0.5, -1.0]}, sparse={"item": [[2], [0, 1]]})
print(json.dumps({"score": answer["score"].tolist(), "file": embershard.__file__}))
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """The output of a command. A failed command fails the test with its output."""
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
    """The wheel built from the unpacked sdist, away from the checkout.

    The tree has a .venv like the checkout, so that the compiler sees the same relative paths in
    both. Then it finds the objects of the checkout in its cache.
    """
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-c", BUILD_SDIST, folder, cwd=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    tree = folder / sdist.name.removesuffix(".tar.gz")
    (tree / ".venv").symlink_to(sys.prefix)
    python = tree / ".venv" / "bin" / "python"
    pip = (python, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index")
    run(*pip, "--wheel-dir", folder, tree, cwd=folder, CCACHE_BASEDIR=str(tree))
    (built,) = folder.glob("*.whl")
    return built


def required(wheel: Path) -> list[Requirement]:
    """Requirements of the wheel for export on a CPU."""
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read("embershard-0.1.0.dist-info/METADATA").decode()
    lines = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: ")]
    requirements = [Requirement(line.partition(": ")[2]) for line in lines]
    return [
        part for part in requirements if not part.marker or part.marker.evaluate({"extra": "cpu"})
    ]


def closure(requirements: Iterable[Requirement]) -> list[Distribution]:
    """The installed distributions of these requirements and of all that they require."""
    results: dict[str, Distribution] = {}
    pending = list(requirements)
    while pending:
        name = pending.pop().name.lower()
        if name not in results:
            results[name] = distribution(name)
            needed = [Requirement(text) for text in results[name].requires or ()]
            pending += [part for part in needed if not part.marker or part.marker.evaluate()]
    return list(results.values())


@pytest.fixture
def environment(tmp_path: Path, wheel: Path) -> Path:
    """A new virtual environment in which `pip install WHEEL[cpu]` finds all that it requires."""
    home = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=tmp_path)
    (site,) = (home / "lib").glob("python3.*/site-packages")
    for package in closure(required(wheel)):
        for name in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            if not (site / name).exists():
                (site / name).symlink_to(package.locate_file(name))
    python = home / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--no-index")
    run(*pip, f"{wheel}[cpu]", cwd=tmp_path)
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
def test_wheel_requires_the_torch_it_was_compiled_against(wheel: Path) -> None:
    specifiers = {str(part.specifier) for part in required(wheel) if part.name == "torch"}
    minor = ".".join(version("torch").split(".")[:2])
    assert f"=={minor}.*" in specifiers


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_wheel_exports_and_serves_without_a_compiler(environment: Path, tmp_path: Path) -> None:
    python = environment / "bin" / "python"
    outside = {"PATH": str(environment / "bin")}
    run(python, "-c", EXPORT, tmp_path / "repository" / "sums" / "1", cwd=tmp_path, **outside)
    command = [environment / "bin" / "embershard", "serve"]
    with serving(
        "repository", command=command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": "", **outside}
    ) as server:
        assert server.line.startswith("serving sums 1 on ")
        printed = run(python, "-c", ASK, server.address, cwd=tmp_path, **outside)
        assert server.stop(signal.SIGTERM)[0] == 0

    answer = json.loads(printed.splitlines()[-1])
    assert Path(answer["file"]).is_relative_to(environment)
    # int8 holds row r = r + [0, 85, 170, 255] exactly. Its sum is 4 r + 510.
    assert answer["score"] == [518 + 0.5, 510 + 514 - 1.0]
