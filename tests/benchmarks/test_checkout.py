"""Python, modules and flags of a checkout."""

import pytest

from benchmarks.checkout import ROOT, Checkout
from embershard.errors import ConfigError


@pytest.fixture
def other(tmp_path):
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").touch()
    return Checkout.at(tmp_path)


def test_a_folder_without_venv_is_no_checkout(tmp_path):
    with pytest.raises(ConfigError, match=r"expected a checkout with \.venv"):
        Checkout.at(tmp_path)


def test_servers_run_in_their_checkout_with_its_python(other):
    command = other.serve(other.root / "repository", "--threads", 1)
    assert command.arguments[:5] == (other.python, "-m", "embershard", "serve",
                                 str(other.root / "repository"))  # fmt: skip
    assert command.arguments[5:] == ("--port", "0", "--threads", "1")
    assert command.folder == other.root


def test_workers_come_from_the_checkout_or_else_are_ours(other):
    assert other.module("benchmarks.workers.local").folder == ROOT
    (other.root / "benchmarks" / "workers").mkdir(parents=True)
    (other.root / "benchmarks" / "workers" / "local.py").touch()
    assert other.module("benchmarks.workers.local").folder == other.root
    assert other.module("benchmarks.workers.export").folder == ROOT


def test_a_program_that_is_not_built_says_how_to_build_it(other):
    with pytest.raises(ConfigError, match=r"noop_server: .*`make benchmark-programs`"):
        other.program("noop_server")
