"""Scores of sharded models. Evaluation has a pipeline of its own beside that of training."""

from unittest.mock import patch

import pytest
import torch

from embershard.data.row_batches import batches, to_rows
from embershard.sharding import TrainPipelineSparseDist
from embershard.training import score
from embershard.training import scorer as scorer_module
from embershard.training.config import ShardingConfig
from embershard.training.scorer import Scorer
from embershard.training.setup import set_up
from tests.training.runs import config, dataset

DATA = dataset()  # 200 examples in the test split.
BATCH = 64


@patch.object(scorer_module, "EVALUATION_BATCH", BATCH)
def scored(env, settings):
    """Scores of one process. On ranks: scores before each of four training steps, and True if the
    model is in training mode afterwards."""
    module, rows = set_up(settings, DATA, env).build(), to_rows(DATA.test)
    if env is None:
        return score(module, rows)
    scorer, result = Scorer(module, env), []

    def forward(batch):
        return module(batch.dense, batch.sparse).sum() * 0, None

    steps = TrainPipelineSparseDist(
        module,
        torch.optim.SGD(module.parameters(), lr=0.1),
        torch.device("cpu"),
        custom_model_fwd=forward,
    )
    train, part = to_rows(DATA.train), {"rank": env.rank, "world_size": env.world_size}
    source = batches(train, batch_size=BATCH, **part)
    for _ in range(4):
        result.append(scorer(rows))
        steps.progress(source)
    return result, module.training


@pytest.mark.parametrize("cut", ["row_wise", "table_wise", "data_parallel"])
def test_sharded_scores_equal_unsharded_also_between_steps(workers, tmp_path, cut):
    settings = config(tmp_path).model_copy(update={"sharding": ShardingConfig(tables={"*": cut})})
    expected = scored(None, settings)
    assert expected.std() > 0
    for result, is_training in workers.run(2, scored, settings):
        assert is_training
        for scores in result:
            torch.testing.assert_close(scores.logits.squeeze(1), expected)
            assert torch.equal(scores.labels.squeeze(1), torch.from_numpy(DATA.test.labels))
            assert torch.equal(scores.request, torch.from_numpy(DATA.test.request))
            assert scores.weights is None
