"""Failure 4: a valid request that makes the model overflow or raise, fails alone."""

import grpc
import numpy as np
import pytest
import torch
from torch import nn

from embershard._proto import predictor_pb2 as pb
from embershard.errors import EmbershardError
from embershard.export import export_model
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.package import DenseInput, Identity, Schema, SparseInput
from tests.serving.asking import Asked, named, outputs_of, random_request
from tests.serving.messages import MessagePredictor
from tests.serving.refused import Code

# Every number in it is finite; its bag's sum is not.
POISONED = Asked(
    num_examples=2,
    dense={"age": [1.0], "price": [1.0, 1.0]},
    sparse={"tags": [[1], [2] * 8]},
    weights={"tags": [[1.0], [3e38] * 8]},
)
GOOD = [random_request(3, seed=11), random_request(4, seed=12)]


def bodies():
    return [named(good).SerializeToString() for good in (GOOD[0], POISONED, GOOD[1])]


def test_over_the_wire_it_is_the_only_one_that_fails(server, local):
    first, poisoned, last = bodies()
    expected = [outputs_of(local.answers([item])[0])["score"] for item in (first, last)]
    with grpc.insecure_channel(server.address) as channel:
        predict = channel.unary_unary("/embershard.v1.Predictor/Predict")
        calls = [predict.future(item, timeout=60) for item in [first, poisoned, last] * 10]
        for place, call in enumerate(calls):
            if place % 3 == 1:
                assert call.code() not in (Code.OK, Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)
                assert "at example 1" in call.details()
            else:
                score = outputs_of(call.result())["score"]
                assert np.abs(score - expected[place % 3 // 2]).max() <= 1e-6


class Brittle(nn.Module):
    """The program raises for a price of 1000 and more: there is one step to take."""

    def __init__(self):
        super().__init__()
        self.embeddings = EmbeddingBagCollection(
            [
                EmbeddingBagConfig(
                    name="items", num_embeddings=10, embedding_dim=4, feature_names=["item"]
                )
            ]
        )
        self.register_buffer("steps", torch.tensor([0.5]))

    def forward(self, dense, sparse):
        price = dense[:, 0]
        step = self.steps.index_select(0, (price / 1000).long())
        return {"score": price + step + self.embeddings(sparse)["item"].sum(1)}


BRITTLE = Schema(dense=[DenseInput("price")], sparse=[SparseInput("item", ids=Identity(10))])


def priced(*prices):
    """Without items, whose vectors are then zero."""
    message = pb.PredictRequest(num_examples=len(prices))
    message.dense.add(name="price", values=np.array(prices, "<f4").tobytes())
    return message.SerializeToString()


@pytest.fixture(scope="module")
def brittle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("brittle")
    export_model(Brittle(), BRITTLE, folder / "brittle" / "1")
    return folder


def test_neighbours_of_a_request_that_raises_get_their_scores(brittle):
    messages = [priced(number, number + 0.25) for number in range(20)]
    messages[13] = priced(1, 5000)
    local = MessagePredictor(brittle / "brittle" / "1", threads=1)
    for place, answer in enumerate(local.answers(messages)):
        if place == 13:
            assert isinstance(answer, EmbershardError)
            assert "index out of range" in str(answer)
        else:
            assert outputs_of(answer)["score"].tolist() == [place + 0.5, place + 0.75]
