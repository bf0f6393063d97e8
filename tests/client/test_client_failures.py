"""The client's handling of failures: it tries again, gives up at the deadline, and says why."""

import asyncio
import threading
import traceback
from contextlib import ExitStack
from types import SimpleNamespace

import grpc
import numpy as np
import pytest

from embershard.client import AsyncClient, Client, Lists
from embershard.client import core as core_module
from embershard.client import status as status_module
from embershard.client.async_client import AsyncCore
from embershard.client.client import BlockingCore
from embershard.errors import (
    DeadlineError,
    InputError,
    InternalError,
    NotFoundError,
    OverloadedError,
    RequestError,
    RetryError,
    UnavailableError,
)
from tests.cases import cases
from tests.client.fake_server import INPUTS, ask, describes, fails, fake_server, gives, scores

Code = grpc.StatusCode
FOR_EVER = 3600


@pytest.fixture
def pauses(monkeypatch):
    """Pauses between attempts are written down in place of being waited for."""
    waited = []

    async def pause(_, seconds):
        waited.append(seconds)

    monkeypatch.setattr(BlockingCore, "pause", pause)
    return waited


def set_clock(monkeypatch, monotonic):
    for module in (core_module, status_module):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=monotonic))


def test_unavailable_is_tried_again(pauses):
    gone = fails(Code.UNAVAILABLE)
    with fake_server(get_model=[gone, describes()], predict=[gone, gone, scores(1.0)]) as fake:
        assert ask(fake)["score"].tolist() == [1.0]
    assert (len(fake.get_model_calls), len(fake.predict_calls)) == (2, 3)
    assert pauses == [0.05, 0.05, 0.1]


def test_a_server_of_another_protocol_is_an_error_that_says_so():
    with (
        fake_server(get_model=[fails(Code.UNIMPLEMENTED, "no such method")]) as fake,
        pytest.raises(RequestError, match=r"embershard's protocol, got .* \(no such method\)$"),
    ):
        ask(fake)
    assert fake.predict_calls == []


def test_unavailable_for_ever_is_an_error_after_the_last_attempt(pauses):
    with (
        fake_server(predict=[fails(Code.UNAVAILABLE, "closing")]) as fake,
        pytest.raises(UnavailableError, match=r"127.0.0.1:[0-9]+: UNAVAILABLE: closing"),
    ):
        ask(fake, max_attempts=3)
    assert (len(fake.predict_calls), len(pauses)) == (3, 2)


def test_overload_is_retried_if_the_server_states_a_pause(pauses):
    full = fails(Code.RESOURCE_EXHAUSTED, "full", pushback_ms="30")
    with fake_server(predict=[full, scores(1.0)]) as fake:
        assert ask(fake)["score"].tolist() == [1.0]
    assert pauses == [0.03]


def test_overload_is_an_error_at_once_without_a_stated_pause(pauses):
    with (
        fake_server(predict=[fails(Code.RESOURCE_EXHAUSTED, "full")]) as fake,
        pytest.raises(OverloadedError) as raised,
    ):
        ask(fake)
    assert (len(fake.predict_calls), pauses) == (1, [])
    assert raised.value.retry_after_seconds is None


def test_overload_says_after_how_long_it_is_worth_another_try():
    full = fails(Code.RESOURCE_EXHAUSTED, "full", pushback_ms="30")
    with fake_server(predict=[full]) as fake, pytest.raises(OverloadedError) as raised:
        ask(fake, max_attempts=1)
    assert raised.value.retry_after_seconds == 0.03


def test_a_message_over_the_servers_limit_is_the_requests_fault(pauses):
    too_large = fails(Code.RESOURCE_EXHAUSTED, "Received message larger than max")
    with (
        fake_server(get_model=[describes(max_message_bytes=10)], predict=[too_large]) as fake,
        pytest.raises(RequestError, match=r"request: expected at most 10 bytes, got [0-9]+"),
    ):
        ask(fake)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (Code.INVALID_ARGUMENT, RequestError),
        (Code.OUT_OF_RANGE, RequestError),
        (Code.NOT_FOUND, NotFoundError),
        (Code.DEADLINE_EXCEEDED, DeadlineError),
        (Code.CANCELLED, UnavailableError),
        (Code.INTERNAL, InternalError),
        (Code.UNKNOWN, InternalError),
        (Code.UNIMPLEMENTED, RequestError),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, Code) else "",
)
def test_status_codes_become_errors_with_the_servers_words(code, kind, pauses):
    with fake_server(predict=[fails(code, "in its words")]) as fake, pytest.raises(kind) as caught:
        ask(fake)
    assert type(caught.value) is kind
    assert "in its words" in str(caught.value)
    assert (len(fake.predict_calls), pauses) == (1, [])


