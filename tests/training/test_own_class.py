"""`model.class`: a class of the user's own from a run's file, through training to a package."""

import json
import re
import sys

import numpy as np
import pytest
import torch

from embershard.data import sample_requests, to_rows
from embershard.errors import ConfigError, DataError
from embershard.export import export_checkpoint
from embershard.serving import LocalPredictor
from embershard.training import RunConfig, dry_run, load_checkpoint, read_config, score, train
from tests.cases import cases
from tests.training.runs import config, dataset

DATA = dataset()
HOME = "tests.training.own_models"
RANKER = {"class": f"{HOME}:Ranker", "embedding_dim": 4, "hidden": [8], "activation": "tanh"}


def own(folder, model=RANKER, **training):
    settings = config(folder, **training).model_dump(exclude={"model"}, exclude_unset=True)
    return RunConfig.model_validate(settings | {"model": model})


def test_a_class_of_ones_own_trains_exports_and_serves(tmp_path):
    result = train(own(tmp_path / "run", epochs=1), DATA)
    package = export_checkpoint(result.checkpoint, tmp_path / "ranker" / "1", weights="fp32")
    answers = LocalPredictor(package).predict_merged(sample_requests(DATA.test, 1000))
    # Requests come in the order of their first examples.
    numbers = DATA.test.request
    order = np.concatenate(
        [np.flatnonzero(numbers == fromkey) for fromkey in dict.fromkeys(numbers)]
    )
    logits = score(load_checkpoint(result.checkpoint).module, to_rows(DATA.test.take(order)))
    served = np.concatenate([answer.outputs["score"] for answer in answers])
    np.testing.assert_allclose(served, torch.sigmoid(logits).numpy(), rtol=1e-5, atol=1e-6)


def test_a_checkpoint_keeps_the_class_and_its_arguments(tmp_path):
    result = train(own(tmp_path, epochs=1), DATA)
    document = json.loads((result.checkpoint / "checkpoint.json").read_text())["model"]
    assert document["name"] == RANKER["class"]
    assert document["arguments"]["arguments"] == {"hidden": [8], "activation": "tanh"}


@pytest.mark.parametrize("keys", [{"embedding_dim": 4}, {}], ids=["key", "default"])
def test_embedding_dim_is_passed_to_a_parameter_of_its_name(keys, tmp_path):
    model = {"class": f"{HOME}:OfWidth"} | keys
    result = train(own(tmp_path, model, epochs=1), DATA)
    document = json.loads((result.checkpoint / "checkpoint.json").read_text())["model"]
    width = keys.get("embedding_dim", 16)
    assert document["arguments"]["arguments"] == {"embedding_dim": width}
    load_checkpoint(result.checkpoint)


def trained_on_ranks(env, folder):
    result = train(own(folder, epochs=1, batch_size=63), DATA, env=env)
    return result.test, load_checkpoint(result.checkpoint).module.state_dict()


def test_two_ranks_train_a_class_of_ones_own_like_one(workers, tmp_path):
    evaluation, weights = trained_on_ranks(None, tmp_path / "alone")
    for result, theirs in workers.run(2, trained_on_ranks, tmp_path / "ranks"):
        assert result.auc == pytest.approx(evaluation.auc, abs=1e-6)
        for name, weight in weights.items():
            torch.testing.assert_close(theirs[name], weight, rtol=1e-4, atol=1e-6)


def test_a_logit_model_serves_what_it_says_itself(tmp_path):
    model = {"class": f"{HOME}:Named", "embedding_dim": 4}
    result = train(own(tmp_path, model, epochs=1), DATA)
    assert type(load_checkpoint(result.checkpoint).module).__name__ == "Named"


