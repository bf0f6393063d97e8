"""labels.json: what both readers take, and that it is written whole or not at all."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from embershard.errors import NotFoundError, PackageError, RequestError
from embershard.package.labels import parse_labels, read_labels, write_label

ROOT = Path(__file__).parent.parent.parent

CHILD = """
import sys
from pathlib import Path
from embershard.package.labels import write_label

print("ready", flush=True)
for turn in range(1_000_000):
    write_label(Path(sys.argv[1]), "ranker", "stable", 1 + turn % 2)
"""


@pytest.fixture
def repository(tmp_path):
    for version in (1, 2):
        folder = tmp_path / "ranker" / str(version)
        folder.mkdir(parents=True)
        (folder / "manifest.json").touch()
    return tmp_path


def test_labels_are_versions_by_label():
    assert parse_labels(b'{"stable": 3, "canary": 4}') == {"stable": 3, "canary": 4}
    assert parse_labels(b"{}") == {}


# The same texts are refused by package/labels.cc: labels_test.cc.
@pytest.mark.parametrize(
    "text",
    [
        '{"beta": 1}',
        '{"stable": 0}',
        '{"stable": "1"}',
        '{"stable": 1.5}',
        '{"stable": true}',
        "[1]",
        '{"stable": 1, "stable": 2}',
        '{"stable": 1',
        "",
        '{"stable": 9223372036854775808}',
    ],
)
def test_other_labels_and_numbers_are_refused(text):
    with pytest.raises(PackageError, match=r"^labels\.json: "):
        parse_labels(text.encode())


def test_a_label_moves_and_goes(repository):
    assert read_labels(repository / "ranker") == {}
    write_label(repository, "ranker", "stable", 1)
    write_label(repository, "ranker", "canary", 2)
    assert write_label(repository, "ranker", "stable", 2) == {"stable": 2, "canary": 2}
    assert write_label(repository, "ranker", "canary", 0) == {"stable": 2}
    assert read_labels(repository / "ranker") == {"stable": 2}
    assert sorted(os.listdir(repository / "ranker")) == ["1", "2", "labels.json"]


def test_a_label_for_what_is_not_there_is_refused(repository):
    with pytest.raises(NotFoundError, match="no version 3"):
        write_label(repository, "ranker", "stable", 3)
    with pytest.raises(NotFoundError, match="no model 'finder'"):
        write_label(repository, "finder", "stable", 0)
    with pytest.raises(RequestError, match="label: expected canary, shadow, stable, got 'beta'"):
        write_label(repository, "ranker", "beta", 1)
    (repository / "ranker" / "labels.json").write_text("{")
    with pytest.raises(PackageError):
        write_label(repository, "ranker", "stable", 1)


def test_killed_at_any_moment_it_leaves_labels_that_can_be_read(repository):
    chance = random.Random(5)
    for _ in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", CHILD, str(repository)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout.readline() == "ready\n"
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(timeout=0.02 + 0.1 * chance.random())
            child.send_signal(signal.SIGKILL)
        assert read_labels(repository / "ranker").get("stable", 1) in (1, 2)


TURNS = 40

WRITER = """
import sys
from pathlib import Path
from embershard.package.labels import read_labels, write_label

repository, label, turns = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for turn in range(turns):
    version = 1 + turn % 2
    written = write_label(repository, "ranker", label, version)
    assert written[label] == read_labels(repository / "ranker")[label] == version
"""


def test_of_two_writers_at_once_neither_takes_back_what_the_other_wrote(repository):
    """Each alone writes its label, so that it must find what it wrote last."""
    command = [sys.executable, "-c", WRITER, str(repository)]
    writers = [
        subprocess.Popen([*command, label, str(TURNS)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for label in ("stable", "canary")
    ]
    said = [writer.communicate(timeout=100)[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], said
    assert read_labels(repository / "ranker") == {"stable": 2, "canary": 2}
    left = {each.name for each in (repository / "ranker").iterdir()}
    assert left == {"1", "2", "labels.json"}
