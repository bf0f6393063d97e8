"""DIN and two towers on MovieLens, from their TOML files: trained, exported, served."""

from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embershard.client import Client, Lists
from embershard.data import client_requests, load_movielens, movielens_folder
from embershard.export import export_checkpoint
from embershard.score import BatchScorer, score_files
from embershard.score.vectors import write_vectors
from embershard.training import area_under_curve, read_config, train
from tests.serving.messages import MessagePredictor
from tests.serving.oracle import Oracle
from tests.serving.serve import serve
from tests.serving.test_movielens import as_asked, cut, scores

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

EXAMPLES = Path(__file__).parents[2] / "examples/movielens"
CHANCE, BASELINE_LESS = 0.5, 0.05  # How far below the baseline without a model is still sane.


@pytest.fixture(scope="module")
def movielens():
    return load_movielens(movielens_folder(None))


@pytest.fixture(scope="module")
def trained_package(movielens, tmp_path_factory):
    """From a model's name to its training result and package, each made once."""

    @cache
    def made(name):
        config = read_config(EXAMPLES / f"{name}.toml")
        folder = str(tmp_path_factory.mktemp("checkpoints"))
        checkpoint = config.checkpoint.model_copy(update={"folder": folder})
        trained = train(config.model_copy(update={"checkpoint": checkpoint}), movielens.dataset)
        out = tmp_path_factory.mktemp("repository") / name / "1"
        return trained, export_checkpoint(trained.checkpoint, out, weights="int8")

    return made


@pytest.fixture(scope="module", params=["din", "two_tower"])
def model(request, trained_package):
    return trained_package(request.param)


@pytest.fixture(scope="module")
def asked(movielens):
    users = [int(user) for user in movielens.test_users[:6]]
    return [
        as_asked(movielens, movielens.ranking_request(user, candidates=20).request)
        for user in users
    ]


def test_int8_served_keeps_the_test_auc(movielens, model):
    trained, package = model
    local, test = MessagePredictor(package, threads=1), movielens.test
    served = np.empty(len(test), np.float32)
    for request in client_requests(test):
        (served[request.positions],) = scores(local, as_asked(movielens, request))
    auc = area_under_curve(served, test.labels)
    assert abs(auc - trained.test.auc) <= 0.001
    assert auc > area_under_curve(movielens.test_baseline, test.labels) - BASELINE_LESS > CHANCE


def test_scores_are_the_packages_however_requests_are_split(model, asked):
    _, package = model
    local, oracle = MessagePredictor(package, threads=1), Oracle(package)
    wholes = scores(local, *asked)
    for request, got in zip(asked, wholes, strict=True):
        assert np.abs(got - oracle.answer(request)["score"]).max() <= 1e-5
    pieces = [piece for item in asked for piece in cut(item, [1, 12, 7])]
    merged = np.concatenate(scores(local, *pieces))
    assert np.abs(merged - np.concatenate(wholes)).max() <= 1e-6


def test_a_users_vector_ranks_items_as_the_served_scores_do(movielens, trained_package):
    _, package = trained_package("two_tower")
    user = int(movielens.test_users[0])
    request = movielens.ranking_request(user, candidates=50).request
    schema = movielens.dataset.schema
    lists = {
        name: Lists(feature.lengths, feature.values) for name, feature in request.sparse.items()
    }
    of_user = {
        item.name: request.dense[0, place]
        for place, item in enumerate(schema.dense)
        if item.scope == "request"
    }
    with (
        serve(package.parents[1]) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        whole = client.predict(dense=request.dense, sparse=lists)
        vector = client.predict(
            dense=of_user,
            sparse={name: lists[name] for name in schema.sparse_names("request")},
            num_examples=0,
            outputs=["user"],
        )
    np.testing.assert_allclose(vector["user"], whole["user"], rtol=0, atol=1e-5)
    logits = np.log(whole["score"] / (1 - whole["score"]))
    dots = whole["item"] @ vector["user"][0]
    biases = logits - dots
    np.testing.assert_allclose(biases, np.full(50, biases[0]), rtol=0, atol=1e-4)


def candidates_of(movielens, user, count):
    """A row for each candidate of a user, as Parquet files for `embershard score` have them."""
    ranking = movielens.ranking_request(user, candidates=count)
    schema, request = movielens.dataset.schema, ranking.request
    columns = {"reader": [user] * count, "film": ranking.items}
    for place, item in enumerate(schema.dense):
        columns[item.name] = request.dense[:, place]
    for item in schema.sparse:
        values, offsets = request.sparse[item.name]
        lists = [ids.tolist() for ids in np.split(values, offsets[1:-1])]
        columns[item.name] = lists * count if item.scope == "request" else lists
    return pa.table(columns)


def test_top_k_by_vectors_is_that_of_all_scores(movielens, trained_package, tmp_path):
    _, package = trained_package("two_tower")
    users = [int(user) for user in movielens.test_users[:4]]
    files = [str(tmp_path / f"{user}.parquet") for user in users]
    for user, file in zip(users, files, strict=True):
        pq.write_table(candidates_of(movielens, user, count=600), file)
    vectors = {}
    for output, key in (("item", "film"), ("user", "reader")):
        out = tmp_path / output
        write_vectors(BatchScorer(package, outputs=[output]), files, out, key=key)
        ids = np.load(out / "ids.npy").tolist()
        vectors[output] = dict(zip(ids, np.load(out / "vectors.npy"), strict=True))
    score_files(BatchScorer(package, outputs=["score"]), files, tmp_path / "scores")
    for user in users:
        scored = pq.read_table(tmp_path / "scores" / f"{user}.parquet")
        films, all_scores = scored["film"].to_pylist(), scored["score"].to_numpy()
        dots = np.stack([vectors["item"][film] for film in films]) @ vectors["user"][user]
        top = np.argsort(-dots)[:10]
        np.testing.assert_allclose(all_scores[top], -np.sort(-all_scores)[:10], rtol=1e-6)
        assert len(np.unique(all_scores[top])) > 5