def test_the_deadline_is_one_for_all_attempts(monkeypatch):
    now = [100.0]

    async def pause(_, seconds):
        now[0] += seconds + 700  # The attempt before took 700 s.

    set_clock(monkeypatch, lambda: now[0])
    monkeypatch.setattr(BlockingCore, "pause", pause)
    with (
        fake_server(predict=[fails(Code.UNAVAILABLE)]) as fake,
        pytest.raises(RetryError),
    ):
        ask(fake, timeout_seconds=1500, max_attempts=9)
    # GetModel; then Predict with 1500, 800 and 100 s left, of which a fourth attempt has none.
    allowed = [1500, 1500, 1500 - 700.05, 1500 - 700.05 - 700.1]
    assert fake.timeouts == pytest.approx(allowed, abs=50)


def test_an_attempt_behind_the_deadline_is_not_sent(monkeypatch):
    times = iter([0.0, 0.0, 0.0])
    set_clock(monkeypatch, lambda: next(times, 99.0))
    with (
        fake_server() as fake,
        Client(fake.address) as client,
        pytest.raises(DeadlineError, match="the deadline passed before the request was sent"),
    ):
        client.predict("ranker", **INPUTS, timeout_seconds=30)
    assert (len(fake.get_model_calls), len(fake.predict_calls)) == (1, 0)


def test_a_server_that_answers_too_late_is_a_deadline_error():
    released = threading.Event()

    def late(context):
        released.wait(FOR_EVER)
        return describes()(context)

    with fake_server(get_model=[late]) as fake:
        try:
            with Client(fake.address) as client, pytest.raises(DeadlineError) as caught:
                client.get_model(timeout_seconds=0.05)
        finally:
            released.set()
    assert str(caught.value) == f"{fake.address}: no answer before the deadline (50.0 ms)"


def test_the_servers_words_on_a_deadline_get_address_and_time():
    late = fails(Code.DEADLINE_EXCEEDED, "in its words")
    with fake_server(predict=[late]) as fake, pytest.raises(DeadlineError) as caught:
        ask(fake, timeout_seconds=30)
    assert str(caught.value) == f"{fake.address}: in its words (30.0 s)"


def test_a_missing_server_is_unavailable_by_its_address(pauses):
    with fake_server() as fake:
        address = fake.address
    with (
        Client(address, timeout_seconds=30) as client,
        pytest.raises(UnavailableError, match=address),
    ):
        client.predict("ranker", **INPUTS)


def test_a_server_that_comes_back_is_found_by_a_retry(monkeypatch):
    with fake_server() as fake:
        port = int(fake.address.rpartition(":")[2])
        client = Client(fake.address, timeout_seconds=30, max_attempts=100)
        client.predict("ranker", **INPUTS)
    with client, ExitStack() as later:
        back = []

        pause_for = BlockingCore.pause

        async def pause(client, seconds):  # The first pause is when the next server starts.
            if not back:
                back.append(later.enter_context(fake_server(port=port)))
            await pause_for(client, seconds)

        monkeypatch.setattr(BlockingCore, "pause", pause)
        assert client.predict("ranker", **INPUTS)["score"].tolist() == [0.5]
        assert len(back[0].predict_calls) == 1


def test_closing_ends_a_pause_between_attempts(monkeypatch):
    refusal = fails(Code.RESOURCE_EXHAUSTED, pushback_ms=str(1000 * FOR_EVER))
    pausing, caught, pause_for = threading.Event(), [], BlockingCore.pause

    async def pause(client, seconds):
        pausing.set()
        await pause_for(client, seconds)

    monkeypatch.setattr(BlockingCore, "pause", pause)

    def call(client):
        try:
            client.predict("ranker", **INPUTS, timeout_seconds=2 * FOR_EVER)
        except UnavailableError as error:
            caught.append(str(error))

    with fake_server(predict=[refusal]) as fake, Client(fake.address) as client:
        caller = threading.Thread(target=call, args=(client,))
        caller.start()
        assert pausing.wait(60)
        client.close()
        caller.join(60)
        assert not caller.is_alive()
    assert caught == [f"{fake.address}: the client was closed"]


