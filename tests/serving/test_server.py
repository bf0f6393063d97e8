"""A server in this process: its address, counters, overload and end."""

import json
import re
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest

from embershard.client import Client
from embershard.errors import (
    NotFoundError,
    PackageError,
    RequestError,
    RetryError,
    UnavailableError,
)
from embershard.package import read_samples, write_samples
from embershard.serving import Server, ServerOptions
from tests.cases import cases
from tests.serving.asking import named, outputs_of, random_request
from tests.serving.counts import requests_by
from tests.serving.messages import MessagePredictor
from tests.serving.models import export_ranker, seal
from tests.serving.refused import Code

PUSHBACK = "grpc-retry-pushback-ms"


def serve(repository, **options):
    return Server(repository, options=ServerOptions(port=0, threads=1, **options))


def raw_predict(channel):
    return channel.unary_unary("/embershard.v1.Predictor/Predict")


def outcomes(server):
    """Requests that ended, by code; those that there are."""
    return {code: count for (code,), count in requests_by(server, "code").items()}


def test_port_0_picks_a_free_one_and_says_which(repository):
    with serve(repository) as first, serve(repository) as second:
        assert first.address != second.address
        for server in (first, second):
            assert server.address.startswith("127.0.0.1:")
            with Client(server.address, timeout_seconds=60) as client:
                assert client.get_model().name == "ranker"


def test_a_port_in_use_is_refused(repository):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UnavailableError, match=f"cannot listen on 127.0.0.1:{port}: in use"):
            Server(repository, options=ServerOptions(port=port))


def test_the_model_is_described_as_it_was_exported(client, package):
    model = client.get_model("ranker")
    assert (model.name, model.version) == ("ranker", 1)
    assert [(item.name, item.kind, item.scope) for item in model.inputs] == [
        ("age", "dense", "request"),
        ("price", "dense", "example"),
        ("hour", "dense", "request"),
        ("likes", "dense", "example"),
        ("user", "sparse", "request"),
        ("item", "sparse", "example"),
        ("history", "sparse", "request"),
        ("query", "sparse", "request"),
        ("category", "sparse", "example"),
        ("tags", "sparse", "example"),
        ("topics", "sparse", "request"),
    ]
    assert [item.default for item in model.dense] == [None, None, 0.5, -1.25]
    assert [item.name for item in model.sparse if item.weighted] == ["tags", "topics"]
    assert {item.name: item.max_ids for item in model.sparse if item.max_ids} == {
        "history": 5,
        "category": 3,
        "topics": 4,
    }
    assert [(item.name, item.scope, item.shape) for item in model.outputs] == [
        ("score", "example", ()),
        ("parts", "example", (2,)),
        ("user_vector", "request", (6,)),
    ]
    assert (model.max_examples, model.max_ids) == (4096, 1 << 20)


def test_the_package_served_is_the_one_found(server, package):
    (served,) = server.packages
    assert (served.model, served.version, served.is_default) == ("ranker", 1, True)
    assert served.folder == package


def test_each_request_is_counted_once_by_its_outcome(repository):
    with serve(repository) as server, Client(server.address, timeout_seconds=60) as client:
        for count in (1, 4):
            client.predict(dense={"age": 1, "price": np.ones(count)})
        with pytest.raises(RequestError):
            client.predict(dense={"age": 1, "price": [1]}, sparse={"category": [[99]]})
        assert outcomes(server) == {"OK": 2, "INVALID_ARGUMENT": 1}
        assert server.metrics().total("embershard_examples") == 5


def test_many_threads_with_one_client(client, local):
    requests = [random_request(size, seed=size) for size in range(1, 9)]
    expected = [
        outputs_of(local.answers([named(request).SerializeToString()])[0])["score"]
        for request in requests
    ]

    def ask(number):
        item = requests[number % 8]
        answer = client.predict(
            dense=item.dense, sparse=item.sparse, weights=item.weights, request_id=str(number)
        )
        assert answer.request_id == str(number)
        return np.abs(answer["score"] - expected[number % 8]).max()

    with ThreadPoolExecutor(16) as threads:
        assert max(threads.map(ask, range(400))) <= 1e-6


