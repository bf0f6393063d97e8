"""A dense program that calls an operator of FBGEMM's: the configuration says where that lies."""

import json
import shutil

import fbgemm_gpu  # noqa: F401  registers the operators
import numpy as np
import pytest
import torch
import tritonclient.grpc as triton
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from embershard.serving._native import fbgemm_folder
from embershard.serving.triton import write_model_config
from tests.golden.generate import FOLDER, PROGRAM
from tests.serving.models import seal
from tests.serving.open_inference.tensors import infer_inputs
from tests.serving.triton.running import serving

RETURN = "    return {"
CALLS = PROGRAM.replace(
    RETURN,
    "    sums = torch.ops.fbgemm.asynchronous_complete_cumsum(request_of_example)\n"
    "    score = score + 0 * sums[0]\n" + RETURN,
)
ASKED = {
    "age": np.array([[0.5]], np.float32),
    "price": np.array([[0.25]], np.float32),
    "item.values": np.array([[3]], np.int64),
    "item.lengths": np.array([[1]], np.int32),
}


class Calling(torch.jit.ScriptModule):
    """A class of its own: torch lets a method be defined once in a process."""


@pytest.fixture(scope="module")
def calling(tmp_path_factory):
    """The golden package with such a program."""
    package = shutil.copytree(FOLDER, tmp_path_factory.mktemp("calling") / "tiny" / "1")
    program = Calling()
    program.define(CALLS)
    program.save(str(package / "programs" / "dense.pt"))
    return seal(package, json.loads((package / "manifest.json").read_text()))


def test_the_configuration_names_the_folder(calling):
    file, _ = write_model_config(calling)
    config = text_format.Parse(file.read_text(), model_config_pb2.ModelConfig())
    said = {name: parameter.string_value for name, parameter in config.parameters.items()}
    assert said == {"fbgemm": str(fbgemm_folder())}


@pytest.mark.needs_triton
def test_triton_runs_it(calling):
    write_model_config(calling)
    with (
        serving(calling.parents[1], "tiny") as served,
        triton.InferenceServerClient(served.grpc) as client,
    ):
        answer = client.infer("tiny", infer_inputs(ASKED))
    # See model_repo/README.md: 0.5 from the request, the price, and a mean of 2.25.
    expected = 1 / (1 + np.exp(-(0.5 + 0.25 + 2.25)))
    np.testing.assert_allclose(answer.as_numpy("score"), [[expected]], rtol=0, atol=1e-6)
