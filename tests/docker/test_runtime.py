"""Contents of the serving image, made without Docker by the image's own build step:

scripts/runtime.sh build serving build/serving
"""

import json
import os
import re
import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.running import Serving, serving
from tests.docker.files import DOCKER, only_step, stages
from tests.repository.sources import ROOT

GOLDEN = ROOT / "tests" / "golden" / "format_0"
RUNTIME = ROOT / "build" / "serving"
IMAGE = stages(DOCKER / "serving.Dockerfile")[-1]

pytestmark = pytest.mark.needs_runtime


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        env={"PATH": f"{RUNTIME / 'bin'}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )


@contextmanager
def image_command(tmp_path: Path) -> Iterator[Serving]:
    """Runs the image's command on free ports with the golden package. It may not write to files."""
    words = only_step(IMAGE, "ENTRYPOINT").words() + only_step(IMAGE, "CMD").words()
    words[0] = str(RUNTIME / "bin" / words[0])
    replacements = {"/repository": str(GOLDEN), "0.0.0.0": "127.0.0.1", "9400": "0"}
    for value, replacement in replacements.items():
        assert value in words
        words = [replacement if word == value else word for word in words]
    with serving(
        command=words,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
    ) as server:
        yield server


def test_the_images_command_serves_says_so_and_drains(tmp_path):
    health = only_step(IMAGE, "HEALTHCHECK").words()
    with image_command(tmp_path) as server:
        check = [word.replace("http://127.0.0.1:9400/", server.metrics) for word in health]
        assert check != health
        results = run(*check)
        assert (results.returncode, results.stderr) == (0, "")
        assert "tiny" in run("embershard", "predict", server.address).stdout
        code, _, logged = server.stop(signal.SIGTERM)
        assert code == 0, logged
        logged = logged.splitlines()
        assert logged
        assert all(isinstance(json.loads(line), dict) for line in logged)
        assert run(*check).returncode != 0
    assert list(tmp_path.iterdir()) == []


def test_training_and_tests_are_left_behind():
    (site,) = (RUNTIME / "lib").glob("python3.*/site-packages")
    held = {re.split(r"[-_]\d", path.name)[0].lower() for path in site.glob("*.dist-info")}
    assert {"embershard", "torch", "s3fs", "cryptography"} <= held
    assert not held & {"fbgemm_gpu_cpu", "fbgemm-gpu-cpu", "torchmetrics", "pytest", "mypy", "pip"}


@pytest.mark.slow
def test_every_library_comes_from_the_images_packages():
    (extension,) = (RUNTIME / "lib").glob(
        "python3.*/site-packages/embershard/serving/_predictor*.so"
    )
    listed = re.search(r"^serving_packages=\((.*)\)$", script(), re.MULTILINE)
    assert listed
    installed = closure({*listed[1].split(), "libc6", "libstdc++6", "libgcc-s1"})
    printed = run("ldd", extension).stdout
    assert "not found" not in printed
    for library in re.findall(r"=> (/\S+)", printed):
        if Path(library).is_relative_to(RUNTIME):
            continue
        # dpkg names some libraries without /usr, since /lib is a link to /usr/lib.
        names = {library, os.path.realpath(library)}
        owners = [run("dpkg-query", "--search", name).stdout for name in sorted(names)]
        assert {text.split(":")[0] for text in owners if text} & installed, library


def script() -> str:
    return (ROOT / "scripts" / "runtime.sh").read_text()


def closure(names: set[str]) -> set[str]:
    """Packages and all their dependencies, as they are installed on this machine."""
    result: set[str] = set()
    while names - result:
        name = (names - result).pop()
        result.add(name)
        depends = run("dpkg-query", "--show", "--showformat=${Depends}", name).stdout
        names |= set(re.findall(r"(?:^|[,|]\s*)([a-z0-9][a-z0-9+.-]+)", depends))
    return result
