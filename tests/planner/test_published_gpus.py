import pytest

from embershard.errors import InputError
from embershard.planner import EmbeddingShardingPlanner, Topology, read_machine
from embershard.planner.default_machine import default_machine
from embershard.planner.published_gpus import gpu_machine
from tests.cases import cases
from tests.planner.training_cases import model_of, sharders


@cases(
    ("memory_bytes", "name"),
    {
        "H100": (80 * 10**9, "NVIDIA H100 SXM"),
        "more than an H100": (81 * 10**9, "NVIDIA H200 SXM"),
        "more than any": (10**12, "NVIDIA H200 SXM"),
    },
)
def test_the_default_gpu_is_the_smallest_with_the_memory(memory_bytes, name):
    assert default_machine("cuda", memory_bytes).processor == name
    assert Topology(8, "cuda", hbm_cap=memory_bytes).machine.processor == name


def test_lookups_and_updates_of_a_gpu_follow_its_published_bandwidth():
    kernel = gpu_machine("NVIDIA H100 SXM").kernel("rowwise_adagrad")
    forward, backward = 0.647 * 3.35e12, 0.265 * 3.35e12
    # 1,000 ids of 512-byte rows, summed into 100 bags; an index is 8 bytes.
    memory = kernel.forward.seconds(ids=1000, bags=100, row_bytes=512, missed=(1.0,))
    assert memory == pytest.approx((1000 * (8 + 512) + 100 * 512) / forward)
    cached = kernel.forward.seconds(ids=1000, bags=100, row_bytes=512)
    assert cached == pytest.approx((1000 * 8 + 100 * 512) / forward + 1000 * 512 / (2 * 3.35e12))
    # 900 distinct rows, each with a state of 4 bytes, are read and written.
    update = kernel.backward.seconds(ids=1000, bags=100, row_bytes=512, rows=900)
    assert update == pytest.approx((1000 * (8 + 512) + 900 * 2 * (512 + 4)) / backward)


def test_a_lookup_of_int8_rows_writes_sums_of_fp32():
    cost = gpu_machine("NVIDIA H200 SXM").lookup("int8")
    # A row of 128 columns has 128 codes, scale and bias of 2 bytes each, in 3 lines of 64 bytes;
    # its sum has 512 bytes.
    seconds = cost.seconds(ids=20, bags=1, row_bytes=132, missed=(1.0,))
    assert seconds == pytest.approx((20 * (8 + 192) + 512) / (0.647 * 4.8e12))


def test_a_plan_for_gpus_says_that_its_costs_are_published():
    planner = EmbeddingShardingPlanner(Topology(2, "cuda"), 64)
    planner.plan(model_of((1000, 64), (2000, 32)), sharders())
    assert (
        "warning: machine: costs of 'NVIDIA H100 SXM' are published figures, nothing is measured"
        in planner.report.to_text()
    )


def test_every_machine_that_ships_says_where_its_figures_are_from(tmp_path):
    assert default_machine().measured
    assert default_machine().sources
    gpu = gpu_machine("NVIDIA H100 SXM")
    assert set(gpu.sources) == {
        "memory", "caches", "forward", "backward", "cached", "host", "host memory", "network",
    }  # fmt: skip
    gpu.save(tmp_path / "h100.json")
    assert read_machine(tmp_path / "h100.json") == gpu


def test_an_unknown_gpu_is_refused():
    with pytest.raises(InputError, match="expected one of NVIDIA H100 SXM, NVIDIA H200 SXM, got"):
        gpu_machine("V100")
