"""What is wrong with a repository, said before anything is loaded from it."""

import pytest

from embershard.errors import NotFoundError
from embershard.serving.repository import check_models, memory_limit


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


@pytest.mark.parametrize(
    "stray",
    [
        pytest.param("b/latest", id="a-word"),
        pytest.param("b/02", id="a-leading-zero"),
        pytest.param("b/0", id="zero"),
        pytest.param("b/-2", id="negative"),
        pytest.param("b/.2.x.partial", id="one-being-written"),
        pytest.param("b/²", id="a-digit-of-another-script"),
    ],
)
def test_what_is_no_version_makes_no_model(tmp_path, stray):
    with pytest.raises(NotFoundError, match=r"no model 'b'; models: a$"):
        check_models(make(tmp_path, "a/1", stray), ["b"])


def test_a_repository_without_models(tmp_path):
    with pytest.raises(NotFoundError, match=r"<model>/<version>/manifest\.json, found none"):
        check_models(make(tmp_path, ".trash/2"), [])


@pytest.mark.parametrize(
    ("given", "kind"), [("a", "the folder of one model"), ("a/1", "a package")], ids=str
)
def test_a_folder_inside_the_repository_is_refused_with_the_repository(tmp_path, given, kind):
    repository = make(tmp_path, "a/1")
    message = f"expected a repository, .*, got {kind}; its repository is {repository}$"
    with pytest.raises(NotFoundError, match=message):
        check_models(repository / given, [])


def test_a_repository_that_is_not_there(tmp_path):
    with pytest.raises(NotFoundError, match="nowhere: expected a folder of models, found none"):
        check_models(tmp_path / "nowhere", [])


def test_the_memory_of_this_process_is_no_more_than_the_machines():
    with open("/proc/meminfo") as stream:
        total = int(stream.readline().split()[1]) * 1024
    assert 0 < memory_limit() <= total * 1.01


V2 = "0::/pods/server\n"
V1 = "5:cpu,cpuacct:/other\n4:memory:/pods/server\n1:name=systemd:/\n"
MB = 1 << 20


@pytest.mark.parametrize(
    ("own", "limits", "expected"),
    [
        pytest.param(V2, {"pods/server/memory.max": 64 * MB}, 64 * MB, id="v2-own"),
        pytest.param(V2, {"pods/memory.max": 32 * MB}, 32 * MB, id="v2-parent"),
        pytest.param(V2, {"memory.max": 16 * MB}, 16 * MB, id="v2-root"),
        pytest.param(
            V2,
            {"pods/server/memory.max": 64 * MB, "pods/memory.max": 32 * MB, "memory.max": "max"},
            32 * MB,
            id="v2-tightest",
        ),
        pytest.param(
            V1, {"memory/pods/server/memory.limit_in_bytes": 48 * MB}, 48 * MB, id="v1-own"
        ),
        pytest.param(V1, {"memory/memory.limit_in_bytes": 24 * MB}, 24 * MB, id="v1-root"),
        pytest.param(
            V1 + "0::/pods/server\n",
            {"unified/pods/memory.max": 40 * MB, "memory/pods/memory.limit_in_bytes": 56 * MB},
            40 * MB,
            id="both-hierarchies",
        ),
        pytest.param(V2, {"other/memory.max": 8 * MB}, None, id="another-cgroup"),
        pytest.param(V1, {"memory/memory.limit_in_bytes": (1 << 63) - 4096}, None, id="v1-none"),
        pytest.param("", {"memory.max": 16 * MB}, 16 * MB, id="own-cgroup-unknown"),
    ],
)
def test_memory_limit_is_the_tightest_of_the_own_cgroup_and_its_parents(
    tmp_path, own, limits, expected
):
    cgroups = tmp_path / "cgroups"
    for file, limit in limits.items():
        (cgroups / file).parent.mkdir(parents=True, exist_ok=True)
        (cgroups / file).write_text(f"{limit}\n")
    (tmp_path / "own").write_text(own)
    got = memory_limit(cgroups=cgroups, own_cgroup=tmp_path / "own")
    nowhere = memory_limit(cgroups=tmp_path / "none", own_cgroup=tmp_path / "none")
    assert got == (nowhere if expected is None else expected)
