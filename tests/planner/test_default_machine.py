import pytest

from embershard.planner import EmbeddingShardingPlanner, Topology
from embershard.planner.default_machine import default_machine
from tests.cases import cases
from tests.planner.training_cases import model_of, sharders


@cases(
    ("memory_bytes", "name"),
    {
        "H100": (80 << 30, "NVIDIA H100 80GB HBM3"),
        "more than an H100": ((80 << 30) + 1, "NVIDIA H200"),
        "more than any": (10**12, "NVIDIA H200"),
    },
)
def test_the_default_gpu_is_the_smallest_with_the_memory(memory_bytes, name):
    assert default_machine("cuda", memory_bytes).processor == name
    assert Topology(8, "cuda", hbm_cap=memory_bytes).machine.processor == name


def test_a_lookup_of_int8_rows_writes_sums_of_fp32():
    cost = default_machine("cuda", 100 << 30).lookup("int8")
    # A row of 128 columns has 128 codes, scale and bias of 2 bytes each, in 3 lines of 64 bytes;
    # its sum has 512 bytes.
    seconds = cost.seconds(ids=20, bags=1, row_bytes=132, missed=(1.0,))
    assert seconds == pytest.approx((20 * (8 + 192) + 512) / (0.647 * 4.8e12))


def planned(topology):
    planner = EmbeddingShardingPlanner(topology, 64)
    planner.plan(model_of((1000, 64), (2000, 32)), sharders())
    return planner.report.to_text()


def test_a_plan_for_gpus_says_whose_costs_it_takes():
    text = planned(Topology(2, "cuda"))
    assert "costs that ship, of NVIDIA H100 80GB HBM3; `embershard calibrate` measures" in text
    assert "warning: machine" not in text


def test_a_plan_by_costs_of_another_gpu_says_so(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    text = planned(Topology(2, "cuda", machine=default_machine("cuda")))
    assert "machine: costs of 'NVIDIA H100 80GB HBM3', this machine has no GPU" in text


@pytest.mark.parametrize("given", [("cpu",), ("cuda",), ("cuda", 100 << 30)])
def test_every_machine_that_ships_says_where_its_figures_are_from(given):
    sources = default_machine(*given).sources
    assert any("embershard calibrate" in each for each in sources.values())
    named = {name for names in sources for name in names.split(", ")}
    assert named >= {"kernels", "lookups", "exchange", "host", "network"}
