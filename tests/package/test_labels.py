"""labels.json: texts that both readers accept, and writes that are complete or have no effect."""

import errno
import os
import subprocess
import sys

import pytest

from embershard.errors import NotFoundError, PackageError, RequestError, UnavailableError
from embershard.package.labels import parse_labels, read_labels, write_label, write_labels
from tests.cases import cases, refused
from tests.package.killed import numbers_before_death
from tests.repository.sources import ROOT

CHILD = """
import sys
from pathlib import Path
from embershard.package.labels import write_label

print("ready", flush=True)
for turn in range(1_000_000):
    write_label(Path(sys.argv[1]), "ranker", "stable", 1 + turn % 2)
    print(turn, flush=True)
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


# labels_test.cc checks that package/labels.cc refuses the same texts.
@cases(
    "text",
    {
        "label": '{"beta": 1}',
        "zero": '{"stable": 0}',
        "text": '{"stable": "1"}',
        "part": '{"stable": 1.5}',
        "bool": '{"stable": true}',
        "list": "[1]",
        "twice": '{"stable": 1, "stable": 2}',
        "half": '{"stable": 1',
        "empty": "",
        "large": '{"stable": 9223372036854775808}',
    },
)
def test_other_labels_and_numbers_are_refused(text):
    with refused(PackageError, "labels.json: "):
        parse_labels(text.encode())


def test_a_label_moves_and_goes(repository):
    assert read_labels(repository / "ranker") == {}
    write_label(repository, "ranker", "stable", 1)
    write_label(repository, "ranker", "canary", 2)
    assert write_label(repository, "ranker", "stable", 2).labels == {"stable": 2, "canary": 2}
    assert write_label(repository, "ranker", "canary", 0).labels == {"stable": 2}
    assert read_labels(repository / "ranker") == {"stable": 2}
    assert sorted(os.listdir(repository / "ranker")) == ["1", "2", "labels.json"]


def test_several_labels_move_together_or_not_at_all(repository):
    write_labels(repository, "ranker", {"stable": 1, "canary": 2})
    write_labels(repository, "ranker", {"stable": 2, "canary": 0})
    assert read_labels(repository / "ranker") == {"stable": 2}
    with refused(NotFoundError, "version 3"):
        write_labels(repository, "ranker", {"stable": 1, "shadow": 3})
    assert read_labels(repository / "ranker") == {"stable": 2}


def test_labels_that_do_not_change_are_not_written(repository):
    write_labels(repository, "ranker", {"stable": 1})
    before = (repository / "ranker" / "labels.json").stat()
    write_labels(repository, "ranker", {"stable": 1, "canary": 0})
    assert (repository / "ranker" / "labels.json").stat() == before


@pytest.mark.parametrize("label", ["canary", "shadow"])
def test_the_first_canary_or_shadow_labels_the_default_stable(repository, label):
    written = write_label(repository, "ranker", label, 2)
    assert written.labels == {"stable": 1, label: 2}
    assert written.made_stable == 1
    assert read_labels(repository / "ranker") == {"stable": 1, label: 2}
    assert write_label(repository, "ranker", label, 1).made_stable == 0


def test_a_canary_below_the_default_version_labels_that_stable(repository):
    assert write_label(repository, "ranker", "canary", 1).labels == {"stable": 2, "canary": 1}


def test_the_version_made_stable_is_no_canary_or_shadow_itself(repository):
    folder = repository / "ranker" / "10"
    folder.mkdir()
    (folder / "manifest.json").touch()
    (repository / "ranker" / "labels.json").write_text('{"shadow": 2}')
    written = write_label(repository, "ranker", "canary", 10)
    assert written.labels == {"stable": 1, "shadow": 2, "canary": 10}


def test_the_only_version_is_not_labelled_canary_or_shadow(repository):
    (repository / "ranker" / "2" / "manifest.json").unlink()
    for label in ("canary", "shadow"):
        with refused(RequestError, label, "got only 1"):
            write_label(repository, "ranker", label, 1)
    assert read_labels(repository / "ranker") == {}
    assert write_label(repository, "ranker", "stable", 1).labels == {"stable": 1}
    assert write_label(repository, "ranker", "canary", 1).labels == {"stable": 1, "canary": 1}


@cases(
    ("model", "label", "version", "error", "part"),
    {
        "version": ("ranker", "stable", 3, NotFoundError, "version 3"),
        "model": ("finder", "stable", 0, NotFoundError, "'finder'"),
        "label": ("ranker", "beta", 1, RequestError, "got 'beta'"),
        "path": ("../x\x1b", "stable", 1, RequestError, r"got '../x\x1b'"),
    },
)
def test_a_label_for_what_is_not_there_is_refused(repository, model, label, version, error, part):
    with refused(error, part):
        write_label(repository, model, label, version)


def test_damaged_labels_are_not_replaced(repository):
    (repository / "ranker" / "labels.json").write_text("{")
    with refused(PackageError, "model 'ranker': labels.json: "):
        write_label(repository, "ranker", "stable", 1)


# labels_test.cc checks that package/labels.cc has the same messages.
@cases(
    ("make", "kind"),
    {
        "fifo": (os.mkfifo, "a FIFO"),
        "folder": (os.mkdir, "a folder"),
        "link": (lambda path: os.symlink("elsewhere", path), "a symbolic link"),
    },
)
def test_a_labels_file_of_another_kind_is_refused_by_its_kind(repository, make, kind):
    make(repository / "ranker" / "labels.json")
    with refused(PackageError, "labels.json: file", f"got {kind}"):
        read_labels(repository / "ranker")
    with refused(PackageError, "model 'ranker': labels.json: file", f"got {kind}"):
        write_label(repository, "ranker", "stable", 1)


def test_a_labels_file_without_permission_is_refused_as_such(repository, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", refuse)
    with refused(PackageError, "labels.json", "Permission denied"):
        read_labels(repository / "ranker")


def test_on_a_full_disk_the_label_before_stays(repository, file_limit):
    write_label(repository, "ranker", "stable", 1)
    with file_limit(0), refused(UnavailableError, "/labels.json", "File too large"):
        write_label(repository, "ranker", "stable", 2)
    assert read_labels(repository / "ranker") == {"stable": 1}
    assert sorted(os.listdir(repository / "ranker")) == ["1", "2", "labels.json"]


@pytest.mark.parametrize("seed", range(5))
def test_killed_at_any_moment_it_leaves_labels_that_can_be_read(repository, seed):
    numbers_before_death(CHILD, repository, seed=seed)
    assert read_labels(repository / "ranker")["stable"] in (1, 2)


TURNS = 40

WRITER = """
import sys
from pathlib import Path
from embershard.package.labels import read_labels, write_label

repository, label, turns = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for turn in range(turns):
    version = 1 + turn % 2
    written = write_label(repository, "ranker", label, version)
    assert written.labels[label] == read_labels(repository / "ranker")[label] == version
"""


def test_neither_of_two_writers_takes_back_the_others_label(repository):
    """Each label has one writer, which must always read the version that it wrote last."""
    command = [sys.executable, "-c", WRITER, str(repository)]
    writers = [
        subprocess.Popen([*command, label, str(TURNS)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for label in ("stable", "canary")
    ]
    errors = [writer.communicate(timeout=100)[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], errors
    assert read_labels(repository / "ranker") == {"stable": 2, "canary": 2}
    names = {path.name for path in (repository / "ranker").iterdir()}
    assert names == {"1", "2", "labels.json"}
