"""Two towers that train with in-batch negatives: on ranks, across a resume, and served."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from embershard.data import sample_requests, to_rows
from embershard.export import export_checkpoint
from embershard.models import TwoTowerConfig
from embershard.serving import LocalPredictor
from embershard.training import load_checkpoint, score, train
from embershard.training.config import CheckpointConfig
from tests.training.runs import config, dataset, interrupt_at

DATA, BATCH = dataset(), 123
MODEL = TwoTowerConfig(embedding_dim=4, tower_layers=(8, 4), loss="in_batch", temperature=0.5)


def run_of(folder, **changes):
    # Ranks get parts of different sizes. In the last batch of an epoch all parts but one are empty.
    return config(folder, epochs=2, batch_size=BATCH).model_copy(update={"model": MODEL, **changes})


def weights_of(result):
    state = load_checkpoint(result.checkpoint).module.state_dict()
    return {name: value.clone() for name, value in state.items()}


def trained_on_ranks(env, folder):
    result = train(run_of(folder), DATA, env=env)
    return result.test.auc, weights_of(result)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return train(run_of(tmp_path_factory.mktemp("alone")), DATA)


def test_a_checkpoint_has_the_counts_of_all_rows_so_far(alone):
    assert len(DATA.train) % BATCH == 1
    epochs, steps = divmod(alone.best_step, len(DATA.train) // BATCH + 1)
    rows = epochs * len(DATA.train) + steps * BATCH
    assert weights_of(alone)["in_batch.counts"].sum() == rows


def test_ranks_train_with_the_items_of_all_ranks(workers, tmp_path, alone):
    expected = weights_of(alone)
    for area, weights in workers.run(4, trained_on_ranks, tmp_path):
        assert area == pytest.approx(alone.test.auc, abs=1e-3)
        assert weights.keys() == expected.keys()
        for name, value in expected.items():
            assert_close(weights[name], value, rtol=1e-3, atol=1e-4)


def test_a_resumed_run_goes_on_with_the_frequencies(tmp_path, alone):
    checkpoint = CheckpointConfig(folder=str(tmp_path), last_every_steps=10)
    run = run_of(tmp_path, checkpoint=checkpoint)
    with pytest.raises(KeyboardInterrupt):
        train(run, DATA, progress=interrupt_at(15))
    resumed = weights_of(train(run, DATA, resume=True))
    for name, value in weights_of(alone).items():
        assert torch.equal(resumed[name], value), name


def test_the_served_score_is_the_cosine_over_the_temperature(tmp_path, alone):
    package = export_checkpoint(alone.checkpoint, tmp_path / "m" / "1", weights="fp32")
    answers = LocalPredictor(package, threads=1).predict_merged(sample_requests(DATA.test, 20))
    expected = score(load_checkpoint(alone.checkpoint).module, to_rows(DATA.test))
    served = np.concatenate([answer.outputs["score"] for answer in answers])
    np.testing.assert_allclose(served, expected[: len(served)], rtol=1e-5, atol=1e-5)
    for answer in answers:
        user, item = answer.outputs["user"], answer.outputs["item"]
        np.testing.assert_allclose(np.linalg.norm(item, axis=1), 1, rtol=1e-5)
        products = user.repeat(len(item) // len(user), axis=0) * item
        np.testing.assert_allclose(answer.outputs["score"], products.sum(1) / 0.5, atol=1e-5)
