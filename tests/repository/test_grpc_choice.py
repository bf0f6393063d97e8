"""EMBERSHARD_GRPC: CMake refuses a choice that it cannot follow."""

import subprocess

import pytest

from tests.repository.sources import ROOT

PARTS = ["bin/protoc", "bin/grpc_cpp_plugin", "include/grpcpp/grpcpp.h"]


def choose(**settings):
    """Runs only grpc.cmake, which chooses the gRPC installation."""
    defined = [f"-D{name}={value}" for name, value in settings.items()]
    return subprocess.run(
        ["cmake", *defined, "-P", ROOT / "embershard/serving/predictor/grpc.cmake"],
        capture_output=True,
        text=True,
        timeout=60,
    )


def install(folder, parts):
    for part in parts:
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        (folder / part).touch()


def test_the_distributions_needs_nothing():
    assert choose().returncode == 0


def test_one_that_is_installed_whole_is_taken(tmp_path):
    install(tmp_path, PARTS)
    done = choose(EMBERSHARD_GRPC="vendored", EMBERSHARD_GRPC_PREFIX=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("missing", PARTS)
def test_what_is_missing_is_named_with_where_it_was_looked_for(tmp_path, missing):
    install(tmp_path, [part for part in PARTS if part != missing])
    done = choose(EMBERSHARD_GRPC="vendored", EMBERSHARD_GRPC_PREFIX=tmp_path)
    message = " ".join(done.stderr.split())
    assert done.returncode == 1
    assert f"got '{tmp_path}', where {missing} is missing; docs/deployment.md says" in message


def test_an_unknown_choice_is_refused():
    done = choose(EMBERSHARD_GRPC="mine")
    assert done.returncode == 1
    assert "EMBERSHARD_GRPC must be system or vendored, got 'mine'" in done.stderr
