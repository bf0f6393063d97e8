"""Which versions are fetched: the labelled ones, else the highest; labels travel along."""

import pytest

from embershard.errors import ConfigError, NotFoundError, PackageError
from embershard.fetch import Selection, fetch_models, fetch_package
from embershard.package.labels import read_labels
from tests.cases import cases, refused
from tests.cli.running import run
from tests.fetch.conftest import label, never, publish, versions_in


@pytest.fixture(params=["file", "s3", "http"])
def served(request, far):
    """A source of each kind, and a function that publishes a change of its folder."""
    if request.param == "file":
        return far.as_uri(), lambda: None
    if request.param == "http":
        return request.getfixturevalue("web").url, lambda: None
    store = request.getfixturevalue("store")
    return store.url, lambda: store.put(far)


def test_fetches_the_stable_version_and_its_label_by_default(far, here, served):
    for version in (1, 2, 3):
        publish(far, version)
    label(far, stable=2, canary=3)
    url, update = served
    update()
    assert fetch_package(url, here, pause=never).version == 2
    assert versions_in(here) == [2]
    assert read_labels(here / "small") == {"stable": 2}


def test_fetches_the_highest_version_without_labels(far, here, served):
    for version in (2, 10, 9):
        publish(far, version)
    url, update = served
    update()
    assert fetch_package(url, here, pause=never).version == 10
    assert not (here / "small" / "labels.json").exists()


def test_a_local_folder_named_by_a_strange_digit_is_ignored(far, here):
    publish(far)
    (here / "small" / "²").mkdir(parents=True)
    assert fetch_package(far.as_uri(), here, pause=never).version == 1


def test_follows_a_label_that_moves_back(far, here, served):
    for version in (1, 2):
        publish(far, version)
    url, update = served
    for stable in (1, 2, 1):
        label(far, stable=stable)
        update()
        assert fetch_package(url, here, pause=never).version == stable
        assert read_labels(here / "small") == {"stable": stable}


def test_fetches_the_named_labels_and_removes_one_that_is_gone(far, here):
    for version in (1, 2, 3):
        publish(far, version)
    label(far, stable=1, canary=2, shadow=3)
    selection = Selection(labels=("stable", "canary"))
    fetch_models(far.as_uri(), here, selection, pause=never)
    assert versions_in(here) == [1, 2]
    assert read_labels(here / "small") == {"stable": 1, "canary": 2}
    label(far, stable=2, shadow=3)
    fetch_models(far.as_uri(), here, selection, pause=never)
    assert read_labels(here / "small") == {"stable": 2}


def test_keeps_a_local_label_that_is_not_followed(far, here):
    for version in (1, 2):
        publish(far, version)
    publish(here, 1)
    label(here, shadow=1)
    label(far, stable=2, shadow=2)
    fetch_package(far.as_uri(), here, pause=never)
    assert read_labels(here / "small") == {"stable": 2, "shadow": 1}


def test_keeps_local_labels_if_the_remote_loses_its_labels(far, here):
    for version in (1, 2):
        publish(far, version)
    label(far, stable=1)
    fetch_package(far.as_uri(), here, pause=never)
    (far / "small" / "labels.json").unlink()
    assert fetch_package(far.as_uri(), here, pause=never).version == 2
    assert read_labels(here / "small") == {"stable": 1}


def test_labels_are_written_after_their_versions_are_verified(far, here):
    for version in (1, 2, 3):
        publish(far, version)
    label(far, stable=1)
    selection = Selection(labels=("stable", "canary"))
    fetch_models(far.as_uri(), here, selection, pause=never)
    label(far, stable=2, canary=3)
    (far / "small" / "3" / "manifest.json").write_bytes(b"damaged")
    with refused(PackageError, "small/3/manifest.json"):
        fetch_models(far.as_uri(), here, selection, pause=never)
    assert versions_in(here) == [1, 2]
    assert read_labels(here / "small") == {"stable": 1}


@cases(
    ("labels", "wanted", "parts"),
    {
        "default": ({"canary": 2}, (), ["small/labels.json", "stable", "got canary 2"]),
        "stable": (
            {"canary": 2},
            ("stable", "canary"),
            ["small/labels.json", "stable", "got canary 2"],
        ),
        "canary": (
            {"stable": 1},
            ("canary",),
            ["small/labels.json", "canary", "got stable 1"],
        ),
        "no-file": (None, ("stable",), ["small/labels.json", "stable", "got none"]),
        "no-such-version": (
            {"stable": 7},
            (),
            ["small/7/manifest.sha256"],
        ),
    },
)
def test_an_unknown_label_is_refused_and_changes_nothing(far, here, labels, wanted, parts):
    for version in (1, 2):
        publish(far, version)
    if labels is not None:
        label(far, **labels)
    with refused(NotFoundError, *parts):
        fetch_models(far.as_uri(), here, Selection(labels=wanted), pause=never)
    assert not (here / "small").exists()


