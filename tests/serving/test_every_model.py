"""Every built-in model, by its name in a run's file: trained, exported and served."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from embershard.data import sample_requests, to_rows
from embershard.data.synthetic import PlantedInput, SyntheticConfig, planted_click_log
from embershard.export import export_checkpoint
from embershard.models import MODEL_CONFIGS
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
    "dmt": {
        "name": "dmt",
        "embedding_dim": 4,
        "dense_layers": [4],
        "towers": [["user", "history"], ["item"]],
    },
    "dmt-mixed": {
        "name": "dmt",
        "embedding_dim": 4,
        "dense_layers": [4],
        "towers": [["user"], ["item", "history"]],
    },
    "masknet-serial": {"name": "masknet", "embedding_dim": 4, "parallel": False},
    "mmoe": {"name": "ple", "embedding_dim": 4, "levels": 1, "task_experts": 0},
}


@pytest.fixture(scope="module")
def dataset():
    return planted_click_log(SyntheticConfig(examples=1000, inputs=INPUTS)).dataset


@pytest.fixture(scope="module")
def two_tasks(dataset):
    """The same, with a price that is a dense input as second label."""

    def labelled(examples):
        return replace(examples, labels=np.stack([examples.labels, examples.dense[:, 1]], axis=1))

    splits = {name: labelled(getattr(dataset, name)) for name in ("train", "valid", "test")}
    return replace(dataset, **splits)


def trained(dataset, folder, section, tasks):
    """The checkpoint's module, and the served outputs of the first test requests."""
    config = RunConfig.model_validate(
        {
            "data": {"name": "synthetic"},
            "model": section,
            "tasks": tasks,
            "training": {"epochs": 1, "batch_size": 200, "evaluate_every_steps": 2, "threads": 1},
            "checkpoint": {"folder": str(folder / "checkpoints")},
        }
    )
    checkpoint = train(config, dataset).checkpoint
    package = export_checkpoint(checkpoint, folder / "m" / "1", weights="fp32")
    samples = sample_requests(dataset.test, 20)
    answers = LocalPredictor(package, threads=1).predict_merged(samples)
    outputs = {
        name: torch.from_numpy(np.concatenate([answer.outputs[name] for answer in answers]))
        for name in answers[0].outputs
    }
    return load_checkpoint(checkpoint).module, outputs


@cases("section", SECTIONS)
def test_a_trained_model_is_served_as_its_module_scores(section, dataset, tmp_path):
    module, outputs = trained(dataset, tmp_path, section, {"score": {}})

    served = outputs["score"]
    expected = score(module, to_rows(dataset.test)).flatten().sigmoid()
    assert_close(served, expected[: len(served)], rtol=0, atol=1e-5)


@cases("section", {name: value for name, value in SECTIONS.items() if name != "two_tower"})
def test_each_of_two_tasks_is_served_under_its_name(section, two_tasks, tmp_path):
    tasks = {"click": {}, "price": {"loss": "mse"}}
    module, outputs = trained(two_tasks, tmp_path, section, tasks)

    count = len(outputs["click"])
    logits = score(module, to_rows(two_tasks.test))[:count]
    assert (logits != 0).all()  # No activation follows the last layer.
    assert_close(outputs["click"], logits[:, 0].sigmoid(), rtol=0, atol=1e-5)
    assert_close(outputs["price"], logits[:, 1], rtol=1e-5, atol=1e-5)
