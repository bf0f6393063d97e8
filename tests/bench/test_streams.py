"""The load tool's counts if streams misbehave."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest

from embershard._proto import predictor_pb2 as pb
from embershard.bench import LoadOptions, run_load
from embershard.bench.load_options import PooledRequest
from embershard.bench.target import Target, find_target

Handler = Callable[
    [Iterator[pb.PredictRequest], grpc.ServicerContext], Iterator[pb.PredictResponse]
]

REQUEST = pb.PredictRequest(model="m", request_id="the caller's", num_examples=3)
POOL = [PooledRequest(REQUEST.SerializeToString(), 3, 0)]


@contextmanager
def streaming(handler: Handler) -> Iterator[Target]:
    with ThreadPoolExecutor(max_workers=8) as threads:
        server = grpc.server(threads)
        method = grpc.stream_stream_rpc_method_handler(
            handler,
            request_deserializer=pb.PredictRequest.FromString,
            response_serializer=pb.PredictResponse.SerializeToString,
        )
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    "embershard.v1.Predictor", {"PredictStream": method}
                ),
            )
        )
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield find_target(f"127.0.0.1:{port}")
        finally:
            server.stop(None).wait()


def load(**options) -> LoadOptions:
    return LoadOptions(
        **{
            "in_flight": 4,
            "streams": 2,
            "max_requests": 40,
            "warmup_seconds": 0,
            "duration_seconds": 60,
            "timeout_seconds": 30,
            **options,
        }
    )


def test_requests_are_sent_with_their_own_ids_and_timeouts():
    seen = []

    def echo(requests, context):
        for request in requests:
            seen.append(request)
            yield pb.PredictResponse(request_id=request.request_id)

    with streaming(echo) as target:
        result = run_load(target, POOL, load())
    assert result.by_code == {"OK": 40}
    assert result.examples_ok == 120
    assert {(call.model, call.num_examples) for call in seen} == {("m", 3)}
    assert len({call.request_id for call in seen}) == len(seen)
    assert all(0 < call.timeout_ms <= 30_000 for call in seen)


def test_answers_in_any_order_match_and_strange_ones_are_skipped():
    def backwards(requests, context):
        yield pb.PredictResponse(request_id="nobody's")
        for first in requests:
            second = next(requests)
            for request in (second, first, second):
                yield pb.PredictResponse(request_id=request.request_id)

    with streaming(backwards) as target:
        result = run_load(target, POOL, load(in_flight=2, streams=1))
    assert result.by_code == {"OK": 40}


def test_failures_count_by_code_and_keep_the_first_message():
    def fail(requests, context):
        for request in requests:
            failure = pb.Failure(code=8, message="full", retry_pushback_ms=20)
            yield pb.PredictResponse(request_id=request.request_id, failure=failure)

    with streaming(fail) as target:
        result = run_load(target, POOL, load())
    assert result.by_code == {"RESOURCE_EXHAUSTED": 40}
    assert result.messages == {"RESOURCE_EXHAUSTED": "full"}
    assert result.examples_ok == 0


@pytest.mark.parametrize("code", ["UNAVAILABLE", "INTERNAL"])
def test_an_ended_stream_fails_its_requests_and_is_reopened(code):
    opened = []

    def answer_once(requests, context):
        opened.append(1)
        yield pb.PredictResponse(request_id=next(requests).request_id)
        context.abort(grpc.StatusCode[code], "as planned")

    with streaming(answer_once) as target:
        result = run_load(target, POOL, load())
    assert result.requests == 40
    assert set(result.by_code) <= {"OK", code}
    assert result.messages.get(code) == "as planned"
    assert 0 < result.by_code["OK"] <= len(opened)


def test_requests_without_an_answer_end_at_their_deadline():
    def read_all(requests, context):
        yield from ()
        for _ in requests:
            pass

    with streaming(read_all) as target:
        result = run_load(target, POOL, load(max_requests=8, timeout_seconds=0.2))
    assert result.by_code == {"DEADLINE_EXCEEDED": 8}
