"""The examples of docs/training.md and docs/sharding.md run as they are."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from embershard import optim
from embershard.modules import EmbeddingBagCollection
from embershard.sharding import (
    DistributedModelParallel,
    EmbeddingBagCollectionSharder,
    ShardingPlan,
    construct_module_sharding_plan,
    row_wise,
)
from tests.export.models import TABLES

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/sharded_training.py"


def snippets(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)


def without_numbers(text):
    return re.sub(r"\d[\d.,]*", "N", text)


@pytest.mark.slow
def test_the_example_plans_trains_resumes_and_serves():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    process = subprocess.run([*command, EXAMPLE], capture_output=True, text=True, timeout=100)
    assert process.returncode == 0, process.stderr
    losses = re.search(r"loss (\S+), after the restart (\S+), (\S+)$", process.stdout, re.MULTILINE)
    first, resumed, last = map(float, losses.groups())
    assert last < resumed < first / 2
    report = re.search(r"```\n(step: .*?)```", (ROOT / "docs/planner.md").read_text(), re.DOTALL)[1]
    sentences = without_numbers(report).splitlines()[:3]
    assert set(sentences) <= set(without_numbers(process.stdout).splitlines())
    assert re.search(r"served \[.*\], as the model says", process.stdout)


def test_the_snippets_of_both_pages_are_its_code():
    result = snippets("training.md") + snippets("planner.md")[:1]
    assert len(result) == 5
    assert all(code in EXAMPLE.read_text() for code in result)


def test_the_snippet_of_a_plan_for_gpus_runs_without_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(snippets("planner.md")[1], {})
    assert "rank 3" in capsys.readouterr().out
    plans = ShardingPlan.load(tmp_path / "plan.json").plan.values()
    assert [plan.world_size for plan in plans] == [4]


@pytest.fixture
def one_rank():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_the_snippets_of_sharding_run(one_rank, tmp_path):
    model = torch.nn.Sequential(EmbeddingBagCollection(TABLES), torch.nn.Linear(8, 1))
    sharders = [EmbeddingBagCollectionSharder({"optimizer": "adagrad"})]
    optimizers, checkpoint = snippets("sharding.md")
    cuts = {table.name: row_wise() for table in TABLES}
    plan = ShardingPlan({"0": construct_module_sharding_plan(model[0], cuts)})
    sharded = DistributedModelParallel(model, plan=plan, sharders=sharders)
    names = vars(optim) | {"torch": torch, "model": sharded, "folder": tmp_path / "checkpoint"}
    exec(optimizers, names)
    assert [group["lr"] for group in names["optimizer"].param_groups] == [0.001, 0.001]
    for parameter in model[1].parameters():
        parameter.grad = torch.ones_like(parameter)
    names["optimizer"].step()  # The dense optimizer has no state before its first step.
    exec(checkpoint, names)
    assert "0.embedding_bags.users.weight" in names["state"]
