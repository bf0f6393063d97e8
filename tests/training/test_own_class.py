"""`model.class` in a run's file: custom classes are trained, exported and served."""

import json
import sys

import numpy as np
import pytest
import torch

from embershard.data import sample_requests, to_rows
from embershard.errors import ConfigError, DataError
from embershard.export import export_checkpoint
from embershard.serving import LocalPredictor
from embershard.training import RunConfig, dry_run, load_checkpoint, read_config, score, train
from tests.cases import cases, refused
from tests.training.runs import config, dataset

DATA = dataset()
HOME = "tests.training.own_models"
RANKER = {"class": f"{HOME}:Ranker", "embedding_dim": 4, "hidden": [8], "activation": "tanh"}


def run_of(folder, model=RANKER, **training):
    settings = config(folder, **training).model_dump(exclude={"model"}, exclude_unset=True)
    return RunConfig.model_validate(settings | {"model": model})


def test_a_class_of_ones_own_trains_exports_and_serves(tmp_path):
    result = train(run_of(tmp_path / "run", epochs=1), DATA)
    package = export_checkpoint(result.checkpoint, tmp_path / "ranker" / "1", weights="fp32")
    answers = LocalPredictor(package).predict_merged(sample_requests(DATA.test, 1000))
    # Requests come in the order of their first examples.
    numbers = DATA.test.request
    order = np.concatenate([np.flatnonzero(numbers == number) for number in dict.fromkeys(numbers)])
    logits = score(load_checkpoint(result.checkpoint).module, to_rows(DATA.test.take(order)))
    served = np.concatenate([answer.outputs["score"] for answer in answers])
    np.testing.assert_allclose(served, torch.sigmoid(logits).numpy(), rtol=1e-5, atol=1e-6)


def test_a_checkpoint_keeps_the_class_and_its_arguments(tmp_path):
    result = train(run_of(tmp_path, epochs=1), DATA)
    document = json.loads((result.checkpoint / "checkpoint.json").read_text())["model"]
    assert document["name"] == RANKER["class"]
    assert document["arguments"]["arguments"] == {"hidden": [8], "activation": "tanh"}


@pytest.mark.parametrize("keys", [{"embedding_dim": 4}, {}], ids=["key", "default"])
def test_embedding_dim_is_passed_to_a_parameter_of_its_name(keys, tmp_path):
    model = {"class": f"{HOME}:OfWidth"} | keys
    result = train(run_of(tmp_path, model, epochs=1), DATA)
    document = json.loads((result.checkpoint / "checkpoint.json").read_text())["model"]
    width = keys.get("embedding_dim", 16)
    assert document["arguments"]["arguments"] == {"embedding_dim": width}
    load_checkpoint(result.checkpoint)


def trained_on_ranks(env, folder):
    result = train(run_of(folder, epochs=1, batch_size=63), DATA, env=env)
    return result.test, load_checkpoint(result.checkpoint).module.state_dict()


def test_two_ranks_train_a_class_of_ones_own_like_one(workers, tmp_path):
    evaluation, weights = trained_on_ranks(None, tmp_path / "alone")
    for result, rank_weights in workers.run(2, trained_on_ranks, tmp_path / "ranks"):
        assert result.auc == pytest.approx(evaluation.auc, abs=1e-6)
        for name, weight in weights.items():
            torch.testing.assert_close(rank_weights[name], weight, rtol=1e-4, atol=1e-6)


def test_a_logit_model_that_takes_the_schema_trains_and_loads(tmp_path):
    model = {"class": f"{HOME}:Named", "embedding_dim": 4}
    result = train(run_of(tmp_path, model, epochs=1), DATA)
    assert type(load_checkpoint(result.checkpoint).module).__name__ == "Named"


def test_a_class_is_imported_from_the_current_folder(tmp_path, monkeypatch):
    text = "from tests.training.own_models import Ranker\n"
    (tmp_path / "lying_here.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    model = RANKER | {"class": "lying_here:Ranker"}
    assert dry_run(run_of(tmp_path / "run", model), DATA).setup.model["name"] == "lying_here:Ranker"


def test_a_checkpoint_whose_class_is_gone_is_refused(tmp_path):
    result = train(run_of(tmp_path, epochs=1), DATA)
    file = result.checkpoint / "checkpoint.json"
    file.write_text(file.read_text().replace(":Ranker", ":Gone"))
    with refused(DataError, "checkpoint.json", "'Gone'"):
        load_checkpoint(result.checkpoint)


RANKER_LINE = f'class = "{HOME}:Ranker"'


@cases(
    ("lines", "line", "key", "message"),
    {
        "unknown": (f"{RANKER_LINE}\nhidden = [4]\nhiden = 3", 6, ".hiden", "tasks, activation"),
        "missing": (f"embedding_dim = 4\n{RANKER_LINE}", 5, ".class", "'hidden'"),
        "type": (f"{RANKER_LINE}\nhidden = 8", 5, ".hidden", "tuple"),
        "date": (
            f"{RANKER_LINE}\nhidden = [4]\nactivation = 2026-01-01",
            6,
            ".activation",
            "datetime.date(",
        ),
        "provided": (f"{RANKER_LINE}\nhidden = [4]\ntasks = 2", 6, ".tasks", "embershard"),
        "form": ('class = "Ranker"', 4, ".class", "'Ranker'"),
        "module": ('class = "no_such_module:Ranker"', 4, ".class", "ModuleNotFoundError"),
        "name": (f'class = "{HOME}:Rankr"', 4, ".class", "'Rankr'"),
        "no-module": ('class = "json:JSONDecoder"', 4, ".class", "'JSONDecoder'"),
        "forward": (f'class = "{HOME}:OneInput"', 4, ".class", "(self, dense)"),
        "no-collection": (
            f'class = "{HOME}:NoCollection"',
            4,
            ".class",
            "embedding_bag_collection",
        ),
        "raising": (f'class = "{HOME}:Failing"', 4, ".class", "RuntimeError: no such thing"),
        "without-tables": (f'class = "{HOME}:NoTables"', 4, ".class", "embedding_bag_collection"),
        "logits": (f'class = "{HOME}:Wide"', 4, ".class", "(2, 2)"),
        "both": (f'{RANKER_LINE}\nname = "dlrm"', 3, "", "'name'"),
        "no-text": ("class = 3", 4, ".class", "got 3"),
    },
)
def test_a_class_that_cannot_be_used_is_refused_with_its_line(lines, line, key, message, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(
        f'[data]\nname = "synthetic"\n[model]\n{lines}\n[checkpoint]\nfolder = "{tmp_path}/run"\n'
    )
    with refused(ConfigError, f"run.toml:{line}: key 'model{key}'", message):
        train(read_config(file), DATA)
    assert not (tmp_path / "run").exists()
