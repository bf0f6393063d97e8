"""`make demo`: its table, scores that beat a baseline, and no leftovers."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from embershard.package import Package
from tests.cli.running import run, serving

DEMO = Path(__file__).parents[2] / "examples/movielens/demo.py"
END_SECONDS = 300


def processes_of_session(session: int) -> list[str]:
    """Those still there that descend from the one that began the session."""
    results = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except (FileNotFoundError, ProcessLookupError):  # It ended as we looked.
            continue
        # After the name: state, parent, group and session.
        fields = text.rpartition(")")[2].split()
        if int(fields[3]) == session:
            results.append(text)
    return results


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo's standard output, the processes it left, and the folder it ran in."""
    folder = tmp_path_factory.mktemp("demo")
    environment = {**os.environ, "COLUMNS": "120"}
    process = subprocess.Popen(
        [sys.executable, str(DEMO)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=END_SECONDS)
        left = processes_of_session(process.pid)
    finally:
        with suppress(ProcessLookupError):  # Usually no process is left.
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, err
    return out, left, folder


def numbers(line: str) -> list[float]:
    return [float(text.replace(",", "")) for text in re.findall(r"\d[\d,]*\.?\d*", line)]


def line_of(out: str, start: str) -> str:
    (line,) = [line for line in out.splitlines() if line.startswith(start)]
    return line.removeprefix(start)


pytestmark = [pytest.mark.slow, pytest.mark.timeout(END_SECONDS + 60)]


def test_the_auc_is_above_the_baseline_and_int8_keeps_it(demo):
    fp32, served, baseline = numbers(line_of(demo[0], "test AUC"))
    assert baseline == 0.7401
    assert fp32 > baseline
    assert served > baseline
    assert abs(fp32 - served) <= 0.001


def test_the_table_says_how_many_rows_and_bytes(demo):
    rows = numbers(line_of(demo[0], "rows"))
    assert rows == [80_000, 10_000, 10_000]
    fp32, int8 = numbers(line_of(demo[0], "table bytes"))
    # With dim 16: 64 bytes, or 16 codes and a header of 4 bytes.
    assert int8 == fp32 * (4 + 16) / (4 * 16)


def test_the_table_says_how_fast_the_answers_came(demo):
    p50, p99, users, candidates = numbers(line_of(demo[0], "p50 / p99 ms"))
    assert 0 < p50 <= p99
    assert (users, candidates) == (166, 100)
    assert numbers(line_of(demo[0], "examples/s"))[0] > 0


def test_five_titles_are_recommended(demo):
    _, titles = re.split(r"^user \d+ may like$", demo[0], flags=re.MULTILINE)
    titles = titles.strip().partition("\n\n")[0].splitlines()
    assert len(set(titles)) == 5
    assert all(re.search(r"\(19\d\d\)$", title) for title in titles)


def test_recommendations_are_for_a_user_seen_in_training(demo):
    (user,) = re.findall(r"^user (\d+) may like$", demo[0], flags=re.MULTILINE)
    schema = Package.open(demo[2] / "repository/movielens/1").schema()
    (users,) = [item.ids for item in schema.sparse if item.name == "user"]
    assert int(user) in users.keys


def test_what_it_says_to_do_next_works(demo):
    repository = demo[2] / "repository"
    with serving(repository, "--model", "movielens") as server:
        told = run("predict", server.address, repository / "request.json", "--timeout", 60)
    assert (told.returncode, told.stderr) == (0, "")
    scores = json.loads(told.stdout)["outputs"]["score"]
    assert len(scores) == 5
    assert scores == sorted(scores, reverse=True)  # In the order of the titles.


def test_no_process_is_left(demo):
    assert demo[1] == []
