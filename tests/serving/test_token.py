"""The token: every call but those for health has it; nobody else gets to read it."""

import json
import time

import grpc
import pytest

from embershard.client import Client
from embershard.errors import ConfigError, InputError, UnauthenticatedError
from embershard.serving import Server, ServerOptions
from tests.cases import cases
from tests.cli.running import run, serving
from tests.serving.asking import named, random_request
from tests.serving.certificates import replace
from tests.serving.counts import requests_by
from tests.serving.serve import serve

TOKEN = "one-token-of-a-test_0123456789"
OTHER = "another-token-of-a-test_012345"
REQUEST = {"dense": {"age": 1, "price": [1, 2]}}
NONE_CAME = "authorization: expected one header 'Bearer TOKEN', got none"
SEVERAL_CAME = "authorization: expected one header 'Bearer TOKEN', got several"
OTHER_CAME = "authorization: the token is not this server's"
END_SECONDS = 30


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture
def guarded(repository, token_file):
    with serve(repository, token_file=str(token_file)) as server:
        yield server


@pytest.fixture
def good(guarded):
    with Client(guarded.address, token=TOKEN, timeout_seconds=60) as client:
        yield client


def headers(value):
    return (("authorization", value),)


@cases(
    ("metadata", "words"),
    {
        "none": ((), NONE_CAME),
        "another": (headers(f"Bearer {OTHER}"), OTHER_CAME),
        "shorter": (headers(f"Bearer {TOKEN[:-1]}"), OTHER_CAME),
        "twice": (headers(f"Bearer {TOKEN}") * 2, SEVERAL_CAME),
    },
)
def test_every_call_without_it_is_refused_while_others_go_on(guarded, good, metadata, words):
    message = named(random_request(2)).SerializeToString()
    with grpc.insecure_channel(guarded.address) as channel:
        service = "/embershard.v1.Predictor"
        calls = [
            channel.unary_unary(f"{service}/Predict").future,
            channel.unary_unary(f"{service}/GetModel").future,
            lambda message, **how: channel.stream_stream(f"{service}/PredictStream")(
                iter([message]), **how
            ),
            channel.unary_unary("/no.such/Service").future,
        ]
        for call in calls:
            refused = call(message, metadata=metadata, timeout=60)
            assert refused.code() is grpc.StatusCode.UNAUTHENTICATED
            assert refused.details() == words
        good.predict("ranker", **REQUEST)
    counted = guarded.metrics()
    assert counted.total("embershard_unauthenticated_calls") == len(calls)
    assert requests_by(guarded, "code") == {
        ("OK",): 1
    }  # No model failed, and no request of it came.
    assert TOKEN not in str(list(counted))


def test_health_is_told_without_it(guarded):
    with grpc.insecure_channel(guarded.address) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"", timeout=60) == b"\x08\x01"  # SERVING
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=60)
        assert next(watch) == b"\x08\x01"
        watch.cancel()


def test_clients_say_whose_fault_it_is(guarded, good):
    good.predict("ranker", **REQUEST)
    with good.stream("ranker") as stream:
        assert stream.predict(**REQUEST).result()["score"].shape == (2,)
    with (
        Client(guarded.address, token=OTHER, timeout_seconds=60) as other,
        pytest.raises(UnauthenticatedError, match=OTHER_CAME),
    ):
        other.predict("ranker", **REQUEST)


def is_let_in(client):
    try:
        client.predict("ranker", **REQUEST)
    except UnauthenticatedError:
        return False
    return True


def test_tokens_change_hands_without_a_refused_call(guarded, good, token_file):
    with Client(guarded.address, token=OTHER, timeout_seconds=60) as renewed:
        replace(token_file, f"{TOKEN}\n\n {OTHER}\r\n".encode())
        deadline = time.monotonic() + END_SECONDS
        while not is_let_in(renewed):
            assert is_let_in(good)
            assert time.monotonic() < deadline
        assert is_let_in(good)
        replace(token_file, OTHER.encode())
        deadline = time.monotonic() + END_SECONDS
        while is_let_in(good):
            assert is_let_in(renewed)
            assert time.monotonic() < deadline


def test_a_file_that_cannot_be_used_leaves_the_token_as_it_was(guarded, good, token_file, caplog):
    good.predict("ranker", **REQUEST)
    replace(token_file, b"short secret")
    deadline = time.monotonic() + END_SECONDS
    while not caplog.records:
        good.predict("ranker", **REQUEST)
        assert time.monotonic() < deadline
    said = caplog.records[0].getMessage()
    assert said.endswith("; the tokens before it hold on")
    assert "secret" not in said


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1 to 8 tokens, one on each line, got 0"),
        ("short", "one token of 16 to 4096"),
        ("two words of sixteen", "one token of 16 to 4096"),
        ("x" * 4097, "one token of 16 to 4096"),
        ("sixteen-chars-ä-é", "one token of 16 to 4096"),
    ],
)
def test_a_file_without_a_token_is_refused_at_the_start(repository, token_file, text, expected):
    token_file.write_text(text)
    with pytest.raises(ConfigError, match=f"expected {expected}") as refused:
        serve(repository, token_file=str(token_file))
    assert not text.strip() or text not in str(refused.value)


def test_a_token_that_would_cross_a_network_openly_is_refused(repository, token_file):
    options = {"host": "0.0.0.0", "port": 0, "threads": 1, "token_file": str(token_file)}
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0 is not a loopback address.*without TLS"):
        Server(repository, options=ServerOptions(**options))
    with (
        Server(repository, options=ServerOptions(**options, token_without_tls=True)) as server,
        Client(f"127.0.0.1:{server.address.split(':')[1]}", token=TOKEN) as client,
    ):
        client.get_model(timeout_seconds=60)


def test_what_cannot_stand_in_a_header_is_no_token():
    with pytest.raises(InputError, match=r"^token: expected at most 4096 printable"):
        Client("127.0.0.1:1", token="a b")


def test_commands_send_it_and_nothing_that_they_write_holds_it(repository, token_file, tmp_path):
    recording, request = tmp_path / "calls", tmp_path / "request.json"
    request.write_text(json.dumps(REQUEST))
    flags = ["--threads", 1, "--record", recording, "--slow-ms", 0.001, "--log-json"]
    with serving(repository, *flags, "--token-file", token_file) as server:
        results = run("predict", server.address, request, "--token-file", token_file)
        assert results.returncode == 0, results.stderr
        refused = run("predict", server.address, request)
        assert refused.returncode == 1
        assert f"UnauthenticatedError: {NONE_CAME}" in refused.stderr
        sent = [
            "--id-range",
            "0..5",
            "--requests",
            20,
            "--duration",
            60,
            "--warmup",
            0,
            "--timeout",
            60,
            "--json",
            "-",
        ]
        bench = run("bench", "--target", server.address, *sent, "--token-file", token_file)
        assert bench.returncode == 0, bench.stderr
        streams = ["--streams", 1, "--token-file", token_file]
        on_streams = run("bench", "--target", server.address, *sent, *streams)
        assert json.loads(on_streams.stdout)["by_code"] == {"OK": 20}
        _, out, errors = server.stop(15)
    said = [results.stdout, bench.stdout, bench.stderr, refused.stderr, out, errors]
    assert "slow" in errors
    assert TOKEN not in "".join(said)
    assert TOKEN.encode() not in recording.read_bytes()
