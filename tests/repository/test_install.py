"""scripts/install.sh: its refusals, and the packages that pip installs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import cases
from tests.repository.sources import ROOT


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder of fake commands: the user is not root, and g++ is the only installed package."""
    commands = {
        "id": "echo 1000",
        "sudo": "echo 'sudo: a password is required' >&2; exit 1",
        "dpkg-query": '[ "$3" = g++ ] && echo -n installed',
        "apt-get": "echo unexpected >&2; exit 9",
    }
    for name, body in commands.items():
        command = tmp_path / "commands" / name
        command.parent.mkdir(exist_ok=True)
        command.write_text(f"#!/bin/sh\n{body}\n")
        command.chmod(0o755)
    return tmp_path / "commands"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The script in a checkout that has no other file."""
    script = tmp_path / "checkout" / "scripts" / "install.sh"
    script.parent.mkdir(parents=True)
    script.write_text((ROOT / "scripts" / "install.sh").read_text())
    return script


def run(script: Path, machine: Path, *arguments: str, **environment: str):
    return subprocess.run(
        ["bash", script, *arguments],
        env={**os.environ, "PATH": f"{machine}:{os.environ['PATH']}", **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


@cases(
    ("stage", "named", "not_named"),
    {
        "everything": ([], {"cmake", "libgrpc++-dev", "libxxhash-dev"}, {"g++"}),
        "browser": (["browser"], {"chromium", "chromium-driver"}, {"cmake"}),
        "fuzz": (["fuzz"], {"clang-14", "libclang-rt-14-dev", "libgrpc++-dev"}, {"chromium"}),
        "python": (["python"], {"python3", "python3-venv"}, {"cmake"}),
    },
)
def test_missing_packages_are_named_with_the_command(checkout, machine, stage, named, not_named):
    done = run(checkout, machine, *stage, PYTHON="python9" if stage == ["python"] else "python3")
    command = done.stderr.splitlines()[-1].split()
    assert done.returncode == 1
    assert command[:3] == ["sudo", "apt-get", "install"]
    assert named <= set(command[3:]) <= set(command[3:]) - not_named


def test_nothing_is_made_where_packages_are_missing(checkout, machine):
    run(checkout, machine)
    assert sorted(path.name for path in checkout.parents[1].iterdir()) == ["scripts"]


def test_a_python_that_is_too_old_is_refused(checkout, machine):
    old = machine / "python9"
    old.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.1\n'
        'case "$2" in *version_info*) exit 1;; esac\n'
    )
    old.chmod(0o755)
    done = run(checkout, machine, "python", PYTHON="python9")
    assert done.returncode == 1
    assert "expected Python 3.11 or later, got Python 3.9.1" in done.stderr


def test_a_virtual_environment_of_someone_else_is_left_alone(checkout, machine):
    config = checkout.parents[1] / ".venv" / "pyvenv.cfg"
    config.parent.mkdir()
    config.write_text("home = /usr/bin\n")
    done = run(checkout, machine, "python")
    assert done.returncode == 1
    assert done.stderr.endswith(
        "expected a folder that this script made, got another; move it away\n"
    )
    assert config.exists()


PYTHON = f"""#!/bin/sh
case "$1 $2" in
  "--version "*) echo Python 3.11.0 ;;
  "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && cp "$0" "$3/bin/pip" ;;
  "- "*) exec {sys.executable} "$@" ;;
  "install "*) echo "$@" >> "$PIPS" ;;
  "-c import sys, torch"*) [ "$TORCH_IS" != cpu ] ;;
esac
"""
"""A fake Python that copies itself into new environments as python and pip. As pip it records its
arguments."""


@pytest.fixture
def python(checkout, machine):
    """A function that runs the stage `python` and returns the run and pip's arguments."""
    (machine / "python9").write_text(PYTHON)
    (machine / "python9").chmod(0o755)
    folder = checkout.parents[1]
    for name in ("constraints.txt", "pyproject.toml", "proto"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "scripts" / "generate_proto.py").touch()
    pips = folder / "pips"

    def stage(**environment):
        pips.write_text("")
        done = run(checkout, machine, "python", PYTHON="python9", PIPS=str(pips), **environment)
        return done, pips.read_text().splitlines()

    return stage


def fbgemm_of(checkout):
    """The lines for FBGEMM in the requirements and in the constraints."""
    return [
        line
        for name in ("requirements.txt", "constraints.txt")
        for line in (checkout.parents[1] / ".venv" / name).read_text().splitlines()
        if line.startswith("fbgemm")
    ]


def test_torch_and_fbgemm_for_cuda_are_installed_if_asked_for(checkout, python):
    done, installed = python(CUDA="1")
    assert (done.returncode, len(installed)) == (0, 2), done.stderr
    required, pinned = fbgemm_of(checkout)
    assert required.startswith("fbgemm-gpu>=")
    assert pinned.startswith("fbgemm-gpu==")


def test_the_environment_stays_for_cuda_until_cuda_is_0(checkout, python):
    python(CUDA="1")
    assert python()[1] == []
    done, installed = python(CUDA="0")
    assert (done.returncode, len(installed)) == (0, 2), done.stderr
    assert [line.partition("=")[0] for line in fbgemm_of(checkout)] == [
        *("fbgemm-gpu-cpu>", "fbgemm-gpu-cpu"),
    ]


def test_an_index_of_torch_for_cpu_is_refused_with_cuda(python):
    done, installed = python(CUDA="1", TORCH_IS="cpu")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "install: CUDA=1: expected torch built for CUDA, got one built for CPU; "
        "unset TORCH_INDEX and remove .venv"
    )
    assert len(installed) == 1


def test_cuda_is_1_or_0(python):
    done, installed = python(CUDA="yes")
    assert (done.returncode, installed) == (1, [])
    assert done.stderr == "install: CUDA: expected 1 or 0, got 'yes'\n"


@cases(
    ("arguments", "value"),
    {
        "no-version": (["torch"], "''"),
        "part-of-a-version": (["torch", "2.14"], "'2.14'"),
        "version-before-2": (["torch", "1.13.1"], "'1.13.1'"),
        "candidate": (["torch", "2.14.1rc1"], "'2.14.1rc1'"),
        "stage": (["everything"], "'everything'"),
    },
)
def test_arguments_that_cannot_be_used_are_refused(checkout, machine, arguments, value):
    done = run(checkout, machine, *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("install: ")
    assert value in done.stderr


def test_the_page_names_the_packages_that_the_images_install():
    script = (ROOT / "scripts" / "runtime.sh").read_text()
    (packages,) = re.findall(r"^serving_packages=\((.*)\)$", script, re.MULTILINE)
    page = (ROOT / "docs" / "install.md").read_text()
    (line,) = re.findall(r"apt-get install (.*)", page)
    # The image also has certificates, for `embershard fetch`.
    assert set(line.split()) == {*packages.split(), "python3-venv"} - {"ca-certificates"}
