"""Layers in bfloat16 on a processor that does not multiply it."""

import json
import os
import shutil
import signal
import urllib.request

import numpy as np
import pytest
import torch
from torch import nn

from embershard.errors import NotFoundError, PackageError
from embershard.export import export_model
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.package import Package, SampleRequest, Schema, SparseInput
from embershard.package.id_maps import Identity
from embershard.serving import DenseProgram
from tests.cli.running import start_server
from tests.serving.asking import outputs_of, packed_sample
from tests.serving.messages import MessagePredictor
from tests.serving.models import seal

AVX2 = os.environ | {"EMBERSHARD_ISA": "avx2"}
COMPILED = {
    "kind": "aotinductor",
    "target": "x",
    "dtype": "bfloat16",
    "torch": "2.13.0",
    "instructions": ["avx2"],
    "file": "programs/dense.x.pt2",
}


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
    request = SampleRequest(
        num_examples=3,
        request_dense=np.zeros(0, np.float32),
        example_dense=np.zeros((3, 0), np.float32),
        lengths=np.array([1, 1, 1], np.int32),
        values=np.array([1, 5, 7], np.int64),
        weights=np.zeros(0, np.float32),
        outputs={},
    )
    export_model(model, schema, out, weights="fp32", dense_dtype="bf16", samples=[request])
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
    actual = outputs_of(answer)["score"]
    assert np.allclose(actual, expected, rtol=1e-6, atol=1e-6)
    assert 1e-6 < np.abs(actual - sample.outputs["score"]).max() < 1e-2


def program_events(log):
    return [event for event in map(json.loads, log.splitlines()) if event["event"] == "program"]


def test_a_server_without_bfloat16_runs_fp32_layers_and_logs_it(package):
    repository = package.parent.parent
    serving = start_server(repository, "--metrics-port", "0", "--log-json", env=AVX2)
    try:
        with urllib.request.urlopen(f"{serving.metrics}status.json") as answer:
            (line,) = json.load(answer)["versions"]
    finally:
        _, _, log = serving.stop(signal.SIGTERM)
    why = "the processor does not multiply bfloat16"
    assert (line["program"], line["program_why"]) == ("cpu-fp32", why)
    (event,) = program_events(log)
    assert event["message"] == f"cpu-fp32: {why}"
    assert (event["model"], event["version"]) == ("narrow", 1)


@pytest.fixture
def with_compiled(package, tmp_path):
    """The same package, which lists a compiled program besides."""
    out = shutil.copytree(package, tmp_path / "repository" / "narrow" / "1")
    (out / COMPILED["file"]).write_bytes(b"compiled")
    document = json.loads((out / "manifest.json").read_bytes())
    document["programs"].append(COMPILED)
    document["files"][COMPILED["file"]] = {}
    return seal(out, document)


def test_a_listed_compiled_program_is_not_run_which_is_logged(with_compiled):
    serving = start_server(with_compiled.parent.parent, "--log-json", "--dense-program", "cpu")
    _, _, log = serving.stop(signal.SIGTERM)
    (event,) = program_events(log)
    why = "dense_program says so; compiled programs are not run: programs/dense.x.pt2"
    assert event["message"] == f"cpu: {why}"


def test_a_listed_compiled_program_is_verified(with_compiled):
    (with_compiled / COMPILED["file"]).write_bytes(b"damaged!")
    with pytest.raises(PackageError, match=r"programs/dense\.x\.pt2: sha256: expected"):
        MessagePredictor(with_compiled)


def test_the_target_of_a_compiled_program_is_refused(with_compiled):
    words = "dense_program: expected cpu or cpu-fp32, got 'x'; leave it out"
    with pytest.raises(NotFoundError, match=words):
        MessagePredictor(with_compiled, dense_program="x")
