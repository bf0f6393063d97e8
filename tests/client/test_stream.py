"""Streams against a server of a script, as futures and with asyncio."""

import asyncio
import threading
from concurrent.futures import Future

import grpc
import pytest

from embershard._proto import predictor_pb2 as pb
from embershard.client import AsyncClient, Client, core
from embershard.errors import (
    DeadlineError,
    InputError,
    OverloadedError,
    RequestError,
    UnavailableError,
)
from tests.client.fake_server import describes, fake_server, silent

INPUTS = {"dense": {"price": [1.0]}, "sparse": {"item": [[3]]}}


def outcome(future: Future) -> object:
    return future.exception(timeout=30) or future.result()


def with_futures(address, wanted, *, timeout_seconds=30, in_flight=8, in_turn=True):
    """Outcome of each request: a prediction or an error. ``in_turn`` has no effect here."""
    results = []
    with Client(address, timeout_seconds=timeout_seconds) as client:
        with client.stream("ranker", in_flight=in_flight) as stream:
            for request in wanted:
                try:
                    results.append(stream.predict(**{**INPUTS, **request}))
                except Exception as error:
                    results.append(error)
        return [outcome(result) if isinstance(result, Future) else result for result in results]


def with_asyncio(address, wanted, *, timeout_seconds=30, in_flight=8, in_turn=False):
    async def ask():
        async with (
            AsyncClient(address, timeout_seconds=timeout_seconds) as client,
            client.stream("ranker", in_flight=in_flight) as stream,
        ):
            if in_turn:
                return [
                    await outcome_of(stream.predict(**{**INPUTS, **request})) for request in wanted
                ]
            requests = [stream.predict(**{**INPUTS, **request}) for request in wanted]
            return await asyncio.gather(*requests, return_exceptions=True)

    async def outcome_of(request):
        return (await asyncio.gather(request, return_exceptions=True))[0]

    return asyncio.run(ask())


ask = pytest.mark.parametrize("ask", [with_futures, with_asyncio])


@ask
def test_answers_in_any_order_match_and_strange_ones_are_skipped(ask):
    def backwards(requests, context):
        read = [next(requests) for _ in range(3)]
        yield pb.PredictResponse(request_id="nobody's")
        for version, request in enumerate(reversed(read), start=1):
            yield pb.PredictResponse(request_id=request.request_id, version=version)
            yield pb.PredictResponse(request_id=request.request_id, version=99)

    with fake_server(stream=backwards) as fake:
        answers = ask(fake.address, [{"request_id": name} for name in ("a", "b", "a")])
    assert [(result.request_id, result.version) for result in answers] == [
        ("a", 3),
        ("b", 2),
        ("a", 1),
    ]


@ask
def test_equal_ids_of_the_caller_go_out_under_different_ids(ask):
    seen = []

    def echo(requests, context):
        for request in requests:
            seen.append(request)
            yield pb.PredictResponse(request_id=request.request_id)

    with fake_server(stream=echo) as fake:
        ask(fake.address, [{"request_id": "x"}, {"request_id": "x", "timeout_seconds": 5}])
    assert len({call.request_id for call in seen}) == 2
    assert 0 < seen[1].timeout_ms <= 5_000 < seen[0].timeout_ms <= 30_000


@ask
def test_a_failure_is_its_requests_alone(ask):
    def refuse_second(requests, context):
        for number, request in enumerate(requests):
            answer = pb.PredictResponse(request_id=request.request_id)
            if number == 1:
                answer.failure.code, answer.failure.message = 8, "the queue is full"
            yield answer

    with fake_server(stream=refuse_second) as fake:
        first, second, third = ask(fake.address, [{}, {}, {}])
    assert type(second) is OverloadedError
    assert str(second) == "the queue is full"
    assert first.request_id == third.request_id == ""


@ask
def test_a_request_without_an_answer_ends_at_its_deadline(ask):
    with fake_server(stream=silent) as fake:
        answers = ask(fake.address, [{}, {}], timeout_seconds=0.3)
    assert [type(result) for result in answers] == [DeadlineError, DeadlineError]


@ask
def test_a_request_without_room_in_flight_waits_to_its_deadline(ask):
    seen = []

    def silent_but_counting(requests, context):
        return silent((seen.append(request) or request for request in requests), context)

    with fake_server(stream=silent_but_counting) as fake:
        answers = ask(
            fake.address, [{}, {}, {"timeout_seconds": 0.2}], timeout_seconds=3, in_flight=2
        )
    assert [type(result) for result in answers] == [DeadlineError] * 3
    assert len(seen) == 2


@ask
def test_open_requests_fail_with_the_error_that_ended_the_stream(ask):
    def end(requests, context):
        next(requests)
        yield from ()
        context.abort(grpc.StatusCode.UNAVAILABLE, "the server is shutting down")

    with fake_server(stream=end) as fake:
        (result,) = ask(fake.address, [{}])
    assert type(result) is UnavailableError
    assert "the server is shutting down" in str(result)


@ask
def test_a_refusal_has_the_pause_that_the_server_states(ask):
    def refuse(requests, context):
        for request, pushback_ms in zip(requests, (1250, 0), strict=False):
            answer = pb.PredictResponse(request_id=request.request_id)
            answer.failure.code = grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
            answer.failure.message = "the queue is full"
            answer.failure.retry_pushback_ms = pushback_ms
            yield answer

    with fake_server(stream=refuse) as fake:
        answers = ask(fake.address, [{}, {}])
    assert [type(result) for result in answers] == [OverloadedError] * 2
    assert [result.retry_after_seconds for result in answers] == [1.25, None]


