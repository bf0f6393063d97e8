"""The command line as a whole."""

import os
import re
import signal
import subprocess
import sys
import threading

import pytest

import embershard
from embershard import cli
from embershard.commands import packages
from embershard.errors import InputError
from tests.cases import cases
from tests.cli.running import ROOT, run


def test_python_dash_m_is_the_command():
    ended = run("--version")
    assert (ended.returncode, ended.stdout) == (0, f"embershard {embershard.__version__}\n")


@pytest.mark.parametrize(
    "arguments", [[], ["sreve"], ["serve"], ["serve", ".", "--prot", "1"]], ids=" ".join
)
def test_a_meaningless_command_line_ends_with_2_and_one_line(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    command = " ".join(
        ["embershard", *(argument for argument in arguments[:1] if argument == "serve")]
    )
    assert line.startswith(f"{command}: error: ")
    assert line.endswith(f"; see {command} --help")


def test_a_mistyped_instruction_set_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("EMBERSHARD_ISA", "AVX2")
    assert cli.main(["inspect", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    said = "InputError: EMBERSHARD_ISA: expected avx2 or avx512, got 'AVX2'"
    assert line == f"embershard inspect: {said}"


@cases(
    ("arguments", "said"),
    {
        "unlike-any": (["inspect", ".", "--port", "1"], "--port 1"),
        "close": (["serve", ".", "--prot", "1"], "--prot 1; did you mean --port?"),
        "with-value": (["serve", ".", "--prot=1"], "--prot=1; did you mean --port?"),
        "abbreviated": (
            ["serve", ".", "--max-batch-example", "4"],
            "--max-batch-example 4; did you mean --max-batch-examples?",
        ),
    },
)
def test_an_unknown_flag_is_refused_with_the_nearest_one(arguments, said, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    command = f"embershard {arguments[0]}"
    assert capsys.readouterr().err == (
        f"{command}: error: unrecognized arguments: {said}; see {command} --help\n"
    )


@pytest.mark.parametrize("command", ["train", "export", "inspect", "verify", "serve", "predict"])
def test_help_says_what_every_argument_is(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    _, _, arguments = capsys.readouterr().out.partition("arguments:")
    whole = re.sub(r"\n {10,}", "  ", arguments)  # Help behind a long option has its own line.
    lines = [line for line in whole.splitlines() if line.startswith("  ")]
    assert len(lines) >= 2
    for line in lines:  # "  --port PORT  port to listen on": at least three words of help.
        _, _, said = line.strip().partition("  ")
        assert len(said.split()) >= 3, line


@pytest.mark.parametrize(
    ("message", "words"),
    [((), "interrupted"), (("interrupted; nothing kept",), "interrupted; nothing kept")],
    ids=["without-words", "with-words"],
)
def test_ctrl_c_ends_with_130_and_says_so(message, words, monkeypatch, capsys):
    def interrupted(value):
        raise KeyboardInterrupt(*message)

    monkeypatch.setattr(packages, "_inspect", interrupted)
    assert cli.main(["inspect", "."]) == 130
    assert capsys.readouterr().err == f"embershard inspect: {words}\n"


@pytest.fixture
def usual_signals():
    """Sets SIGINT and SIGTERM as in a shell, whatever the test runner has set."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, action) for number, action in usual.items()}
    yield
    for number, action in before.items():
        signal.signal(number, action)


@cases(
    ("number", "code", "words"),
    {
        "SIGINT": (signal.SIGINT, 130, "interrupted"),
        "SIGTERM": (signal.SIGTERM, 143, "ended by SIGTERM"),
    },
)
@pytest.mark.usefixtures("usual_signals")
def test_an_interrupt_that_ends_as_another_error_is_told(number, code, words, monkeypatch, capsys):
    def interrupted(value):
        changed = threading.Condition()
        # Leaving the block fails, as in an interrupted wait that does not hold its lock.
        with changed:
            changed.release()
            os.kill(os.getpid(), number)

    monkeypatch.setattr(packages, "_inspect", interrupted)
    assert cli.main(["inspect", "."]) == code
    assert capsys.readouterr().err == f"embershard inspect: {words}\n"


@pytest.mark.usefixtures("usual_signals")
def test_an_interrupt_that_ends_as_an_error_of_ours_is_told(monkeypatch, capsys):
    def interrupted(value):
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt as interrupt:
            raise InputError("the factory raised KeyboardInterrupt") from interrupt

    monkeypatch.setattr(packages, "_inspect", interrupted)
    assert cli.main(["inspect", "."]) == 130
    assert capsys.readouterr().err == "embershard inspect: interrupted\n"


def test_another_error_is_a_bug_and_stays_one(monkeypatch):
    def failed(value):
        raise RuntimeError("a bug")

    monkeypatch.setattr(packages, "_inspect", failed)
    with pytest.raises(RuntimeError, match=r"^a bug$"):
        cli.main(["inspect", "."])


def test_ctrl_c_before_the_command_line_is_there_ends_with_130():
    program = """
import builtins, sys
load = builtins.__import__

def interrupted(name, *arguments):
    if name == "embershard.cli":
        raise KeyboardInterrupt
    return load(name, *arguments)

builtins.__import__ = interrupted
from embershard.__main__ import main
sys.exit(main())
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (130, "embershard: interrupted\n")


@pytest.mark.parametrize("buffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_output_to_a_full_disk_ends_with_one_sentence(repository, buffered):
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "embershard", "inspect", str(repository / "ranker" / "1")],
            cwd=ROOT,
            env=os.environ | {"PYTHONUNBUFFERED": buffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    message = "embershard inspect: OSError: [Errno 28] No space left on device\n"
    assert (ended.returncode, ended.stderr) == (1, message)


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_closed_standard_output_is_an_error(repository, command):
    shell = f'exec "$0" -m embershard {command} "$1" >&-'
    package = str(repository / "ranker" / "1")
    ended = subprocess.run(
        ["bash", "-c", shell, sys.executable, package],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    message = "standard output: expected a file, a pipe or /dev/null, got a closed one"
    assert (ended.returncode, ended.stderr) == (1, f"embershard {command}: InputError: {message}\n")


@pytest.mark.parametrize("command", ["inspect", "verify", "predict"])
def test_commands_that_need_no_torch_load_none(repository, address, command):
    what = address if command == "predict" else str(repository / "ranker" / "1")
    program = f"""
import sys
from embershard.cli import main
code = main([{command!r}, {what!r}])
loaded = {{name.split(".")[0] for name in sys.modules}} & {{"torch", "fbgemm_gpu"}}
print(code, sorted(loaded))
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert ended.stdout.splitlines()[-1] == "0 []", ended.stderr


def test_training_in_a_server_installation_says_what_it_needs():
    program = (
        "import sys; sys.modules['torchmetrics'] = None; from embershard.cli import main; "
        "sys.exit(main(['train', 'examples/movielens/movielens.toml']))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == (
        "embershard train: expected the Python package torchmetrics, which is not installed: "
        "pip install 'embershard[cpu]'\n"
    )
