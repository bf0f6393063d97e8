"""Which package of a repository is served."""

import pytest

from embershard.errors import NotFoundError
from embershard.serving import ServedPackage, find_package


def make(repository, *versions):
    for version in versions:
        folder = repository / version
        folder.mkdir(parents=True)
        (folder / "manifest.json").touch()
    return repository


def test_the_highest_version_of_the_only_model(tmp_path):
    repository = make(tmp_path, "ranker/2", "ranker/10", "ranker/9")
    assert find_package(repository) == ServedPackage(
        model="ranker", version=10, folder=repository / "ranker" / "10"
    )


def test_a_model_and_a_version_by_name(tmp_path):
    repository = make(tmp_path, "a/1", "a/2", "b/7")
    assert find_package(repository, model="a", version=1).folder == repository / "a" / "1"
    assert find_package(repository, model="b").version == 7


@pytest.mark.parametrize(
    "stray",
    [
        pytest.param("a/latest", id="a-word"),
        pytest.param("a/02", id="a-leading-zero"),
        pytest.param("a/0", id="zero"),
        pytest.param("a/-2", id="negative"),
        pytest.param("a/.2.x.partial", id="one-being-written"),
        pytest.param("a/²", id="a-digit-of-another-script"),
        pytest.param(".trash/2", id="a-hidden-folder"),
    ],
)
def test_what_is_no_version_is_left_alone(tmp_path, stray):
    assert find_package(make(tmp_path, "a/1", stray)).version == 1


@pytest.mark.parametrize(
    ("folders", "asked", "message"),
    [
        pytest.param([], {}, "expected <model>/<version>/manifest.json, found none", id="empty"),
        pytest.param(["a/1", "b/1"], {}, r"models, name one \(--model\): a, b", id="several"),
        pytest.param(["a/1"], {"model": "b"}, "no model 'b'; models: a", id="no-model"),
        pytest.param(
            ["a/1", "a/3"], {"version": 2}, "no version 2 of 'a'; versions: 1, 3", id="no-version"
        ),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(tmp_path, folders, asked, message):
    with pytest.raises(NotFoundError, match=message):
        find_package(make(tmp_path, *folders), **asked)


@pytest.mark.parametrize(
    ("given", "kind"), [("a", "the folder of one model"), ("a/1", "a package")], ids=str
)
def test_a_folder_inside_the_repository_is_refused_with_the_repository(tmp_path, given, kind):
    repository = make(tmp_path, "a/1")
    message = f"expected a repository, .*, got {kind}; its repository is {repository}$"
    with pytest.raises(NotFoundError, match=message):
        find_package(repository / given)


def test_a_repository_that_is_not_there(tmp_path):
    with pytest.raises(NotFoundError, match="nowhere: expected a folder of models, found none"):
        find_package(tmp_path / "nowhere")
