"""A million rows with a known teacher: what int8 and int4 tables cost, served."""

import numpy as np
import pytest

from embershard._proto import predictor_pb2 as pb
from embershard.data import area_under_curve
from embershard.data.base import Examples
from embershard.data.requests import client_requests
from embershard.data.samples import sample_requests
from embershard.data.synthetic import SyntheticConfig, planted_click_log
from embershard.export import export_checkpoint
from embershard.serving import LocalPredictor
from embershard.training import RunConfig, train
from tests.serving.asking import outputs_of, packed_sample

ROWS = 1_000_000
MERGED = 500
"""Requests run as one batch, of at most 4 examples each."""


def served_scores(package, examples: Examples) -> np.ndarray:
    """Scores by the served model, in the order of the examples."""
    predictor = LocalPredictor(package, threads=1)
    fingerprint = pb.GetModelResponse.FromString(predictor.get_model()).schema
    asked = [
        packed_sample(sample, fingerprint).SerializeToString()
        for sample in sample_requests(examples, len(examples))
    ]
    answers = []
    for start in range(0, len(asked), MERGED):
        answers += predictor.predict_merged(asked[start : start + MERGED])
    scores = np.full(len(examples), np.nan, np.float32)
    for request, answer in zip(client_requests(examples), answers, strict=True):
        scores[request.positions] = outputs_of(answer)["score"]
    return scores


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_served_int8_keeps_the_auc_of_fp32(tmp_path):
    log = planted_click_log(SyntheticConfig(rows=ROWS))
    config = RunConfig.model_validate(
        {
            "data": {"name": "synthetic", "rows": ROWS},
            "model": {"embedding_dim": 8, "dense_layers": [16, 8], "over_layers": [32, 1]},
            "training": {
                "batch_size": 2048,
                "epochs": 2,
                "table_learning_rate": 0.05,
                "evaluate_every_steps": 200,
                "threads": 1,
            },
            "checkpoint": {"folder": str(tmp_path / "checkpoints")},
        }
    )
    trained = train(config, log.dataset)

    auc = {}
    for version, weights in enumerate(("int8", "int4"), start=1):
        package = export_checkpoint(
            trained.checkpoint, tmp_path / f"planted/{version}", weights=weights
        )
        scores = served_scores(package, log.dataset.test)
        auc[weights] = area_under_curve(scores, log.dataset.test.labels)

    print(
        f"\nplanted teacher, {ROWS:,} rows: test AUC best {log.best_auc:.5f}, fp32 "
        f"{trained.test.auc:.5f}, int8 served {auc['int8']:.5f}, int4 served {auc['int4']:.5f}"
    )
    assert trained.test.auc > 0.98 * log.best_auc
    assert auc["int8"] >= 0.9995 * trained.test.auc
