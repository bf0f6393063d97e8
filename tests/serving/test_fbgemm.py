"""FBGEMM is for dense programs that use its operators, and for no other."""

import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from embershard.kernels.fbgemm import load_operators
from tests.repository.sources import ROOT
from tests.serving.models import seal

GOLDEN = ROOT / "tests" / "golden" / "format_0" / "tiny" / "1"

# The golden package's own, and an operator of FBGEMM that adds nothing.
PROGRAM = """
def forward(self, request_inputs: List[Tensor], example_inputs: List[Tensor],
            request_of_example: Tensor) -> Dict[str, Tensor]:
    request = request_inputs[0].sum(dim=1) + request_inputs[1].mean(dim=1)
    example = example_inputs[0].sum(dim=1) + example_inputs[1].mean(dim=1)
    zero = torch.ops.fbgemm.asynchronous_complete_cumsum(request_of_example)[0]
    score = torch.sigmoid(request[request_of_example] + example) + zero
    return {"score": score, "profile": request_inputs[1][:, :2]}
"""

LOAD = """
import sys
from pathlib import Path

if sys.argv[2] == "missing":
    sys.modules["fbgemm_gpu"] = None
from embershard.errors import EmbershardError
from embershard.serving import LocalPredictor

try:
    LocalPredictor(sys.argv[1], threads=1)
except EmbershardError as error:
    print(type(error).__name__, error)
else:
    print("fbgemm_gpu" in Path("/proc/self/maps").read_text())
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The golden package with a program that uses FBGEMM."""
    folder = Path(shutil.copytree(GOLDEN, tmp_path_factory.mktemp("tiny") / "1"))
    load_operators()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*torch\.jit")
        module = torch.jit.ScriptModule()
        module.define(PROGRAM)
        torch.jit.save(module, str(folder / "programs" / "dense.pt"))
    return seal(folder, json.loads((folder / "manifest.json").read_text()))


def load(folder: Path, fbgemm: str) -> str:
    """Output of a process that loads the program: whether FBGEMM is loaded, or the error."""
    ended = subprocess.run(
        [sys.executable, "-c", LOAD, folder, fbgemm],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def test_a_program_without_its_operators_runs_without_it():
    assert load(GOLDEN, "missing") == "False"


def test_a_program_with_its_operators_runs_where_it_is_installed(package):
    assert load(package, "installed") == "True"


def test_a_program_with_its_operators_is_refused_without_it(package):
    said = load(package, "missing")
    assert said.startswith("PackageError programs/dense.pt: ")
    assert "fbgemm::asynchronous_complete_cumsum" in said
    assert said.endswith(
        "it uses operators of FBGEMM, which is not installed here (fbgemm-gpu-cpu)"
    )
