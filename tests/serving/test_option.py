"""One declaration of an option gives its check, its flag and its help."""

import argparse
from dataclasses import dataclass, fields

import pytest

from embershard.errors import ConfigError
from embershard.serving import ServerOptions
from embershard.serving.option import (
    add_flags,
    check_options,
    native_options,
    option,
    parsed_options,
    path_option,
)
from embershard.serving.triton import TritonOptions
from tests.cases import cases


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    folder: str
    wait_ms: int = option(5, "longest wait", unit="MS", zero="none", change="Lower it", most=100)
    share: float = option(0.25, "share of 100 %", unit="S", most=1, group="sharing")
    form: str = option("text", "form of the lines", choices=("text", "json"))
    file: str = option("", "where to", unit="FILE", zero="standard output", is_native=False)
    port: int | None = option(None, "port", unit="N", zero="a free one", flag="listen")
    quiet: bool = option(False, "say nothing")
    log: str | None = path_option("lines go there", zero="standard error", needs="file")

    def __post_init__(self):
        check_options(self)


def parser(*options):
    made = argparse.ArgumentParser()
    add_flags(made, *options)
    return made


def test_help_explains_0_when_to_change_it_and_the_default():
    helps = {action.dest: action.help for action in parser(Options)._actions}
    assert helps["wait_ms"] == "longest wait; 0: none. Lower it (default: 5)"
    assert helps["share"] == "share of 100 %% (default: 0.25)"
    assert helps["form"] == "form of the lines (default: text)"
    assert helps["file"] == "where to (default: standard output)"
    assert helps["port"] == "port; 0: a free one (default: none)"
    assert helps["quiet"] == "say nothing"
    assert helps["log"] == "lines go there (default: standard error)"


def test_flags_give_the_options():
    words = ["--wait-ms", "7", "--share", "1", "--form", "json", "--listen", "80", "--quiet"]
    options_read = parsed_options(Options, parser(Options).parse_args(words), folder="x")
    assert options_read == Options(
        folder="x", wait_ms=7, share=1.0, form="json", port=80, quiet=True
    )


@cases(
    ("words", "message"),
    {
        "twice": (["--wait-ms", "7", "--wait-ms", "5"], "--wait-ms: expected once, got 7 and 5"),
        "the-same-twice": (["--file", "a", "--file=a"], "--file: expected once, got a and a"),
        "empty": (["--file", ""], "--file: expected a value, got ''"),
        "empty-path": (["--log="], "--log: expected a value, got ''"),
    },
)
def test_a_flag_given_twice_or_without_a_value_is_refused(words, message, capsys):
    with pytest.raises(SystemExit):
        parser(Options).parse_args(words)
    assert f"argument {message}" in capsys.readouterr().err


@pytest.mark.parametrize("options", [ServerOptions, TritonOptions])
def test_without_flags_options_are_the_defaults(options):
    options_read = parsed_options(options, parser(options).parse_args([]))
    assert options_read == options()
    assert len(fields(options)) == len(parser(options)._actions) - 1  # --help is none.


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"wait_ms": 101}, "wait_ms: expected 0..100, got 101"),
        ({"wait_ms": None}, "wait_ms: expected a whole number, 0..100, got None"),
        ({"share": "1"}, "share: expected a number, 0..1, got '1'"),
        ({"form": "xml"}, "form: expected text or json, got 'xml'"),
        ({"port": -1}, "port: expected 0..2147483647, got -1"),
        ({"log": ""}, "log: expected a path, or None for none, got ''"),
        ({"log": "x"}, "log: expected file as well, got only 'x'"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(value, words):
    with pytest.raises(ConfigError) as caught:
        Options(folder="", **value)
    assert str(caught.value) == words


def test_the_extension_gets_native_options_only():
    assert native_options(Options(folder="x")) == {
        "wait_ms": 5,
        "share": 0.25,
        "form": "text",
        "port": None,
        "quiet": False,
        "log": "",
    }