def test_a_full_queue_refuses_at_once_and_says_when_to_try_again(repository):
    message = named(random_request(2048)).SerializeToString()
    overloaded = answered = 0
    with (
        serve(repository, max_queued_examples=2048) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        calls = [raw_predict(channel).future(message, timeout=60) for _ in range(60)]
        for call in calls:
            if call.code() is Code.OK:
                answered += 1
                continue
            overloaded += 1
            assert call.code() is Code.RESOURCE_EXHAUSTED
            words = r"the queue is full: \d+ examples are waiting; try again after a pause"
            assert re.fullmatch(words, call.details())
            assert dict(call.trailing_metadata())[PUSHBACK].isdigit()
        assert outcomes(server) == {"OK": answered, "RESOURCE_EXHAUSTED": overloaded}
    assert answered > 0
    assert overloaded > 0


def test_a_queue_shorter_than_a_batch_bounds_a_request(repository):
    with (
        serve(repository, max_queued_examples=10) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        assert client.get_model().max_examples == 10
        assert client.predict(dense={"age": 1, "price": np.ones(10)})["score"].shape == (10,)
        with pytest.raises(RequestError, match=r"num_examples: expected 1\.\.10, got 11"):
            client.predict(dense={"age": 1, "price": np.ones(11)})


@pytest.mark.parametrize("whose", ["the-clients", "the-servers-default"])
def test_a_deadline_that_passes_in_the_queue_is_told(repository, whose):
    default_timeout_ms, timeout_seconds = (60_000, 1e-3) if whose == "the-clients" else (1, None)
    large = named(random_request(4096)).SerializeToString()
    small = named(random_request(1)).SerializeToString()
    merging = {"max_batch_examples": 32_768, "merge_examples": 32_768}  # One long batch of all.
    expired = 0
    with (
        serve(repository, default_timeout_ms=default_timeout_ms, **merging) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        for _ in range(100):  # Until the server is seen at work for longer than 1 ms.
            patient = [raw_predict(channel).future(large, timeout=60) for _ in range(7)]
            late = [raw_predict(channel).future(small, timeout=timeout_seconds) for _ in range(4)]
            assert [call.code() for call in patient] == [Code.OK] * 7
            codes = {Code.OK, Code.DEADLINE_EXCEEDED, Code.RESOURCE_EXHAUSTED}  # Or foreseen.
            assert {call.code() for call in late} <= codes
            expired += sum(call.code() is Code.DEADLINE_EXCEEDED for call in late)
            if expired:
                break
        if whose != "the-clients":  # Whose own gRPC tells it, too.
            assert outcomes(server).get("DEADLINE_EXCEEDED", 0) == expired
    assert expired > 0


def test_the_client_rides_out_an_overload(repository):
    request = random_request(1024)
    with (
        serve(repository, max_queued_examples=1024) as server,
        Client(server.address, timeout_seconds=60, max_attempts=1000) as client,
        ThreadPoolExecutor(16) as threads,
    ):

        def ask(number):
            return client.predict(
                dense=request.dense, sparse=request.sparse, weights=request.weights
            )["score"].tobytes()

        assert len(set(threads.map(ask, range(160)))) == 1
        counted = outcomes(server)
    assert counted["OK"] == 160
    assert counted["RESOURCE_EXHAUSTED"] > 0


def test_timings_fit_into_the_whole(client):
    timing = client.predict(dense={"age": 1, "price": np.ones(1000)}).timing
    parts = timing.queue_us + timing.lookup_us + timing.dense_us
    assert timing.dense_us > 0
    assert parts <= timing.total_us + 3  # Each is rounded down.


def test_stopping_answers_what_was_accepted_and_refuses_the_rest(repository):
    message = named(random_request(1000)).SerializeToString()
    server = serve(repository)
    with grpc.insecure_channel(server.address) as channel:
        calls = [raw_predict(channel).future(message, timeout=60) for _ in range(30)]
        calls[0].result()
        answered, queued = (
            outcomes(server)["OK"],
            server.metrics().total("embershard_queued_requests"),
        )
        server.stop()
        codes = [call.code() for call in calls]
    assert server.metrics().total("embershard_queued_requests") == 0
    assert codes.count(Code.OK) == outcomes(server)["OK"] >= answered + queued
    assert set(codes) <= {Code.OK, Code.UNAVAILABLE, Code.CANCELLED}


def test_stopping_twice_is_stopping_once(repository):
    with serve(repository) as server:
        server.stop()
        server.stop()
    with (
        Client(server.address, timeout_seconds=0.5, max_attempts=1) as client,
        pytest.raises(RetryError),
    ):
        client.get_model()


FORGETFUL = """
import sys
from embershard.serving import Server, ServerOptions
server = Server(sys.argv[1], options=ServerOptions(port=0, threads=1))
print(server.address)
"""


def test_a_process_that_forgets_to_stop_ends_all_the_same(repository):
    ended = subprocess.run(
        [sys.executable, "-c", FORGETFUL, str(repository)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_ipv6_address_stands_in_brackets(repository):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with serve(repository, host="::1") as server:
        assert server.address.startswith("[::1]:")
        with Client(server.address, timeout_seconds=60) as client:
            assert client.get_model().name == "ranker"


def test_an_unknown_plan_is_refused_with_those_there_are(repository):
    with pytest.raises(NotFoundError, match="plan: expected one of default, 2xcpu, got '8xcuda'"):
        serve(repository, plan="8xcuda")


def test_a_damaged_package_is_refused_with_file_and_field(tmp_path):
    package = export_ranker(tmp_path)
    program = package / "programs" / "dense.pt"
    program.write_bytes(program.read_bytes()[:-1])
    for load in (lambda: serve(tmp_path), lambda: MessagePredictor(package)):
        with pytest.raises(PackageError, match=r"programs/dense\.pt: .*expected .*, got "):
            load()


@cases(
    ("folder", "message"),
    {
        "model": ("other/1", "model: expected other (its folder), got ranker"),
        "version": ("ranker/7", "version: expected 7 (its folder), got 1"),
    },
)
def test_a_package_copied_under_another_name_is_refused(package, tmp_path, folder, message):
    shutil.copytree(package, tmp_path / folder)
    with pytest.raises(PackageError, match=re.escape(f"manifest.json: {message}")):
        serve(tmp_path)


def test_a_package_whose_samples_give_other_scores_is_refused(package, tmp_path):
    changed = shutil.copytree(package, tmp_path / "ranker" / "1")
    samples = read_samples(changed / "samples.safetensors")
    samples[1].outputs["score"][2] += 0.25
    write_samples(changed / "samples.safetensors", samples)
    seal(changed, json.loads((changed / "manifest.json").read_text()))
    expected, got = samples[1].outputs["score"][2], samples[1].outputs["score"][2] - 0.25
    with pytest.raises(PackageError) as caught:
        MessagePredictor(changed)
    words, numbers = str(caught.value).split(": expected ")
    assert words == "samples.safetensors: sample 1: output 'score' at example 2"
    said = [float(text) for text in re.findall(r"0\.\d+|1\.\d+", numbers)[:2]]
    assert said == pytest.approx([expected, got], abs=1e-5)


def test_nothing_merged_is_nothing(local):
    assert local.answers([]) == []
