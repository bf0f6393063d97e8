"""The images: what their files promise, checked without Docker, which builds none here."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import cases
from tests.docker.files import (
    DOCKER,
    DOCKERFILES,
    context_files,
    ignored,
    one,
    parse,
    scripts_run,
    stages,
)
from tests.repository.sources import ROOT

BUILT = [pytest.param(file, id=file.name.split(".")[0]) for file in DOCKERFILES]


def hadolint(file: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).parent / "hadolint", file]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("file", BUILT)
def test_the_linter_finds_nothing(file):
    done = hadolint(file)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_linter_finds_what_is_wrong(tmp_path):
    bad = tmp_path / "bad.Dockerfile"
    bad.write_text("FROM debian:latest\nRUN cd /tmp && sudo true\n")
    done = hadolint(bad)
    assert done.returncode != 0
    assert {"DL3007", "DL3004"} <= set(re.findall(r"DL\d{4}", done.stdout))


@pytest.mark.parametrize("file", BUILT)
def test_what_is_built_with_is_left_behind(file):
    build, final = stages(file)
    assert build[0].rest.endswith(" AS build")
    (copied,) = [step.rest for step in final if step.name == "COPY"]
    assert copied == "--from=build /opt/embershard /opt/embershard"


@pytest.mark.parametrize("file", BUILT)
def test_base_images_are_pinned_to_a_point_release(file):
    for stage in stages(file):
        assert re.fullmatch(r"debian:12\.\d+-slim( AS build)?", stage[0].rest)


@pytest.mark.parametrize("file", BUILT)
def test_nothing_runs_as_root(file):
    final = stages(file)[-1]
    user, group = one(final, "USER").rest.split(":")
    assert int(user) > 0 < int(group)
    after = [step.name for step in final[final.index(one(final, "USER")) :]]
    assert "RUN" not in after


@pytest.mark.parametrize("file", BUILT)
def test_health_is_said(file):
    health = one(stages(file)[-1], "HEALTHCHECK")
    assert health.rest == "NONE" or health.listed()[0] == "python"


@pytest.mark.parametrize("file", BUILT)
def test_it_is_built_by_the_scripts_that_make_install_runs(file):
    kind = file.name.split(".")[0]
    assert scripts_run(file) == [
        ["install.sh", "python"],
        ["install.sh"],
        ["runtime.sh", "build", kind, "/opt/embershard"],
        ["runtime.sh", "packages", kind],
    ]
    makefile = (ROOT / "Makefile").read_text()
    assert "install:\n\t@scripts/install.sh\n" in makefile


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


def test_the_server_image_can_be_built_for_gpus():
    build = stages(DOCKER / "serving.Dockerfile")[0]
    steps = [step.name for step in build]
    assert "CUDA=0" in [step.rest for step in build[: steps.index("RUN")] if step.name == "ARG"]


def test_the_server_listens_where_the_image_says():
    final = stages(DOCKER / "serving.Dockerfile")[-1]
    assert one(final, "ENTRYPOINT").listed() == ["embershard"]
    parsed = parse(one(final, "CMD").listed())
    assert (parsed.host, parsed.metrics_host) == ("0.0.0.0", "0.0.0.0")
    assert one(final, "EXPOSE").rest.split() == [str(parsed.port), str(parsed.metrics_port)]
    assert f"http://127.0.0.1:{parsed.metrics_port}/healthz" in one(final, "HEALTHCHECK").rest


def test_the_context_holds_what_is_built_and_no_more():
    sent = context_files()
    assert {
        "CMakeLists.txt",
        "LICENSE",
        "README.md",
        "constraints.txt",
        "embershard/cli.py",
        "embershard/export/__init__.py",
        "proto/embershard/v1/predictor.proto",
        "pyproject.toml",
        "scripts/install.sh",
        "embershard/serving/predictor/binding/module.cc",
        "tests/serving/predictor/CMakeLists.txt",
    } <= sent
    tops = {path.split("/")[0] for path in sent if "/" in path}
    assert tops == {"embershard", "proto", "scripts", "tests"}
    assert {path.split("/")[2] for path in sent if path.startswith("tests/")} == {"predictor"}
    assert not [path for path in sent if path.endswith(".so") or "/_proto/" in path]


@cases(
    ("path", "patterns", "expected"),
    {
        "below-a-folder": ("a/b/c.py", ["a"], True),
        "not-in-the-root": ("a/b/c.py", ["b"], False),
        "at-any-depth": ("a/b/c.py", ["**/b"], True),
        "by-ending": ("a/b/c.so", ["**/*.so"], True),
        "taken-in-again": ("a/b/c.py", ["a", "!a/b"], False),
        "the-last-decides": ("a/b/c.py", ["!a/b", "a"], True),
    },
)
def test_dockerignore_is_read_as_docker_does(path, patterns, expected):
    assert ignored(path, patterns) is expected
