"""The memory that this process may use."""

from embershard.memory_limit import memory_limit
from tests.cases import cases


def test_the_memory_of_this_process_is_no_more_than_the_machines():
    with open("/proc/meminfo") as stream:
        total = int(stream.readline().split()[1]) * 1024
    assert 0 < memory_limit() <= total * 1.01


V2 = "0::/pods/server\n"
V1 = "5:cpu,cpuacct:/other\n4:memory:/pods/server\n1:name=systemd:/\n"
MB = 1 << 20


@cases(
    ("own", "limits", "expected"),
    {
        "v2-own": (V2, {"pods/server/memory.max": 64 * MB}, 64 * MB),
        "v2-parent": (V2, {"pods/memory.max": 32 * MB}, 32 * MB),
        "v2-root": (V2, {"memory.max": 16 * MB}, 16 * MB),
        "v2-tightest": (
            V2,
            {"pods/server/memory.max": 64 * MB, "pods/memory.max": 32 * MB, "memory.max": "max"},
            32 * MB,
        ),
        "v1-own": (V1, {"memory/pods/server/memory.limit_in_bytes": 48 * MB}, 48 * MB),
        "v1-root": (V1, {"memory/memory.limit_in_bytes": 24 * MB}, 24 * MB),
        "both-hierarchies": (
            V1 + "0::/pods/server\n",
            {"unified/pods/memory.max": 40 * MB, "memory/pods/memory.limit_in_bytes": 56 * MB},
            40 * MB,
        ),
        "another-cgroup": (V2, {"other/memory.max": 8 * MB}, None),
        "v1-none": (V1, {"memory/memory.limit_in_bytes": (1 << 63) - 4096}, None),
        "own-cgroup-unknown": ("", {"memory.max": 16 * MB}, 16 * MB),
    },
)
def test_memory_limit_is_the_tightest_of_cgroup_and_parents(tmp_path, own, limits, expected):
    cgroups = tmp_path / "cgroups"
    for file, limit in limits.items():
        (cgroups / file).parent.mkdir(parents=True, exist_ok=True)
        (cgroups / file).write_text(f"{limit}\n")
    (tmp_path / "own").write_text(own)
    limit = memory_limit(cgroups=cgroups, own_cgroup=tmp_path / "own")
    without_cgroups = memory_limit(cgroups=tmp_path / "none", own_cgroup=tmp_path / "none")
    assert limit == (without_cgroups if expected is None else expected)
