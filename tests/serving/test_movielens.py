"""The MovieLens package: its scores, however its requests are split, and its AUC."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embershard._proto import predictor_pb2 as pb
from embershard.data import MovieLens, client_requests, load_movielens, movielens_folder
from embershard.export import export_checkpoint
from embershard.training import TrainingResult, area_under_curve, read_config, train
from tests.serving.asking import Asked, named, outputs_of
from tests.serving.messages import MessagePredictor
from tests.serving.oracle import Oracle

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CONFIG = Path(__file__).parents[2] / "examples/movielens/movielens.toml"
TOLERANCE = 1e-6
BATCH_EXAMPLES = 4096
USERS, CANDIDATES = 12, 24


@pytest.fixture(scope="module")
def movielens() -> MovieLens:
    return load_movielens(movielens_folder(None))


@pytest.fixture(scope="module")
def trained(movielens, tmp_path_factory) -> TrainingResult:
    config = read_config(CONFIG)
    folder = str(tmp_path_factory.mktemp("checkpoints"))
    checkpoint = config.checkpoint.model_copy(update={"folder": folder})
    return train(config.model_copy(update={"checkpoint": checkpoint}), movielens.dataset)


@pytest.fixture(scope="module")
def package(trained, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("repository") / "movielens" / "1"
    return export_checkpoint(trained.checkpoint, out, weights="int8")


@pytest.fixture(scope="module")
def movielens_local(package) -> MessagePredictor:
    return MessagePredictor(package, threads=1)


@pytest.fixture(scope="module")
def asked(movielens) -> list[Asked]:
    """Ranking requests of several users."""
    users = [int(user) for user in movielens.test_users[:USERS]]
    return [
        as_asked(movielens, movielens.ranking_request(user, candidates=CANDIDATES).request)
        for user in users
    ]


def as_asked(movielens, request) -> Asked:
    schema = movielens.dataset.schema
    dense, sparse = {}, {}
    for item, column in zip(schema.dense, request.dense.T, strict=True):
        dense[item.name] = (column[:1] if item.scope == "request" else column).tolist()
    for name, lists in request.sparse.items():
        ends = np.cumsum(lists.lengths)[:-1]
        sparse[name] = [part.tolist() for part in np.split(np.asarray(lists.values), ends)]
    return Asked(len(request.dense), dense=dense, sparse=sparse, schema=schema)


def scores(local, *args: Asked) -> list[np.ndarray]:
    """Scores of requests that run as one batch."""
    answers = local.answers([named(request).SerializeToString() for request in args])
    return [outputs_of(answer)["score"] for answer in answers]


def cut(whole: Asked, sizes) -> list[Asked]:
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    return [whole.examples(start, size) for start, size in zip(starts, sizes, strict=True)]


@st.composite
def changes(draw):
    """Draws a user, inputs to leave out, examples to empty, and the sizes of the parts to cut
    into."""
    count = draw(st.integers(1, CANDIDATES))
    sizes, left = [], count
    while left:
        sizes.append(draw(st.integers(1, left)))
        left -= sizes[-1]
    return {
        "user": draw(st.integers(0, USERS - 1)),
        "sizes": sizes,
        "left_out": draw(st.sets(st.sampled_from(["user", "history", "zip3", "item", "genres"]))),
        "emptied": draw(st.sets(st.integers(0, count - 1), max_size=4)),
    }


def changed(requests: list[Asked], change) -> Asked:
    whole = requests[change["user"]].examples(0, sum(change["sizes"]))
    sparse = {name: lists for name, lists in whole.sparse.items() if name not in change["left_out"]}
    for name in {"item", "genres"} & set(sparse):
        lists = sparse[name]
        sparse[name] = [[] if k in change["emptied"] else ids for k, ids in enumerate(lists)]
    return Asked(whole.num_examples, dense=whole.dense, sparse=sparse, schema=whole.schema)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=st.lists(changes(), min_size=1, max_size=6))
def test_any_split_alone_or_merged(movielens_local, asked, drawn):
    wholes = [changed(asked, change) for change in drawn]
    parts = [cut(whole, change["sizes"]) for whole, change in zip(wholes, drawn, strict=True)]
    expected = [scores(movielens_local, whole)[0] for whole in wholes]

    for chunks, whole in zip(parts, expected, strict=True):
        alone = np.concatenate([scores(movielens_local, chunk)[0] for chunk in chunks])
        assert np.abs(alone - whole).max() <= TOLERANCE

    merged = iter(scores(movielens_local, *[chunk for chunks in parts for chunk in chunks]))
    for chunks, whole in zip(parts, expected, strict=True):
        together = np.concatenate([next(merged) for _ in chunks])
        assert np.abs(together - whole).max() <= TOLERANCE


@pytest.mark.parametrize("size", [1, 100, BATCH_EXAMPLES - 1], ids=lambda size: f"parts-of-{size}")
def test_a_request_as_large_as_a_batch(movielens, movielens_local, size):
    user = int(movielens.test_users[0])
    request = movielens.ranking_request(user, candidates=1024).request
    few = as_asked(movielens, request)
    times = BATCH_EXAMPLES // 1024
    whole = Asked(
        BATCH_EXAMPLES,
        dense={n: v * (1 if len(v) == 1 else times) for n, v in few.dense.items()},
        sparse={n: v * (1 if len(v) == 1 else times) for n, v in few.sparse.items()},
        schema=few.schema,
    )
    sizes = [size] * (BATCH_EXAMPLES // size)
    sizes += [BATCH_EXAMPLES - sum(sizes)] if sum(sizes) < BATCH_EXAMPLES else []
    (expected,) = scores(movielens_local, whole)
    merged = np.concatenate(scores(movielens_local, *cut(whole, sizes)))
    assert np.abs(merged - expected).max() <= TOLERANCE


def test_scores_are_those_of_the_packages_bytes(movielens_local, package, asked):
    oracle = Oracle(package)
    for request, got in zip(asked, scores(movielens_local, *asked), strict=True):
        assert np.abs(got - oracle.answer(request)["score"]).max() <= 1e-5


def served_auc(local, movielens) -> float:
    """AUC of the test split, requested as clients do."""
    test = movielens.test
    served = np.empty(len(test), np.float32)
    for request in client_requests(test):
        (served[request.positions],) = scores(local, as_asked(movielens, request))
    return area_under_curve(served, test.labels)


def test_int8_served_keeps_the_test_auc(movielens, trained, movielens_local):
    auc = served_auc(movielens_local, movielens)
    assert abs(auc - trained.test.auc) <= 0.001
    assert auc > area_under_curve(movielens.test_baseline, movielens.test.labels)


def test_bf16_served_keeps_the_test_auc(movielens, trained, movielens_local, tmp_path):
    out = export_checkpoint(trained.checkpoint, tmp_path / "bf16" / "1", dense_dtype="bf16")
    bf16 = served_auc(MessagePredictor(out, threads=1), movielens)
    int8 = served_auc(movielens_local, movielens)
    print(f"movielens: {int8=:.6f}, int8 tables and {bf16=:.6f}")
    assert abs(bf16 - int8) <= 0.001


def test_ids_of_users_never_seen_are_counted(movielens, movielens_local, asked):
    (answer,) = movielens_local.answers([named(asked[0]).SerializeToString()])
    counts = {
        count.feature: count.count for count in pb.PredictResponse.FromString(answer).unknown_ids
    }
    known = set(movielens.log.items[: len(movielens.dataset.train)].tolist())
    unknown = sum(ids[0] not in known for ids in asked[0].sparse["item"])
    assert counts.get("item", 0) == unknown
