"""`embershard fetch --watch`: how it ends, what it refuses, and two of them on one repository."""

import http.server
import json
import re
import socket
import threading
import urllib.error
import urllib.request

from embershard.commands.fetch import watch_routes
from embershard.fetch.watch_status import WatchStatus
from embershard.package import verify_package
from embershard.package.labels import read_labels
from tests.cases import cases
from tests.cli.running import ROOT, run
from tests.fetch.conftest import label, publish
from tests.fetch.test_without_ranges import web_server
from tests.fetch.watching import WatchProcess
from tests.serving.failures.busy import until

LONG = 100_000
"""Seconds: a watch that is in its pause does not poll again in a test."""


def test_sigterm_ends_a_watch_in_its_pause_with_code_0(far, here, tmp_path):
    publish(far)
    label(far, stable=1)
    with WatchProcess(far.as_uri(), here, tmp_path / "log", "--watch", LONG) as watch:
        until(lambda: watch.count("label_moved") == 1)
        assert watch.stop() == 0
    assert [event.split()[0] for event in watch.events()] == [
        "watching", "fetched", "label_moved", "stopped",
    ]  # fmt: skip
    assert "label_moved model=small label=stable version=1 version_before=0" in watch.events()


def test_sigterm_ends_a_watch_whose_server_does_not_answer(far, here, tmp_path):
    is_asked, over = threading.Event(), threading.Event()

    class Silent(http.server.BaseHTTPRequestHandler):
        def __init__(self, *arguments, directory):
            super().__init__(*arguments)

        def do_GET(self):
            is_asked.set()
            over.wait(60)

    with web_server(Silent, far) as url:
        with WatchProcess(
            url, here, tmp_path / "log", "--watch", LONG, "--model", "small"
        ) as watch:
            assert is_asked.wait(60)
            assert watch.stop() == 0
        over.set()
    assert watch.events()[-1].split()[0] == "stopped"


def test_sigterm_ends_a_watch_whose_refresh_never_completes(far, here, tmp_path):
    publish(far)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        arguments = ("--watch", LONG, "--control", tmp_path / "s")
        with WatchProcess(far.as_uri(), here, tmp_path / "log", *arguments) as watch:
            listener.settimeout(60)
            connection, _ = listener.accept()
            with connection:
                assert connection.makefile("rb").readline() == b'{"order": "refresh"}\n'
                assert watch.stop() == 0
    assert [event.split()[0] for event in watch.events()] == ["watching", "fetched", "stopped"]


def test_a_watch_logs_json(far, here, tmp_path):
    far.mkdir()
    arguments = ("--watch", LONG, "--log-json")
    with WatchProcess(far.as_uri(), here, tmp_path / "log", *arguments) as watch:
        until(lambda: watch.log.read_text().count("\n") == 2)
        assert watch.stop() == 0
    lines = [json.loads(line) for line in watch.log.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["watching", "fetch_failed", "stopped"]
    assert lines[1]["error"] == "NotFoundError"


def test_two_watches_of_one_repository_leave_it_whole(far, here, tmp_path):
    """Versions come and labels move while both are at work; what either fails at, it repeats."""
    for version in range(1, 8):
        publish(far, version)
    label(far, stable=1)
    with (
        WatchProcess(far.as_uri(), here, tmp_path / "log0", "--watch", 0.05) as first,
        WatchProcess(far.as_uri(), here, tmp_path / "log1", "--watch", 0.05) as second,
    ):
        until(lambda: first.count("watching") and second.count("watching"))
        for version in range(1, 8):
            label(far, stable=version)
            until(lambda version=version: read_labels(here / "small") == {"stable": version})
        assert (first.stop(), second.stop()) == (0, 0)
    versions = [str(version) for version in range(1, 8)]
    assert sorted(path.name for path in (here / "small").iterdir()) == [*versions, "labels.json"]
    for version in versions:
        verify_package(here / "small" / version)
    said = {event.split()[0] for watch in (first, second) for event in watch.events()}
    assert said <= {"watching", "fetched", "label_moved", "fetch_failed", "stopped"}


def get(url):
    """Status and text."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_watch_has_a_port_of_metrics_and_probes(far, here, tmp_path):
    far.mkdir()
    arguments = ("--watch", LONG, "--metrics-port", 0)
    with WatchProcess(far.as_uri(), here, tmp_path / "log", *arguments) as watch:
        until(lambda: watch.count("fetch_failed") == 1)
        url = re.search(r"metrics=(\S+)", watch.events()[0])[1]
        until(lambda: get(f"{url}healthz")[0] == 503)
        assert get(f"{url}healthz")[1] == "the last poll failed in part: the log says why\n"
        assert get(f"{url}livez") == (200, "watching\n")
        status, text = get(f"{url}metrics")
        assert watch.stop() == 0
    assert status == 200
    lines = text.splitlines()
    assert 'embershard_watch_failures_total{event="fetch_failed"} 1.0' in lines
    assert "embershard_watch_success_time_seconds 0.0" in lines
    assert any(line.startswith("process_start_time_seconds ") for line in lines)


def test_the_page_lists_every_metric_of_a_watch():
    status = WatchStatus(interval_seconds=30)
    status.want({"": 1}, "small")
    status.serve([])
    endings = {"counter": "_total"}
    results = {
        name + endings.get(kind, ""): (kind, set(labels))
        for name, _, kind, labels, _ in status.rows()
    }
    page = (ROOT / "docs" / "fetch.md").read_text()
    listed = re.findall(r"^\| `(embershard_watch_\w+)` \| (\w+) \|([^|]*)\|", page, re.MULTILINE)
    assert {
        name: (kind, set(re.findall(r"\w+", labels))) for name, kind, labels in listed
    } == results


def test_a_watch_is_stuck_after_interval_and_longest_load():
    now = [0.0]
    status = WatchStatus(interval_seconds=30, monotonic=lambda: now[0])
    live = watch_routes(status, 4230.0)["/livez"]
    now[0] = 4230.0
    assert live("").status == 200
    now[0] = 4231.0
    assert (live("").status, live("").body) == (503, b"no progress for 4231 s\n")


@cases(
    ("arguments", "words"),
    {
        "keep": (("--keep", 1), "ConfigError: --keep: expected --watch with it"),
        "metrics": (("--metrics-port", 0), "ConfigError: --metrics-port: expected --watch with it"),
        "host": (
            ("--watch", 1, "--metrics-host", "0.0.0.0"),
            "ConfigError: --metrics-host: expected --metrics-port with it",
        ),
        "host-once": (
            ("--metrics-host", "0.0.0.0"),
            "ConfigError: --metrics-host: expected --watch with it, got none",
        ),
        "port": (("--watch", 1, "--metrics-port", 65536), "--metrics-port: expected 0..65535"),
        "control": (("--control", "s"), "ConfigError: --control: expected --watch with it"),
        "zero": (("--watch", 0), "ConfigError: watch: expected seconds above 0"),
        "version": (("--watch", 1, "--version", 1), "ConfigError: version"),
        "alone": (("--watch", 1, "--keep", 1), "ConfigError: keep: expected a"),
        "all": (("--all", "--model", "small"), "ConfigError: model: expected"),
    },
)
def test_options_that_need_another_are_refused(far, here, arguments, words):
    far.mkdir()
    ended = run("fetch", far.as_uri(), here, *arguments)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert words in ended.stderr
