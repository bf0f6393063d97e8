"""`embershard calibrate`, with costs that were measured before."""

import pytest
import torch

from embershard import planner
from embershard.cli import main
from embershard.planner import read_machine
from tests.planner.training_cases import machine_of


def test_the_time_that_a_calibration_took_is_printed_and_kept(tmp_path, monkeypatch, capsys):
    machine = machine_of().model_copy(
        update={"calibration_seconds": 97.4, "repeat_error": 0.07, "fit_error": 0.12}
    )
    monkeypatch.setattr(planner, "calibrate", lambda **_: machine)
    out = tmp_path / "machine.json"
    assert main(["calibrate", "--out", str(out)]) == 0
    assert read_machine(out) == machine
    assert capsys.readouterr().out == (
        f"{out}: test, in 97 s; repeated measurements differ by 7%, computed costs from "
        "measurements by 12%\n"
    )


def test_a_gpu_that_torch_does_not_see_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["calibrate", "--device", "cuda", "--out", str(tmp_path / "machine.json")]) == 1
    assert capsys.readouterr().err == (
        "embershard calibrate: InputError: device: expected cpu, as torch sees no CUDA device, got "
        "cuda\n"
    )


def test_a_gpu_that_is_not_there_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert main(["calibrate", "--device", "cuda:2", "--out", str(tmp_path / "machine.json")]) == 1
    assert capsys.readouterr().err == (
        "embershard calibrate: InputError: device: expected one of 2 CUDA devices, got cuda:2\n"
    )


@pytest.mark.needs_gpu
@pytest.mark.timeout(600)
def test_a_gpu_is_measured(tmp_path):
    out = tmp_path / "machine.json"
    assert main(["calibrate", "--device", "cuda", "--out", str(out)]) == 0
    machine = read_machine(out)
    assert machine.mismatch("cuda") is None
    assert machine.origin == f"costs of {torch.cuda.get_device_name()}"
    assert machine.fit_error < 0.3
    assert 1e9 < machine.host_memory_rate < 1e12