@pytest.mark.parametrize("text", ['{"stable": 1', '{"beta": 1}', "[]", "x" * 5000])
def test_a_damaged_labels_file_is_refused_with_its_url(far, here, text):
    publish(far)
    (far / "small" / "labels.json").write_text(text)
    with refused(PackageError, f"{far.as_uri()}/small/labels.json:"):
        fetch_package(far.as_uri(), here, pause=never)


def test_ignores_entries_that_are_no_model(far, here, served):
    publish(far)
    (far / "request.json").write_text("{}")
    (far / "notes").mkdir()
    (far / "notes" / "todo.txt").write_text("none")
    (far / ".cache" / "1").mkdir(parents=True)
    (far / ".cache" / "1" / "x").write_text("none")
    url, update = served
    update()
    assert fetch_package(url, here, pause=never).model == "small"


def test_ignores_version_folders_that_a_server_would_ignore(far, here):
    publish(far)
    for name in ("007", "²", "x9"):
        (far / "small" / name).mkdir()
    assert fetch_package(far.as_uri(), here, pause=never).version == 1


def test_fetches_all_models_and_leaves_out_what_is_no_model(far, here, served):
    publish(far, 1)
    publish(far, 2)
    label(far, stable=1)
    publish(far, 5, model="large")
    (far / "request.json").write_text("{}")
    url, update = served
    update()
    models = fetch_models(url, here, Selection(all_models=True), pause=never)
    assert [(result.model, result.versions, result.is_highest) for result in models] == [
        ("large", (5,), True),
        ("small", (1,), False),
    ]
    assert sorted(path.name for path in here.iterdir()) == ["large", "small"]


def test_a_web_server_without_listings_needs_model_and_labels(far, here, web):
    for version in (1, 2):
        publish(far, version)
    label(far, stable=1)
    for folder in (far, far / "small"):
        (folder / "index.html").write_text("<p>Nothing is listed here.</p>")
    assert fetch_package(web.url, here, model="small", pause=never).version == 1
    (far / "small" / "labels.json").unlink()
    with refused(NotFoundError, "cannot list its folders, name one (--version)"):
        fetch_package(web.url, here, model="small", pause=never)


def test_a_damaged_model_does_not_keep_back_the_others(far, here):
    package = publish(far, model="large")
    publish(far)
    (package / "programs" / "dense.pt").write_bytes(b"damaged")
    with refused(PackageError, "large/1/programs/dense.pt"):
        fetch_models(far.as_uri(), here, Selection(all_models=True), pause=never)
    assert versions_in(here) == [1]


@cases(
    ("selection", "words"),
    {
        "version-and-label": ({"version": 1, "labels": ("stable",)}, "version"),
        "version-and-all": ({"version": 1, "all_models": True}, "version"),
        "model-and-all": ({"model": "small", "all_models": True}, "model"),
        "folder-above": ({"model": "../small"}, "got '../small'"),
        "label": ({"labels": ("beta",)}, "label"),
        "negative": ({"version": -1}, "version: expected"),
    },
)
def test_a_selection_that_cannot_be_fetched_is_refused(selection, words):
    with refused(ConfigError, words):
        Selection(**selection)


def test_the_command_says_that_it_took_the_highest_version(far, here):
    publish(far, 3)
    ended = run("fetch", far.as_uri(), here)
    assert ended.returncode == 0, ended.stderr
    assert f"small: no labels at {far.as_uri()}: fetched the highest version, 3\n" in ended.stdout


def test_the_command_fetches_by_label(far, here):
    for version in (1, 2):
        publish(far, version)
    label(far, stable=1, canary=2)
    ended = run("fetch", far.as_uri(), here, "--label", "stable", "--label", "canary")
    assert ended.returncode == 0, ended.stderr
    assert "small 1 is labelled stable\n" in ended.stdout
    assert "small 2 is labelled canary\n" in ended.stdout
    assert versions_in(here) == [1, 2]
    refused = run("fetch", far.as_uri(), here, "--label", "shadow")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("embershard fetch: NotFoundError: file://")
