"""What merging requests into one batch gains: 64 requests of one example, merged and alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.harness import Row, compare, loop
from benchmarks.models import export_small
from embershard._proto import predictor_pb2 as pb
from embershard.client.packing import Inputs, pack
from embershard.client.schema import served_model
from embershard.serving import LocalPredictor

__all__ = ["measure"]

REQUESTS = 64


def measure(folder: Path) -> list[Row]:
    """In process, without gRPC: a *small* model (26 tables x D64, 13 dense), one thread."""
    predictor = LocalPredictor(export_small(folder), threads=1)
    model = served_model(pb.GetModelResponse.FromString(predictor.get_model()))
    random = np.random.default_rng(0)
    requests = []
    for _ in range(REQUESTS):
        inputs = Inputs(
            dense=random.standard_normal((1, len(model.dense))),
            sparse={item.name: random.integers(0, 1000, (1, 1)) for item in model.sparse},
        )
        request = pb.PredictRequest()
        request.num_examples = pack(model, inputs, request.packed)
        requests.append(request.SerializeToString())

    assert all(isinstance(answer, bytes) for answer in predictor.predict_merged(requests))

    def merged() -> int:
        return len(predictor.predict_merged(requests))

    def alone() -> int:
        return sum(len(predictor.predict_merged([request])) for request in requests)

    row = compare(
        "merging/small",
        f"{REQUESTS} requests of 1 example, *small* model, in process, 1 thread",
        "requests/s",
        ours=loop("one batch", merged),
        theirs=loop("one by one", alone),
    )
    return [row]
