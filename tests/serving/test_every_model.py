"""Every built-in model, by its name in a run's file: trained, exported and served."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from embershard.data import to_rows
from embershard.data.requests import sample_requests
from embershard.data.synthetic import PlantedInput, SyntheticConfig, planted_click_log
from embershard.export import export_checkpoint, export_model
from embershard.models import MODEL_CONFIGS, build_model
from embershard.modules import EmbeddingBagConfig
from embershard.serving import LocalPredictor
from embershard.training import RunConfig, load_checkpoint, score, train
from tests.cases import cases

INPUTS = (
    PlantedInput(name="user", scope="request", ids=60),
    PlantedInput(name="history", scope="request", ids=40, max_length=4),
    PlantedInput(name="item", scope="example", ids=40),
)
SECTIONS = {
    **{name: {"name": name, "embedding_dim": 4} for name in MODEL_CONFIGS},
    "dlrm": {"name": "dlrm", "embedding_dim": 4, "dense_layers": [4]},
    "dlrm_dcn": {"name": "dlrm_dcn", "embedding_dim": 4, "dense_layers": [4]},
    "masknet-serial": {"name": "masknet", "embedding_dim": 4, "parallel": False},
    "mmoe": {"name": "ple", "embedding_dim": 4, "levels": 1, "task_experts": 0},
}
TWO_TASKS = {"click": "bce", "price": "mse"}


@pytest.fixture(scope="module")
def dataset():
    return planted_click_log(SyntheticConfig(examples=1000, inputs=INPUTS)).dataset


def served(package, samples):
    """By output: the values of all examples of the requests, in order."""
    answers = LocalPredictor(package, threads=1).predict_merged(samples)
    return {
        name: np.concatenate([answer.outputs[name] for answer in answers])
        for name in answers[0].outputs
    }


@cases("section", SECTIONS)
def test_a_trained_model_is_served_as_its_module_scores(section, dataset, tmp_path):
    config = RunConfig.model_validate(
        {
            "data": {"name": "synthetic"},
            "model": section,
            "training": {"epochs": 1, "batch_size": 200, "evaluate_every_steps": 2, "threads": 1},
            "checkpoint": {"folder": str(tmp_path / "checkpoints")},
        }
    )
    trained = train(config, dataset)
    package = export_checkpoint(trained.checkpoint, tmp_path / "m" / "1", weights="fp32")

    scores = served(package, sample_requests(dataset.test, 20))["score"]

    module = load_checkpoint(trained.checkpoint).module
    expected = torch.sigmoid(score(module, to_rows(dataset.test)).flatten())
    assert_close(torch.tensor(scores), expected[: len(scores)], rtol=0, atol=1e-5)


@cases("section", {name: each for name, each in SECTIONS.items() if name != "two_tower"})
def test_each_of_two_tasks_is_served_under_its_name(section, dataset, tmp_path):
    config = MODEL_CONFIGS[section["name"]].model_validate(section)
    tables = [
        EmbeddingBagConfig(
            name=item.name, num_embeddings=item.ids, embedding_dim=4, feature_names=[item.name]
        )
        for item in INPUTS
    ]
    arguments = config.arguments(tables, schema=dataset.schema, fused=None, tasks=TWO_TASKS)
    torch.manual_seed(0)
    module = build_model(section["name"], arguments)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    package = export_model(module, dataset.schema, tmp_path / "m" / "1", weights="fp32")

    outputs = served(package, sample_requests(dataset.test, 5))

    [batch] = to_rows(dataset.test).batches(batch_size=len(dataset.test))
    logits = module(batch.dense, batch.sparse).detach()
    assert (logits != 0).all()  # No activation follows the last layer.
    count = len(outputs["click"])
    assert_close(torch.tensor(outputs["click"]), logits.sigmoid()[:count, 0], rtol=0, atol=1e-5)
    assert_close(torch.tensor(outputs["price"]), logits[:count, 1], rtol=1e-5, atol=1e-5)