@cases(("call", "requests"), {"predict": ("predict", 1), "first-requests": ("get_model", 3)})
def test_closing_ends_a_pause_of_the_asyncio_client(monkeypatch, call, requests):
    refusal = fails(Code.RESOURCE_EXHAUSTED, pushback_ms=str(1000 * FOR_EVER))
    pause_for = AsyncCore.pause

    async def ask(address):
        pausing = asyncio.Event()

        async def pause(client, seconds):
            pausing.set()
            await pause_for(client, seconds)

        monkeypatch.setattr(AsyncCore, "pause", pause)
        client = AsyncClient(address, timeout_seconds=2 * FOR_EVER)
        tasks = [asyncio.create_task(client.predict("ranker", **INPUTS)) for _ in range(requests)]
        async with asyncio.timeout(60):
            await pausing.wait()
            await client.close()
            return await asyncio.gather(*tasks, return_exceptions=True)

    with fake_server(**{call: [refusal]}) as fake:
        ended = asyncio.run(ask(fake.address))
        said = f"{fake.address}: the client was closed"
        assert [(type(error), str(error)) for error in ended] == [
            (UnavailableError, said)
        ] * requests


def test_closing_ends_a_request_whose_schema_has_just_come(monkeypatch):
    learn = AsyncCore.learn

    async def learn_and_close(core, *arguments):
        schema = await learn(core, *arguments)
        core.closed.set()
        return schema

    monkeypatch.setattr(AsyncCore, "learn", learn_and_close)

    async def ask(address):
        async with AsyncClient(address, timeout_seconds=FOR_EVER) as client:
            await client.predict("ranker", **INPUTS)

    with fake_server() as fake, pytest.raises(UnavailableError, match="the client was closed"):
        asyncio.run(ask(fake.address))


def test_the_asyncio_client_tries_again_after_a_pause():
    async def ask(address):
        async with AsyncClient(address, timeout_seconds=30) as client:
            return await client.predict("ranker", **INPUTS)

    with fake_server(predict=[fails(Code.UNAVAILABLE), scores(1.0)]) as fake:
        assert asyncio.run(ask(fake.address))["score"].tolist() == [1.0]
        assert len(fake.predict_calls) == 2


def test_a_closed_asyncio_client_takes_no_request():
    async def ask():
        client = AsyncClient("127.0.0.1:1")
        await client.close()
        await client.predict("ranker", **INPUTS)

    with pytest.raises(InputError, match=r"^127\.0\.0\.1:1: expected an open client, got a closed"):
        asyncio.run(ask())


def test_a_failed_call_is_one_sentence_and_keeps_grpcs_error():
    with fake_server(predict=[fails(Code.NOT_FOUND, "no model")]) as fake:
        with pytest.raises(NotFoundError) as caught:
            ask(fake)
        with Client("127.0.0.1:1", max_attempts=1) as c, pytest.raises(RetryError) as not_there:
            c.get_model(timeout_seconds=30)
    for error, code in ((caught.value, Code.NOT_FOUND), (not_there.value, Code.UNAVAILABLE)):
        assert "_InactiveRpcError" not in "".join(traceback.format_exception(error))
        assert error.__context__.code() is code


@cases(
    "items",
    {
        "lists": [["u-1"], ["u-2"]],
        "strings": ["u-1", "u-2"],
        "array": np.array([["u-1"], ["u-2"]]),
        "flat": Lists([1, 1], ["u-1", "u-2"]),
    },
)
def test_a_refused_id_is_told_as_the_string_that_was_given(items):
    for number in (0xC3FF147B029B00DD, 0xC3FF147B029B00DD - (1 << 64)):  # XXH3-64 of "u-2".
        words = f"feature 'item': id {number} at example 1, position 0 is not in the vocabulary"
        with (
            fake_server(predict=[fails(Code.INVALID_ARGUMENT, words)]) as fake,
            Client(fake.address, timeout_seconds=30) as client,
            pytest.raises(RequestError) as caught,
        ):
            client.predict("ranker", dense={"price": [1, 2]}, sparse={"item": items})
        assert str(caught.value) == f"{words}; it stands for the string 'u-2'"


def test_a_refused_number_is_told_as_it_is():
    words = "feature 'item': id 4 at example 1, position 0 is not in 0..3"
    with (
        fake_server(predict=[fails(Code.INVALID_ARGUMENT, words)]) as fake,
        pytest.raises(RequestError) as caught,
    ):
        ask(fake)
    assert str(caught.value) == words


def test_at_least_one_attempt_is_made():
    with pytest.raises(InputError, match="max_attempts: expected at least 1, got 0"):
        Client("127.0.0.1:1", max_attempts=0)


def test_an_output_that_does_not_fill_its_shape_is_a_bug():
    message = scores(0.5)(None)
    message.outputs[0].shape[:] = [3]
    with (
        fake_server(predict=[gives(message)]) as fake,
        pytest.raises(InternalError, match=r"output 'score': expected 12 bytes .* got 4"),
    ):
        ask(fake)
