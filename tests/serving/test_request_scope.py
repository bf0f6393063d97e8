"""Inputs in request scope are sent, mapped, looked up and computed once for each request, also
in a batch of several users' requests."""

import json
import operator

import grpc
import numpy as np
import pytest
import torch

from embershard._proto import predictor_pb2 as pb
from embershard.export import export_model
from embershard.export.torchscript import compile_program, encode_program
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.package import Identity, SampleRequest, Schema, SparseInput
from tests.serving.messages import MessagePredictor
from tests.serving.models import seal
from tests.serving.serve import serve

CANDIDATES = 5
HISTORY = [3, 4, 5, 99]  # 99 is unknown, and no row.
# The sample's user, whose rows do not count. A sample that is merged with itself scores the same.
NOBODY = 39
SCHEMA = Schema(
    sparse=[
        SparseInput("user", scope="request", ids=Identity(40)),
        SparseInput("history", scope="request", ids=Identity(20, unknown="zero")),
        SparseInput("item", ids=Identity(20, unknown="zero")),
    ]
)
SAMPLE = SampleRequest(
    num_examples=1,
    request_dense=np.zeros(0, np.float32),
    example_dense=np.zeros((1, 0), np.float32),
    lengths=np.array([1, 1, 1], np.int32),
    values=np.array([NOBODY, 2, 3], np.int64),
    weights=np.zeros(0, np.float32),
    outputs={},
)


class One(torch.nn.Module):
    """Scores every example 1, as the counting program scores the sample.

    The vectors of users are ones, and that of NOBODY is zero.
    """

    def __init__(self):
        super().__init__()
        tables = [("users", 40, ["user"]), ("items", 20, ["item", "history"])]
        self.embeddings = EmbeddingBagCollection(
            [
                EmbeddingBagConfig(
                    name=name, num_embeddings=rows, embedding_dim=4, feature_names=features
                )
                for name, rows, features in tables
            ]
        )
        with torch.no_grad():
            users = self.embeddings.embedding_bags["users"].weight
            users.fill_(1)
            users[NOBODY] = 0

    def forward(self, dense, sparse):
        return self.embeddings(sparse).values().sum(1) * 0 + 1


def counting_program():
    """Scores each example with the number of rows that the request-scoped inputs of its batch have.

    Rows of NOBODY do not count. Without any other rows the score is 1.
    """
    graph = torch.fx.Graph()
    request, example = (graph.placeholder(f"{scope}_inputs", list[torch.Tensor])
                        for scope in ("request", "example"))  # fmt: skip
    graph.placeholder("request_of_example", torch.Tensor)
    of_requests, of_examples = (
        graph.call_function(torch.select, (graph.call_function(operator.getitem, (item, 1)), 1, 0))
        for item in (request, example)
    )
    rows = graph.call_function(torch.sum, (of_requests,))
    rows = graph.call_function(torch.clamp_min, (rows, 1))
    nothing = graph.call_function(torch.zeros_like, (of_examples,))
    score = graph.call_function(torch.add, (nothing, rows))
    graph.output({"score": score}, type_expr=dict[str, torch.Tensor])
    return compile_program(torch.nn.Module(), graph)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """Its dense program tells how many requests it was given."""
    out = tmp_path_factory.mktemp("repository") / "counting" / "1"
    export_model(One(), SCHEMA, out, samples=[SAMPLE])
    (out / "programs" / "dense.pt").write_bytes(encode_program(counting_program()))
    return seal(out, json.loads((out / "manifest.json").read_text()))


def asked(user):
    """One user's request for some candidates."""
    lists = {
        "user": [[user]],
        "history": [HISTORY],
        "item": [[number] for number in range(CANDIDATES)],
    }
    message = pb.PredictRequest(num_examples=CANDIDATES)
    for name, ids in lists.items():
        message.sparse.add(
            name=name,
            lengths=np.array([len(row_id) for row_id in ids], "<i4").tobytes(),
            values=np.concatenate(ids).astype("<i8").tobytes(),
        )
    return message.SerializeToString()


def scores(answer):
    (output,) = pb.PredictResponse.FromString(answer).outputs
    return np.frombuffer(output.values, "<f4").tolist()


def test_the_program_is_given_a_row_for_each_request_of_a_batch(package):
    answers = MessagePredictor(package, threads=1).answers([asked(user) for user in (7, 9, 7)])

    assert [scores(answer) for answer in answers] == [[3.0] * CANDIDATES] * 3


def test_a_server_looks_up_each_users_ids_once_in_mixed_batches(package):
    users, sent = range(16), 0
    largest = 0.0
    with (
        serve(package.parent.parent) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        predict = channel.unary_unary("/embershard.v1.Predictor/Predict")
        # Tries until one batch holds several requests.
        while largest < 2 and sent < 200 * len(users):
            calls = [predict.future(asked(user), timeout=60) for user in users]
            sent += len(calls)
            largest = max(largest, *(scores(call.result())[0] for call in calls))
        metrics = server.metrics()

    assert largest >= 2
    ids = metrics.histogram("embershard_request_ids")
    assert (ids.observations, ids.sum) == (sent, sent * (1 + len(HISTORY) + CANDIDATES))
    assert metrics.by("embershard_unknown_ids", "feature") == {
        "user": 0,
        "history": sent,
        "item": 0,
    }
    rows = metrics.total("embershard_device_rows")
    assert rows == sent * (1 + len(HISTORY) - 1 + CANDIDATES)