def test_the_threads_of_a_stream_end_with_it_also_if_unclosed():
    def end(requests, context):
        next(requests)
        yield from ()

    before = set(threading.enumerate())
    with fake_server(stream=end) as fake, Client(fake.address, timeout_seconds=30) as client:
        stream = client.stream("ranker")
        own = [item for item in set(threading.enumerate()) - before if "embershard" in item.name]
        assert {item.name for item in own} == {"embershard-stream", "embershard-watch"}
        assert type(outcome(stream.predict(**INPUTS))) is UnavailableError
        for thread in own:
            thread.join(timeout=30)
        assert not any(item.is_alive() for item in own)


@ask
def test_after_a_stale_schema_the_next_request_asks_for_it(ask):
    def stale(requests, context):
        for request in requests:
            answer = pb.PredictResponse(request_id=request.request_id)
            if request.packed.schema == 1:
                answer.failure.code, answer.failure.message = 9, "stale"
            yield answer

    script = [describes(1), describes(2)]
    with fake_server(stream=stale, get_model=script) as fake:
        (first,) = ask(fake.address, [{}])
        assert type(first) is UnavailableError  # The same request may be sent again.
        assert str(first).endswith("the model was replaced; send the request again (stale)")

        async def twice():
            async with (
                AsyncClient(fake.address, timeout_seconds=30) as client,
                client.stream("ranker") as stream,
            ):
                return await stream.predict(**INPUTS)

        assert asyncio.run(twice()).request_id == ""


def echo_schemas(requests, context):
    for request in requests:
        yield pb.PredictResponse(request_id=request.request_id, version=request.packed.schema)


def describes_age(context):
    """Describes `describes(2)` with one more dense input."""
    message = describes(2)(context)
    message.inputs.insert(1, message.inputs[0])
    message.inputs[1].name = "age"
    return message


WITH_AGE = {"dense": {"price": [1.0], "age": [2.0]}}


@ask
def test_an_open_stream_asks_again_for_a_schema_that_refuses(ask):
    """The server moves to a version with one more input."""
    with fake_server(stream=echo_schemas, get_model=[describes(1), describes_age]) as fake:
        answers = ask(fake.address, [{}, WITH_AGE, WITH_AGE], in_turn=True)
    assert [getattr(result, "version", result) for result in answers] == [1, 2, 2]
    assert len(fake.get_model_calls) == 2


@ask
def test_wrong_requests_ask_for_the_schema_once_a_second(ask, monkeypatch):
    monkeypatch.setattr(core, "UNCHANGED_SECONDS", 3600)  # Whatever the test takes.
    with fake_server(stream=echo_schemas) as fake:
        answers = ask(fake.address, [{}, *[WITH_AGE] * 5], in_turn=True)
        assert [type(result) for result in answers[1:]] == [RequestError] * 5
        assert len(fake.get_model_calls) == 2
        monkeypatch.setattr(core, "UNCHANGED_SECONDS", 0)
        ask(fake.address, [{}, *[WITH_AGE] * 5], in_turn=True)
        assert len(fake.get_model_calls) == 2 + 6


def test_wrong_calls_ask_for_the_schema_once_a_second(monkeypatch):
    monkeypatch.setattr(core, "UNCHANGED_SECONDS", 3600)  # Whatever the test takes.
    with fake_server() as fake, Client(fake.address, timeout_seconds=30) as client:
        client.predict("ranker", **INPUTS)
        for _ in range(5):
            with pytest.raises(RequestError, match="age"):
                client.predict("ranker", **{**INPUTS, **WITH_AGE})
    assert len(fake.get_model_calls) == 2


@ask
def test_a_message_that_would_end_the_stream_is_refused(ask):
    with fake_server(get_model=[describes(max_message_bytes=80)]) as fake:
        (result,) = ask(fake.address, [{"request_id": "x" * 100}])
    assert type(result) is RequestError
    assert str(result).startswith("request: expected at most 80 bytes, got ")


@pytest.mark.parametrize("in_flight", [0, -1, 1.5, True])
def test_room_for_no_request_is_refused(in_flight):
    with (
        fake_server() as fake,
        Client(fake.address) as client,
        pytest.raises(InputError, match=r"^in_flight: expected at least 1, got "),
    ):
        client.stream("ranker", in_flight=in_flight)


def test_an_asyncio_stream_closes_after_its_last_answer():
    sent = threading.Event()

    def answers_at_the_end(requests, context):
        read = []
        for request in requests:
            read.append(request)
            sent.set()
        for request in read:
            yield pb.PredictResponse(request_id=request.request_id, version=7)

    async def ask(address):
        async with AsyncClient(address, timeout_seconds=30) as client:
            async with client.stream("ranker") as stream:
                task = asyncio.create_task(stream.predict(**INPUTS))
                await asyncio.to_thread(sent.wait, 30)
            assert (await task).version == 7
            with pytest.raises(InputError, match=r"expected an open stream$"):
                await stream.predict(**INPUTS)

    with fake_server(stream=answers_at_the_end) as fake:
        asyncio.run(ask(fake.address))
