"""A signal that says stop ends every command, and nothing of it is left behind."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from embershard.commands.signals import StopSignals
from embershard.serving.server_process.system import raise_idle_threads
from tests.cases import cases
from tests.cli.running import END_SECONDS, ROOT
from tests.serving.failures.busy import until

SIGNALS = [signal.SIGTERM, signal.SIGHUP]
STOPS = [signal.SIGTERM, signal.SIGINT]


def by_name(number):
    return number.name


@pytest.fixture
def with_default():
    """A signal's default action until the test ends, whatever the test runner has set."""
    before = {}

    def changed(number):
        before[number] = signal.signal(number, signal.SIG_DFL)

    yield changed
    for number, action in before.items():
        signal.signal(number, action)


@pytest.mark.parametrize("number", SIGNALS, ids=by_name)
def test_in_the_block_it_is_an_interrupt_and_outside_what_it_was(number, with_default):
    with_default(number)
    signals = StopSignals()
    with pytest.raises(KeyboardInterrupt, match=f"^ended by {number.name}$"), signals:
        os.kill(os.getpid(), number)
    assert (signals.received, signals.exit_code) == (number, 128 + number)
    assert signal.getsignal(number) is signal.SIG_DFL


def test_one_that_is_ignored_stays_ignored(with_default):
    with_default(signal.SIGHUP)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with StopSignals():
        os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_outside_the_main_thread_nothing_changes(with_default):
    with_default(signal.SIGTERM)
    results = []

    def look():
        with StopSignals():
            results.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert results == [signal.SIG_DFL]


def test_idle_threads_get_the_usual_priority_before_the_end(monkeypatch):
    """Raising a priority takes CAP_SYS_NICE here, so the test looks at the calls only."""
    scheduled = {os.getpid(): os.SCHED_OTHER, 7: os.SCHED_IDLE, 8: os.SCHED_BATCH, 9: None}

    def policy(thread):
        if scheduled[thread] is None:
            raise ProcessLookupError
        return scheduled[thread]

    changed = []
    monkeypatch.setattr(os, "listdir", lambda _: [str(thread) for thread in scheduled])
    monkeypatch.setattr(os, "sched_getscheduler", policy)
    monkeypatch.setattr(os, "sched_setscheduler", lambda *value: changed.append(value[:2]))
    raise_idle_threads()
    assert changed == [(7, os.SCHED_OTHER)]


class Started:
    """A Python process that has printed its first line."""

    def __init__(self, code, *arguments, **environment):
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.first = self.process.stdout.readline()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def end(self, number):
        """Exit code and the last line on standard error."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=END_SECONDS)
        return self.process.returncode, said.splitlines()[-1]


WORKING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
import embershard.package
from embershard.cli import main

def work(*_, **__):
    print("working", flush=True)
    signal.pause()  # Not in a wait of threading's, whose locks an interrupt may find half released.

embershard.package.verify_package = work
sys.exit(main(["verify", sys.argv[1]]))
"""


@cases(
    ("number", "code", "words"),
    {
        "SIGINT": (signal.SIGINT, 130, "interrupted"),
        "SIGTERM": (signal.SIGTERM, 143, "ended by SIGTERM"),
        "SIGHUP": (signal.SIGHUP, 129, "ended by SIGHUP"),
    },
)
def test_a_command_ends_with_a_line_and_the_shells_exit_code(repository, number, code, words):
    with Started(WORKING, repository / "ranker" / "1") as command:
        assert command.first == "working\n"
        assert command.end(number) == (code, f"embershard verify: {words}")


LOADING = """
import sys, threading
from embershard.cli import main
from embershard.serving.server_process import run

class Server:
    def __init__(self, *_, **__):
        print("loading", flush=True)
        threading.Event().wait(600)

run.Server = Server
sys.exit(main(["serve", sys.argv[1], "--port", "0"]))
"""


@pytest.mark.parametrize("number", STOPS, ids=by_name)
def test_a_server_that_loads_ends_at_once_and_says_so(repository, number):
    with Started(LOADING, repository) as server:
        assert server.first == "loading\n"
        code, last = server.end(number)
    assert code == -number
    assert last.split()[1:] == ["ended", f"signal={number.name}", "while=loading"]


