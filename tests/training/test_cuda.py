"""`embershard train --device cuda`."""

import re
import subprocess
import sys

import pytest
import torch

from embershard.cli import main
from embershard.errors import InputError
from embershard.planner import Device
from embershard.planner.machine import default_machine
from embershard.sharding import ShardingEnv
from embershard.training import ranks, read_config
from embershard.training.auto_plan import topology_of
from tests.cases import refused

FILE = """
[data]
name = "synthetic"
examples = 20000
[model]
embedding_dim = 8
dense_layers = [8]
over_layers = [8, 1]
[training]
batch_size = 128
epochs = 1
threads = 1
[checkpoint]
folder = "{folder}"
last_every_steps = 20
[sharding]
{sharding}
"""


@pytest.fixture
def sees_gpu(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)


def test_a_process_alone_is_refused(sees_gpu, tmp_path, capsys):
    file = tmp_path / "run.toml"
    file.write_text(FILE.format(folder=tmp_path / "run", sharding=""))
    assert main(["train", str(file), "--device", "cuda"]) == 1
    assert capsys.readouterr().err == (
        "embershard train: InputError: device cuda: expected ranks of torchrun (--nproc-per-node 1 "
        "will do), got a process alone\n"
    )


def test_ranks_of_a_host_share_no_gpu(sees_gpu, monkeypatch):
    chosen = []
    monkeypatch.setattr("torch.cuda.set_device", chosen.append)
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    assert ranks.own_gpu() == torch.device("cuda", 0)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with refused(InputError, "expected 2 GPUs", "got 1"):
        ranks.own_gpu()
    assert chosen == [0]


def test_a_rank_that_sees_no_gpu_is_refused(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with refused(InputError, "device", "got cuda"):
        ranks.own_gpu()


@pytest.mark.parametrize(("value", "cap"), [(0, 60 << 30), (5000, 5000)])
def test_a_plan_takes_the_memory_and_the_costs_of_the_gpu(monkeypatch, tmp_path, value, cap):
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (60 << 30, 139 << 30))
    monkeypatch.setattr("embershard.training.auto_plan.memory_limit", lambda: 1000)
    file = tmp_path / "run.toml"
    file.write_text(FILE.format(folder=tmp_path, sharding=f'plan = "auto"\nmemory_bytes = {value}'))
    env = ShardingEnv(
        world_size=4,
        rank=0,
        process_group=None,
        input_group=None,
        output_group=None,
        device=torch.device("cuda", 0),
    )
    topology = topology_of(read_config(file), env, 2)
    assert topology.devices == (Device(memory_bytes=cap, host_memory_bytes=425),) * 4
    assert topology.machine == default_machine("cuda", 139 << 30)


def train(folder, device, sharding):
    folder.mkdir()
    file = folder / "run.toml"
    file.write_text(FILE.format(folder=folder / "run", sharding=sharding))
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]
    command = [sys.executable, *launch, "-m", "embershard", "train", str(file), "--device", device]
    return subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)


def auc_of(folder, device, sharding):
    process = train(folder, device, sharding)
    assert process.returncode == 0, process.stderr
    if "auto" in sharding:
        assert ("of NVIDIA" in process.stdout) == (device == "cuda")
    return float(re.search(r"test        auc ([0-9.]+)", process.stdout)[1])


@pytest.mark.needs_gpu
@pytest.mark.timeout(600)
@pytest.mark.parametrize("sharding", ['tables = { "*" = "row_wise" }', 'plan = "auto"'])
def test_a_gpu_trains_what_a_processor_does(tmp_path, sharding):
    on_gpu, on_cpu = (auc_of(tmp_path / device, device, sharding) for device in ("cuda", "cpu"))
    assert on_gpu == pytest.approx(on_cpu, abs=0.01)
