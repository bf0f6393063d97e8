"""Layers in bfloat16 on a processor that does not multiply it."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request

import numpy as np
import pytest
import torch
from torch import nn

from embershard.export import export_model
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.package import Package, SampleRequest, Schema, SparseInput
from embershard.package.id_maps import Identity
from embershard.serving import DenseProgram
from tests.cli.running import start_server
from tests.serving.asking import outputs_of, packed_sample
from tests.serving.messages import MessagePredictor

AVX2 = os.environ | {"EMBERSHARD_ISA": "avx2"}
NUMBER = r"[0-9.e+-]+ ms"
WHY = (
    rf"samples take {NUMBER}, with cpu(-fp32)? {NUMBER}; "
    "the processor does not multiply bfloat16"
)


class Layers(nn.Module):
    """Two layers that an export rounds, and one of a single output."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.items = EmbeddingBagCollection(
            [
                EmbeddingBagConfig(
                    name="item", num_embeddings=9, embedding_dim=64, feature_names=["item"]
                )
            ]
        )
        self.first, self.second = nn.Linear(64, 256), nn.Linear(256, 16)
        self.last = nn.Linear(16, 1)

    def forward(self, dense, sparse):
        hidden = torch.relu(self.first(self.items(sparse)["item"]))
        return {"score": self.last(self.second(hidden))[:, 0]}


@pytest.fixture(scope="module")
def model():
    return Layers()


@pytest.fixture(scope="module")
def package(model, tmp_path_factory):
    """With layers in bfloat16."""
    out = tmp_path_factory.mktemp("repository") / "narrow" / "1"
    schema = Schema(sparse=[SparseInput("item", ids=Identity(9))])
    asked = SampleRequest(
        num_examples=3,
        request_dense=np.zeros(0, np.float32),
        example_dense=np.zeros((3, 0), np.float32),
        lengths=np.array([1, 1, 1], np.int32),
        values=np.array([1, 5, 7], np.int64),
        weights=np.zeros(0, np.float32),
        outputs={},
    )
    export_model(model, schema, out, weights="fp32", dense_dtype="bf16", samples=[asked])
    return out


def rounded(values):
    """The nearest bfloat16, ties to even, by its bits."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def test_in_float32_nothing_but_weights_is_rounded(model, package):
    predictor = MessagePredictor(package, dense_program="cpu-fp32", threads=1)
    assert predictor.program == DenseProgram(target="cpu-fp32", why="dense_program says so")
    (sample,) = Package.open(package).samples()
    fingerprint = int(Package.open(package).manifest.fingerprint, 16)
    (answer,) = predictor.answers([packed_sample(sample, fingerprint).SerializeToString()])
    state = {name: value.double().numpy() for name, value in model.state_dict().items()}
    values = state["items.embedding_bags.item.weight"][sample.values]
    values = np.maximum(values @ rounded(state["first.weight"]).T + state["first.bias"], 0)
    values = values @ rounded(state["second.weight"]).T + state["second.bias"]
    expected = values @ state["last.weight"][0] + state["last.bias"][0]
    found = outputs_of(answer)["score"]
    assert np.allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert 1e-6 < np.abs(found - sample.outputs["score"]).max() < 1e-2


def test_without_bfloat16_of_the_processor_the_faster_runs_and_says_why(package):
    script = (
        "import sys; from embershard.serving import LocalPredictor; "
        "ran = LocalPredictor(sys.argv[1], threads=1).program; print(ran.target); print(ran.why)"
    )
    command = [sys.executable, "-c", script, str(package)]
    told = subprocess.run(command, env=AVX2, capture_output=True, text=True, check=True)
    target, why = told.stdout.splitlines()
    assert target in ("cpu", "cpu-fp32")
    assert re.fullmatch(WHY, why)


def test_a_server_logs_and_shows_the_program_that_it_chose(package):
    repository = package.parent.parent
    serving = start_server(repository, "--metrics-port", "0", "--log-json", env=AVX2)
    try:
        with urllib.request.urlopen(f"{serving.metrics}status.json") as answer:
            (line,) = json.load(answer)["versions"]
    finally:
        _, _, log = serving.stop(signal.SIGTERM)
    assert re.fullmatch(WHY, line["program_why"])
    (event,) = (each for each in map(json.loads, log.splitlines()) if each["event"] == "program")
    assert event["message"] == f"{line['program']}: {line['program_why']}"
    assert (event["model"], event["version"]) == ("narrow", 1)