EARLY = """
import os, signal, sys
from embershard import __main__, cli

signal.signal(signal.SIGHUP, signal.SIG_DFL)
run = cli.main
def main():
    os.kill(os.getpid(), signal.SIGHUP)
    return run()

cli.main = main
sys.argv = ["embershard", *sys.argv[1:], "--threads", "1", "--port", "0"]
sys.exit(__main__.main())
"""


def test_sighup_before_a_server_takes_signals_is_a_rescan(repository):
    """`systemctl reload` right after a start."""
    with Started(EARLY, "serve", repository) as server:
        assert server.first.startswith("serving ranker 1 on ")
        until(lambda: " refreshed " in server.process.stderr.readline())
        code, last = server.end(signal.SIGTERM)
    assert code == 0
    assert last.split()[1] == "stopped"


def test_sighup_before_another_command_runs_ends_it(repository):
    with Started(EARLY, "verify", repository) as command:
        assert command.process.wait(END_SECONDS) == -signal.SIGHUP


DRAINING = """
import sys, threading
from embershard.serving import Server
from embershard.cli import main

def stop(self):
    print("draining", flush=True)
    threading.Event().wait(600)

Server.stop = stop
sys.exit(main(["serve", sys.argv[1], "--threads", "1", "--port", "0"]))
"""


@pytest.mark.parametrize("number", STOPS, ids=by_name)
def test_a_second_signal_ends_a_server_that_drains(repository, number):
    with Started(DRAINING, repository) as server:
        assert server.first.startswith("serving ranker 1 on ")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.stdout.readline() == "draining\n"
        code, last = server.end(number)
    assert code == -number
    assert last.split()[1:] == ["ended", f"signal={number.name}", "while=draining"]


TRAINING = """
import os, signal, sys
from contextlib import contextmanager
from embershard import console
from embershard.cli import main

@contextmanager
def signalled(title):
    def show(now):
        if now.step == 7:
            for name in sys.argv[2:]:
                os.kill(os.getpid(), signal.Signals[name])
    yield show

console.training_bar = signalled
print("training", flush=True)
sys.exit(main(["train", sys.argv[1]]))
"""


def trained(file, *signals):
    with Started(TRAINING, file, *signals) as command:
        said, errors = command.process.communicate(timeout=END_SECONDS)
    return command.process.returncode, said, errors


def write_run(folder, name):
    file = folder / f"{name}.toml"
    file.write_text(
        '[data]\nname = "synthetic"\nexamples = 3000\n[training]\nepochs = 1\nthreads = 1\n'
        f'batch_size = 128\n[checkpoint]\nfolder = "{folder}/{name}"\n'
    )
    return file


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """The output of a run that no signal stops, with its folder named "run"."""
    folder = tmp_path_factory.mktemp("whole")
    code, text, errors = trained(write_run(folder, "whole"))
    assert code == 0, errors
    return text.replace(f"{folder}/whole", "run")


@pytest.mark.slow
@cases(
    ("signals", "expected"),
    # Twice: from torchrun and to the process group.
    {"sigterm": (["SIGTERM", "SIGTERM"], 143), "ctrl-c": (["SIGINT"], 130)},
)
def test_a_stopped_training_run_is_continued_bit_by_bit(signals, expected, tmp_path, whole_run):
    stopped = write_run(tmp_path, "stopped")
    code, _, errors = trained(stopped, *signals)
    last = tmp_path / "stopped/last/8"  # The run noticed the signal in step 8.
    assert code == expected
    said = f"embershard train: stopped; the same command continues from {last}"
    assert errors.splitlines()[-1] == said
    code, text, errors = trained(stopped)
    assert f"resuming after step 8 of 19 from {last}" in errors
    assert code == 0
    assert text.replace(f"{tmp_path}/stopped", "run") == whole_run


def test_a_second_ctrl_c_ends_a_training_run_at_once(tmp_path):
    code, _, errors = trained(write_run(tmp_path, "stopped"), "SIGINT", "SIGINT")
    assert code == 130
    said = "embershard train: interrupted; nothing of this run is kept"
    assert errors.splitlines()[-1] == said
