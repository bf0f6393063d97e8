"""The command line as a whole."""

import pytest

import embershard
from embershard import cli
from tests.cli.running import run


def test_python_dash_m_is_the_command():
    ended = run("--version")
    assert (ended.returncode, ended.stdout) == (0, f"embershard {embershard.__version__}\n")


@pytest.mark.parametrize(
    "arguments", [[], ["sreve"], ["serve"], ["serve", ".", "--prot", "1"]], ids=" ".join
)
def test_a_command_line_that_means_nothing_ends_with_2_and_usage(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "usage: embershard" in capsys.readouterr().err


def test_ctrl_c_ends_with_130(monkeypatch):
    def interrupted(given):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_inspect", interrupted)
    assert cli.main(["inspect", "."]) == 130
