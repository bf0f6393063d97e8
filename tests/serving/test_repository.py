"""Errors of a repository are reported before anything is loaded from it."""

import pytest

from embershard.errors import NotFoundError
from embershard.serving.repository import check_models
from tests.cases import cases


def make(repository, *versions):
    for version in versions:
        folder = repository / version
        folder.mkdir(parents=True)
        (folder / "manifest.json").touch()
    return repository


def test_models_that_are_there_may_be_asked_for(tmp_path):
    repository = make(tmp_path, "a/1", "a/2", "b/7")
    assert check_models(repository, []) == ["a", "b"]
    assert check_models(repository, ["b", "a"]) == ["a", "b"]
    assert check_models(repository, ["b"]) == ["b"]


@cases(
    "stray",
    {
        "a-word": "b/latest",
        "a-leading-zero": "b/02",
        "zero": "b/0",
        "negative": "b/-2",
        "one-being-written": "b/.2.x.partial",
        "a-digit-of-another-script": "b/²",
    },
)
def test_what_is_no_version_makes_no_model(tmp_path, stray):
    with pytest.raises(NotFoundError, match=r"no model 'b'; models: a$"):
        check_models(make(tmp_path, "a/1", stray), ["b"])


def test_what_cannot_be_read_is_left_to_the_loader_to_refuse(tmp_path):
    """A loop of links cannot be read by root either."""
    make(tmp_path, "a/1")
    (tmp_path / "b").symlink_to("b")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "1").symlink_to("1")
    (tmp_path / "d").symlink_to("nowhere")
    (tmp_path / "notes.txt").touch()
    (tmp_path / "no name").symlink_to("no name")
    assert check_models(tmp_path, []) == ["a", "b", "c"]


def test_a_repository_without_models(tmp_path):
    with pytest.raises(NotFoundError, match=r"<model>/<version>/manifest\.json, found none"):
        check_models(make(tmp_path, ".trash/2"), [])


@pytest.mark.parametrize(
    ("value", "kind"), [("a", "the folder of one model"), ("a/1", "a package")], ids=str
)
def test_a_folder_in_a_repository_is_refused_and_names_it(tmp_path, value, kind):
    repository = make(tmp_path, "a/1")
    message = f"expected a repository, .*, got {kind}; its repository is {repository}$"
    with pytest.raises(NotFoundError, match=message):
        check_models(repository / value, [])


def test_a_repository_that_is_not_there(tmp_path):
    with pytest.raises(NotFoundError, match="nowhere: expected a folder of models, found none"):
        check_models(tmp_path / "nowhere", [])
