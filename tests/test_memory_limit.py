"""Memory that this process may use."""

import pytest

from embershard.memory_limit import memory_limit


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