def test_a_class_is_imported_from_the_current_folder(tmp_path, monkeypatch):
    text = "from tests.training.own_models import Ranker\n"
    (tmp_path / "lying_here.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    model = RANKER | {"class": "lying_here:Ranker"}
    assert dry_run(own(tmp_path / "run", model), DATA).setup.model["name"] == "lying_here:Ranker"


def test_a_checkpoint_whose_class_is_gone_is_refused(tmp_path):
    result = train(own(tmp_path, epochs=1), DATA)
    file = result.checkpoint / "checkpoint.json"
    file.write_text(file.read_text().replace(":Ranker", ":Gone"))
    with pytest.raises(DataError, match=r"checkpoint.json: expected a torch.nn.Module 'Gone' in"):
        load_checkpoint(result.checkpoint)


SIGNATURE = (
    f"{HOME}:Ranker(embedding_bag_collection, hidden: tuple[int, ...], dense_in_features, tasks, "
    "activation: str = 'relu')"
)


@cases(
    ("lines", "message"),
    {
        "unknown": (
            'class = "{home}:Ranker"\nhidden = [4]\nhiden = 3',
            f"run.toml:6: key 'model.hiden': expected an argument of {SIGNATURE}, got 'hiden'",
        ),
        "missing": (
            'embedding_dim = 4\nclass = "{home}:Ranker"',
            f"run.toml:5: key 'model.class': expected a value of 'hidden', an argument of "
            f"{SIGNATURE}, got none",
        ),
        "type": (
            'class = "{home}:Ranker"\nhidden = 8',
            f"run.toml:5: key 'model.hidden': expected a valid tuple as an argument of {SIGNATURE}"
            ", got 8",
        ),
        "date": (
            'class = "{home}:Ranker"\nhidden = [4]\nactivation = 2026-01-01',
            "run.toml:6: key 'model.activation': expected a value of JSON, got datetime.date(",
        ),
        "provided": (
            'class = "{home}:Ranker"\nhidden = [4]\ntasks = 2',
            "run.toml:6: key 'model.tasks': expected no value, since embershard passes it, got one",
        ),
        "form": (
            'class = "Ranker"',
            "run.toml:4: key 'model.class': expected package.module:Class, got 'Ranker'",
        ),
        "module": (
            'class = "no_such_module:Ranker"',
            "run.toml:4: key 'model.class': importing no_such_module raised ModuleNotFoundError: ",
        ),
        "name": (
            'class = "{home}:Rankr"',
            "run.toml:4: key 'model.class': expected a torch.nn.Module 'Rankr' in {home}, got "
            "nothing so named",
        ),
        "no-module": (
            'class = "json:JSONDecoder"',
            "run.toml:4: key 'model.class': expected a torch.nn.Module 'JSONDecoder' in json, got "
            "a type so named",
        ),
        "forward": (
            'class = "{home}:OneInput"',
            "run.toml:4: key 'model.class': expected {home}:OneInput with forward(dense, sparse), "
            "got (self, dense)",
        ),
        "no-collection": (
            'class = "{home}:NoCollection"',
            "run.toml:4: key 'model.class': expected embedding_bag_collection as an argument of "
            "{home}:NoCollection(",
        ),
        "raising": (
            'class = "{home}:Failing"',
            "run.toml:4: key 'model.class': the constructor of {home}:Failing raised RuntimeError: "
            "no such thing (",
        ),
        "without-tables": (
            'class = "{home}:NoTables"',
            "run.toml:4: key 'model.class': expected {home}:NoTables to keep "
            "embedding_bag_collection as an attribute, got a module without it",
        ),
        "logits": (
            'class = "{home}:Wide"',
            "run.toml:4: key 'model.class': expected {home}:Wide to return logits of shape (2, 1) "
            "for 2 examples and the tasks ['score'], got (2, 2)",
        ),
        "both": (
            'class = "{home}:Ranker"\nname = "dlrm"',
            "run.toml:3: key 'model': expected 'name' or 'class', got both",
        ),
        "no-text": (
            "class = 3",
            "run.toml:4: key 'model.class': expected a valid string, got 3",
        ),
    },
)
def test_a_class_that_cannot_be_used_is_refused_with_its_line(lines, message, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(
        f'[data]\nname = "synthetic"\n[model]\n{lines.replace("{home}", HOME)}\n'
        f'[checkpoint]\nfolder = "{tmp_path}/run"\n'
    )
    with pytest.raises(ConfigError, match=re.escape(message.replace("{home}", HOME))):
        train(read_config(file), DATA)
    assert not (tmp_path / "run").exists()
