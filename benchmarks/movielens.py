"""MovieLens-100K as a workload: the model of the demo, untrained, and candidates for real users."""

from __future__ import annotations

from pathlib import Path

import torch

from embershard._proto import predictor_pb2 as pb
from embershard.client import Lists
from embershard.client.packing import Inputs, pack
from embershard.client.schema import served_model
from embershard.data import MovieLens, load_movielens, movielens_folder, sample_requests
from embershard.export import export_model
from embershard.models import DLRMConfig, build_model
from embershard.serving import LocalPredictor
from embershard.training.config import TrainingConfig
from embershard.training.parts import model_arguments

__all__ = ["export_movielens", "ranking_messages"]


def export_movielens(folder: Path) -> tuple[Path, MovieLens]:
    """An int8 package of a DLRM over the data set's tables, and the data set."""
    loaded = load_movielens(movielens_folder(None))
    arguments = model_arguments(DLRMConfig(), TrainingConfig(), loaded.dataset)
    torch.manual_seed(0)
    model = build_model("dlrm", {**arguments, "fused": None})
    out = folder / "movielens" / "1"
    samples = sample_requests(loaded.dataset.test, 16)
    return export_model(model, loaded.dataset.schema, out, samples=samples), loaded


def ranking_messages(
    predictor: LocalPredictor, data: MovieLens, *, users: int, candidates: int
) -> list[bytes]:
    """Requests of the first users of the test split, with so many candidates each, serialized."""
    model = served_model(pb.GetModelResponse.FromString(predictor.get_model()))
    messages = []
    for user in data.test_users[:users]:
        asked = data.ranking_request(int(user), candidates=candidates).request
        lists = {
            name: Lists(column.lengths, column.values) for name, column in asked.sparse.items()
        }
        request = pb.PredictRequest()
        inputs = Inputs(dense=asked.dense, sparse=lists)
        request.num_examples = pack(model, inputs, request.packed)
        messages.append(request.SerializeToString())
    return messages
