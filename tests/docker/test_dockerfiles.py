"""Checks of the Dockerfiles and of the script that fills the images, without Docker."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import cases
from tests.docker.files import (
    DOCKER,
    only_step,
    parse,
    stages,
)
from tests.repository.sources import ROOT

BUILT = [
    pytest.param(file, id=file.name.split(".")[0]) for file in sorted(DOCKER.glob("*.Dockerfile"))
]


def hadolint(file: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).parent / "hadolint", file]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("file", BUILT)
def test_hadolint_finds_nothing(file):
    done = hadolint(file)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("file", BUILT)
def test_nothing_runs_as_root(file):
    final = stages(file)[-1]
    user, group = only_step(final, "USER").arguments.split(":")
    assert int(user) > 0 < int(group)
    after = [step.name for step in final[final.index(only_step(final, "USER")) :]]
    assert "RUN" not in after


@cases(
    ("kind", "cuda", "extras"),
    {
        "serving": ("serving", "0", "fetch,sign"),
        "serving-on-gpus": ("serving", "1", "fetch,sign,cuda"),
        "training": ("training", "0", "cpu,fetch,sign"),
        "training-on-gpus": ("training", "1", "cuda,fetch,sign"),
    },
)
def test_an_image_holds_the_fbgemm_that_its_devices_need(tmp_path, kind, cuda, extras):
    script = tmp_path / "scripts" / "runtime.sh"
    pip = tmp_path / ".venv" / "bin" / "pip"
    for path in (script, pip):
        path.parent.mkdir(parents=True)
    script.write_text((ROOT / "scripts" / "runtime.sh").read_text())
    pip.write_text('#!/bin/sh\necho "$@" >> pips\n')
    pip.chmod(0o755)
    environment = {**os.environ, "CUDA": cuda, "PYTHON": "true"}
    command = ["bash", script, "build", kind, tmp_path / "out"]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60)
    assert (tmp_path / "pips").read_text().splitlines()[-1].endswith(f".whl[{extras}]")


def test_the_server_listens_where_the_image_says():
    final = stages(DOCKER / "serving.Dockerfile")[-1]
    assert only_step(final, "ENTRYPOINT").words() == ["embershard"]
    parsed = parse(only_step(final, "CMD").words())
    assert (parsed.host, parsed.metrics_host) == ("0.0.0.0", "0.0.0.0")
    ports = only_step(final, "EXPOSE").arguments.split()
    assert ports == [str(parsed.port), str(parsed.metrics_port)]
    check = only_step(final, "HEALTHCHECK").arguments
    assert f"http://127.0.0.1:{parsed.metrics_port}/healthz" in check
