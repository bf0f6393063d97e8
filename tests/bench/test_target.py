"""Targets that may receive load, and the checks before it."""

import grpc
import pytest

from embershard._proto import predictor_pb2 as pb
from embershard.bench.load_options import PooledRequest
from embershard.bench.target import ask_model, find_target, try_requests
from embershard.client import Tls
from embershard.errors import (
    EmbershardError,
    InputError,
    NotFoundError,
    RequestError,
    UnavailableError,
)
from tests.bench.fake_predictor import fake_predictor
from tests.cases import cases

REQUEST = PooledRequest(b"", 1, 0)


@cases(
    ("address", "name"),
    {
        "v4": ("127.0.0.1:50051", "ipv4:127.0.0.1:50051"),
        "all-of-127": ("127.9.9.9:1", "ipv4:127.9.9.9:1"),
        "v6": ("[::1]:50051", "ipv6:[::1]:50051"),
    },
)
def test_loopback_is_a_target(address, name):
    target = find_target(address)
    assert target.name == name
    assert target.is_local


@pytest.mark.parametrize("address", ["192.0.2.1:80", "[2001:db8::1]:80", "0.0.0.0:80"])
def test_another_machine_takes_intent(address):
    with pytest.raises(InputError, match=r"expected a loopback address, got .*--allow-remote"):
        find_target(address)
    assert not find_target(address, allow_remote=True).is_local


@pytest.mark.parametrize("address", ["", "127.0.0.1", ":80", "127.0.0.1:", "h:0", "h:65536", "h:x"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(InputError, match="target: expected HOST:PORT"):
        find_target(address)


def test_a_host_that_does_not_resolve_is_named():
    with pytest.raises(UnavailableError, match=r"^target: 'fe80::1%none' does not resolve: "):
        find_target("[fe80::1%none]:80")  # A zone that this machine lacks: asked of no server.
    with pytest.raises(UnavailableError, match=r"^target: 'a\.\.b' does not resolve: "):
        find_target("a..b:80")


def test_a_certificate_must_name_the_address_unless_overridden():
    assert find_target("[::1]:1", tls=Tls()).tls == Tls(server_name="::1")
    named = Tls(server_name="ranker.example")
    assert find_target("[::1]:1", tls=named).tls == named


def test_the_model_is_what_the_server_says():
    with fake_predictor() as fake:
        model = ask_model(fake.target, "ranker", timeout_seconds=30)
    assert (model.name, model.version, model.fingerprint) == ("ranker", 7, 0xABC)
    assert [item.known_ids for item in model.sparse] == [1000, 500, 500, 8]


def test_unknown_ids_of_the_first_requests_are_added_up():
    def answer(number, context):
        return pb.PredictResponse(unknown_ids=[pb.UnknownIds(feature="item", count=number + 1)])

    with fake_predictor(answer) as fake:
        unknown = try_requests(fake.target, [REQUEST] * 3, timeout_seconds=30)
    assert unknown == {"item": 6}


@cases(
    ("code", "error"),
    {
        "invalid": (grpc.StatusCode.INVALID_ARGUMENT, RequestError),
        "stale": (grpc.StatusCode.FAILED_PRECONDITION, RequestError),
        "not-found": (grpc.StatusCode.NOT_FOUND, NotFoundError),
        "not-our-protocol": (grpc.StatusCode.UNIMPLEMENTED, EmbershardError),
    },
)
def test_refused_requests_end_the_bench_before_it_begins(code, error):
    with (
        fake_predictor(lambda number, context: context.abort(code, "id 9 is not known")) as fake,
        pytest.raises(error, match="id 9 is not known"),
    ):
        try_requests(fake.target, [REQUEST], timeout_seconds=30)


def test_an_overloaded_server_is_no_reason_not_to_begin():
    def answer(number, context):
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")

    with fake_predictor(answer) as fake:
        assert try_requests(fake.target, [REQUEST] * 2, timeout_seconds=30) == {}
        assert len(fake.requests) == 2
