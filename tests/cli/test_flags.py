"""Flags that are refused before anything is loaded: empty, given twice, without effect."""

import re

import pytest

from embershard.cli import main
from tests.cases import cases
from tests.cli.running import run

TEXTS = [
    "--host",
    "--plan",
    "--dense-program",
    "--traffic",
    "--control",
    "--model-weights",
    "--tls-certificate",
    "--tls-key",
    "--tls-client-ca",
    "--token-file",
    "--trusted-key",
    "--record",
    "--metrics-host",
    "--version",
]


@pytest.mark.parametrize("flag", TEXTS)
def test_an_empty_value_is_refused(flag, capsys):
    """An unset variable of a shell is empty: the server would start without the flag's effect."""
    with pytest.raises(SystemExit) as ended:
        main(["serve", "repository", flag, ""])
    assert ended.value.code == 2
    assert re.search(
        rf"argument {flag}\S*: expected a value, got ''; see ", capsys.readouterr().err
    )


@cases(
    ("arguments", "words"),
    {
        "serve": (["serve", ""], "argument REPOSITORY: expected a path, got ''"),
        "fetch": (["fetch", "file:///far", ""], "argument REPOSITORY: expected a path, got ''"),
        "key": (["sign", "1", "--key", ""], "argument --key: expected a path, got ''"),
    },
)
def test_an_empty_path_is_not_the_current_folder(arguments, words, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert words in capsys.readouterr().err


def test_a_flag_given_twice_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["serve", "repository", "--traffic", "canary=5", "--traffic", "stable=3"])
    words = "argument --traffic: expected once, got canary=5 and stable=3; see "
    assert words in capsys.readouterr().err


@cases(
    ("arguments", "words"),
    {
        "version": (["--version", 2], "ConfigError: --version: expected MODEL with it, got none"),
        "replace": (["--replace"], "ConfigError: --replace: expected MODEL with it, got none"),
        "empty": (["", "--version", 2], "InputError: MODEL: expected the name of a model, got ''"),
    },
)
def test_load_without_a_model_takes_no_options_of_one(tmp_path, arguments, words):
    ended = run("load", tmp_path / "no-server", *arguments)
    assert (ended.returncode, ended.stderr) == (1, f"embershard load: {words}\n")
