"""How `embershard bench` ends when it cannot go on: with what it has measured."""

import json
import re
import signal
import subprocess
import sys

import grpc
import pytest

from embershard.bench.target import ask_model
from embershard.cli import main
from tests.bench.fake_predictor import answers, fake_predictor
from tests.repository.sources import ROOT

QUICK = ("--timeout", "20", "--warmup", "0", "--pool", "50")
SEARCH = ("--slo", "p50<15s", "--rate", "300", "--duration", "0.1")
"""The first run has about 30 requests."""


def bench(server, *arguments):
    return main(["bench", "--target", server.address, *QUICK, *arguments])


def interrupted(number, at_request, path, *arguments):
    """The bench, to which a signal is sent at that request. Returns it, its output and errors."""
    running = []

    def answer(request, context):
        if request == at_request:
            running[0].send_signal(number)
        return answers(request, context)

    with fake_predictor(answer) as fake:
        flags = ["--target", fake.address, *QUICK, *arguments, "--json", str(path)]
        process = subprocess.Popen(
            [sys.executable, "-m", "embershard", "bench", *flags],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Background processes of a shell ignore SIGINT, and their children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        running.append(process)
        try:
            return process, *process.communicate(timeout=60)
        finally:
            process.kill()


def test_a_signal_ends_a_run_with_the_report_until_then(tmp_path):
    path = tmp_path / "out.json"
    # Only the signal ends a run of an hour. Eight requests are tried before the run; request 1000
    # is well within it.
    flags = ("--in-flight", "1", "--duration", "3600")
    process, out, err = interrupted(signal.SIGTERM, 1000, path, *flags)
    assert process.returncode == 143
    assert err == "embershard bench: ended by SIGTERM\n"
    assert re.search(r"^note +interrupted after \S+ m?s: the figures are from the time", out, re.M)
    document = json.loads(path.read_text())
    assert document["by_code"].keys() == {"OK"}
    assert document["requests"] >= 1000 - 8
    assert 0 < document["interrupted_seconds"] < 60
    assert document["window_seconds"] <= document["interrupted_seconds"]


def test_a_signal_ends_a_search_with_its_finished_runs(tmp_path):
    path = tmp_path / "out.json"
    process, out, _ = interrupted(signal.SIGINT, 100, path, *SEARCH)
    assert process.returncode == 130
    assert "objective  p50<15s held at " in out
    assert "search ended: interrupted after " in out
    document = json.loads(path.read_text())
    assert document["trials"][0]["rate"] == 300
    assert document["trials"][0]["held"]


def test_a_signal_before_anything_was_measured_leaves_no_report(tmp_path):
    path = tmp_path / "out.json"
    process, out, err = interrupted(signal.SIGINT, 3, path, "--in-flight", "1")
    assert (process.returncode, out, err) == (130, "", "embershard bench: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_a_signal_during_the_last_model_call_keeps_the_report(capsys, monkeypatch):
    calls = []

    def ask(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return ask_model(*arguments, **options)

    monkeypatch.setattr("embershard.bench.session.ask_model", ask)
    with fake_predictor() as fake:
        assert bench(fake, "--requests", "20") == 130
    out, err = capsys.readouterr()
    assert "note       interrupted after " in out
    assert err == "embershard bench: interrupted\n"


def test_a_run_without_one_good_answer_is_an_error(capsys):
    def answer(number, context):
        if number >= 8:  # After those that are tried.
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
        return answers(number, context)

    with fake_predictor(answer) as fake:
        assert bench(fake, "--requests", "20") == 1
    out, err = capsys.readouterr()
    assert "errors     20 of 20: RESOURCE_EXHAUSTED 20\n" in out
    words = "RetryError: none of 20 requests succeeded: RESOURCE_EXHAUSTED"
    assert err == f"embershard bench: {words}\n"


def test_a_run_in_which_no_request_was_due_is_an_error(capsys):
    with fake_predictor() as fake:
        assert bench(fake, "--rate", "0.001", "--duration", "0.01") == 1
    out, err = capsys.readouterr()
    assert "errors     none of 0\n" in out
    assert "expected at least one request within 0.01 s" in err


@pytest.mark.parametrize("version", [(), ("--version", "7")], ids=["default", "version"])
def test_a_server_that_is_gone_at_the_end_is_an_error(capsys, version):
    def answer(number, context):
        if number >= 30:
            fake.is_gone = True
        return answers(number, context)

    with fake_predictor(answer) as fake:
        assert bench(fake, "--requests", "60", *version) == 1
        target = fake.target.name
    out, err = capsys.readouterr()
    why = f"the server does not answer any more: {target}: UNAVAILABLE: as if it were gone"
    assert re.search(r"^errors +37 of 60: UNAVAILABLE 37$", out, re.M)
    assert "note       the server does not answer any more\n" in out
    assert err == f"embershard bench: UnavailableError: {why}\n"


def test_a_search_ends_with_the_run_that_found_the_server_gone(capsys, tmp_path):
    path = tmp_path / "out.json"

    def answer(number, context):
        if number >= 50:
            fake.is_gone = True
        return answers(number, context)

    with fake_predictor(answer) as fake:
        assert bench(fake, *SEARCH, "--json", str(path)) == 1
        request = len(fake.descriptions)
    out, err = capsys.readouterr()
    assert "search ended: the server does not answer\n" in out
    assert err.startswith("embershard bench: UnavailableError: the server does not answer any more")
    document = json.loads(path.read_text())
    assert document["trials"][0]["held"]
    assert document["trials"][-1]["requests"] > document["trials"][-1]["late"]
    assert "OK" in document["by_code"]  # The report is of the highest rate that held.
    assert request == 1  # The calls of a server that is gone are not counted.
