"""The example of docs/training.md runs as it stands; so do the snippets of two other pages."""

import re
import shutil
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


def test_the_example_trains_on_two_processes_resumes_and_serves_the_models_scores():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run([*command, EXAMPLE], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    losses = re.search(r"loss (\S+), after the restart (\S+), (\S+)$", done.stdout, re.MULTILINE)
    first, resumed, last = map(float, losses.groups())
    assert last < resumed < first / 2
    assert re.search(r"served \[.*\], as the model says", done.stdout)


def test_the_snippets_of_the_worked_example_are_its_code():
    found = snippets("training.md")
    assert len(found) == 6
    assert all(code in EXAMPLE.read_text() for code in found)


@pytest.fixture
def one_rank():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_the_snippets_of_planner_and_optimizer_run(one_rank, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "embershard/planner/xeon_amx.json", "machine.json")
    model = torch.nn.Sequential(EmbeddingBagCollection(TABLES), torch.nn.Linear(8, 1))
    sharders = [EmbeddingBagCollectionSharder({"optimizer": "sgd"})]
    (planner,), (optimizer,) = snippets("planner.md"), snippets("sharding.md")
    names = {"Path": Path, "model": model, "sharders": sharders}
    exec(planner, names)
    assert names["plan"].plan["0"].keys() == {"items", "users"}
    assert "users" in Path("plan.html").read_text()
    cuts = {table.name: row_wise() for table in TABLES}
    plan = ShardingPlan({"0": construct_module_sharding_plan(model[0], cuts)})
    names = vars(optim) | {"torch": torch}
    exec(
        optimizer,
        names | {"model": DistributedModelParallel(model, plan=plan, sharders=sharders)},
        found := {},
    )
    assert [group["lr"] for group in found["optimizer"].param_groups] == [0.001, 0.001]
