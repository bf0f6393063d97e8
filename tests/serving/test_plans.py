"""However tables lie on devices: the same scores."""

import shutil
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embershard.client import Client
from embershard.package import STRATEGIES, Package, add_plan, make_plan
from embershard.package.plan import Plan
from embershard.package.rectangles import Shard
from embershard.serving import Server, ServerOptions
from embershard.serving._native import load_extension
from tests.serving.asking import named, outputs_of, random_request, requests
from tests.serving.messages import MessagePredictor

TOLERANCE = 2e-6


@pytest.fixture
def own(package, tmp_path):
    """A copy of the package, to add plans to."""
    return shutil.copytree(package, tmp_path / "ranker" / "1")


def answers(predictor, batch):
    answers = predictor.answers([named(item).SerializeToString() for item in batch])
    return [outputs_of(result) for result in answers]


def assert_same(got, expected, tolerance):
    for one, other in zip(got, expected, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            if tolerance:
                assert np.abs(one[name] - other[name]).max() <= tolerance, name
            else:
                assert one[name].tobytes() == other[name].tobytes(), name


@pytest.mark.parametrize("devices", [1, 2, 4])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("threads", "slots"), [(1, 1), (4, 1), (4, 2)])
def test_every_strategy_gives_the_scores_of_one_device(
    own, local, strategy, devices, threads, slots
):
    opened = Package.open(own)
    names = [f"cpu:{index}" for index in range(devices)]
    add_plan(own, make_plan(opened, names, name="new", strategy=strategy))
    predictor = MessagePredictor(own, plan="new", threads=threads, slots=slots)
    requests = [random_request(examples, seed) for seed, examples in enumerate((1, 700, 40))]
    # Shares of a batch in two slots: another size of the dense program's products, too.
    tolerance = TOLERANCE if strategy == "row" or slots > 1 else 0
    assert_same(answers(predictor, requests), answers(local, requests), tolerance)


@st.composite
def plans(draw, tables):
    """Rectangles cut at random, each on one device or as replicas on some."""
    devices = draw(st.integers(1, 4))
    shards = []
    for table in tables:
        rectangles = [((0, table.rows), (0, table.dim))]
        for _ in range(draw(st.integers(0, 5))):
            at = draw(st.integers(0, len(rectangles) - 1))
            rows, columns = rectangles[at]
            by_rows = draw(st.booleans())
            span, step = (rows, 1) if by_rows else (columns, 4)
            if span[1] - span[0] <= step:
                continue
            edge = draw(st.integers(span[0] // step + 1, span[1] // step - 1)) * step
            halves = [(span[0], edge), (edge, span[1])]
            rectangles[at : at + 1] = [
                (half, columns) if by_rows else (rows, half) for half in halves
            ]
        shards += [
            Shard(
                table=table.name,
                rows=rows,
                columns=columns,
                devices=tuple(draw(st.lists(st.integers(0, devices - 1), min_size=1, unique=True))),
            )
            for rows, columns in rectangles
        ]
    return Plan(
        format_version=0,
        name="random",
        devices=tuple(f"cpu:{index}" for index in range(devices)),
        shards=tuple(draw(st.permutations(shards))),
    )


@settings(deadline=None, max_examples=40)
@given(data=st.data(), batch=st.lists(requests(max_examples=8), min_size=1, max_size=4))
def test_any_plan_gives_the_scores_of_one_device(package, local, data, batch):
    plan = data.draw(plans(Package.open(package).manifest.tables))
    with TemporaryDirectory() as folder:
        own = shutil.copytree(package, f"{folder}/ranker/1")
        add_plan(own, plan)
        load_extension().verify_package(str(own))  # The other reader takes it too.
        threads, slots = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 2))
        predictor = MessagePredictor(own, plan="random", threads=threads, slots=slots)
        assert_same(answers(predictor, batch), answers(local, batch), TOLERANCE)


def test_a_server_keeps_its_plan_while_others_are_added(own, local):
    opened = Package.open(own)

    def add(name):
        plan = make_plan(opened, ["cpu:0", "cpu:1"], name=name, strategy="column")
        add_plan(own, plan)

    add("columns")
    options = ServerOptions(port=0, threads=2, plan="columns")
    request = random_request(30, 5)
    (expected,) = answers(local, [request])
    with (
        Server(own.parent.parent, options=options) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        first = scores(client, request)
        add("later")
        second = scores(client, request)
    assert first.tobytes() == second.tobytes() == expected["score"].tobytes()


def scores(client, request):
    inputs = {"dense": request.dense, "sparse": request.sparse, "weights": request.weights}
    return client.predict(**inputs, num_examples=request.num_examples)["score"]
