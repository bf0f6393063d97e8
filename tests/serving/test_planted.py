"""A million examples of a planted teacher: what storing tables in 8 and 4 bits, and linear
layers in bfloat16, costs in AUC."""

from pathlib import Path

import numpy as np
import pytest

from embershard._proto import predictor_pb2 as pb
from embershard.data import PlantedClickLog, SyntheticConfig, planted_click_log, sample_requests
from embershard.export import export_checkpoint
from embershard.training import RunConfig, TrainingResult, area_under_curve, train
from tests.serving.asking import outputs_of, packed_sample
from tests.serving.messages import MessagePredictor

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

EXAMPLES = 1_000_000
MERGED = 512


@pytest.fixture(scope="module")
def log() -> PlantedClickLog:
    return planted_click_log(SyntheticConfig(examples=EXAMPLES))


@pytest.fixture(scope="module")
def trained(log, tmp_path_factory) -> TrainingResult:
    config = {
        "data": {"name": "synthetic", "examples": EXAMPLES},
        "model": {"embedding_dim": 16, "dense_layers": [32, 16], "over_layers": [64, 32, 1]},
        "training": {
            "epochs": 1,
            "batch_size": 4096,
            "table_learning_rate": 0.1,
            "dense_learning_rate": 0.02,
            "evaluate_every_steps": 50,
            "threads": 1,
        },
        "checkpoint": {"folder": str(tmp_path_factory.mktemp("checkpoints"))},
    }
    return train(RunConfig.model_validate(config), log.dataset)


def served_auc(package: Path, log: PlantedClickLog) -> float:
    """AUC of the test split as a server scores it, request by request, merged into batches."""
    local = MessagePredictor(package, threads=1)
    fingerprint = pb.GetModelResponse.FromString(local.get_model()).schema
    test = log.dataset.test
    messages = [
        packed_sample(sample, fingerprint).SerializeToString()
        for sample in sample_requests(test, len(test))
    ]
    results = []
    for start in range(0, len(messages), MERGED):
        answers = local.answers(messages[start : start + MERGED])
        results += [outputs_of(answer)["score"] for answer in answers]
    scores = np.concatenate(results)
    assert len(scores) == len(test)
    return area_under_curve(scores, test.labels)


EXPORTS = {
    "int8": {"weights": "int8"},
    "int4": {"weights": "int4"},
    "bf16": {"weights": "int8", "dense_dtype": "bf16"},
}


def test_int8_and_bf16_are_as_good_as_fp32_and_int4_nearly(trained, log, tmp_path, record_property):
    fp32 = trained.test.auc
    int8, int4, bf16 = (
        served_auc(export_checkpoint(trained.checkpoint, tmp_path / name / "1", **options), log)
        for name, options in EXPORTS.items()
    )
    print(f"planted teacher: best {log.best_auc:.4f}, {fp32=:.6f}, {int8=:.6f}, {int4=:.6f},")
    print(f"int8 tables and {bf16=:.6f}")
    results = {"best": log.best_auc, "fp32": fp32, "int8": int8, "int4": int4, "bf16": bf16}
    record_property("auc", results)
    assert fp32 > 0.97 * log.best_auc  # Something was learned that could be lost.
    assert int8 >= 0.9995 * fp32
    assert int4 >= 0.99 * fp32
    assert abs(bf16 - int8) <= 0.001
