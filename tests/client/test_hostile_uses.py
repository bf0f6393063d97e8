"""Clients and streams used as they should not be, and servers that answer as they should not."""

import asyncio
import logging
import multiprocessing
import threading
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest

from embershard._proto import predictor_pb2 as pb
from embershard.client import AsyncClient, Client, Lists
from embershard.errors import (
    DeadlineError,
    InputError,
    InternalError,
    RequestError,
    UnavailableError,
)
from tests.client.fake_server import fake_server, gives

INPUTS = {"dense": {"price": [1.0]}, "sparse": {"item": [[3]]}}
WAIT_SECONDS = 30


def echo(requests, context):
    for request in requests:
        yield pb.PredictResponse(request_id=request.request_id)


def reads_nothing(requests, context):
    left = threading.Event()
    context.add_callback(left.set)
    left.wait(WAIT_SECONDS)
    yield from ()


def of_no_shape(request_id=""):
    answer = pb.PredictResponse(request_id=request_id)
    answer.outputs.add(name="score", values=bytes(4), shape=[-1, -1])
    return answer


def answers_of_no_shape(requests, context):
    for request in requests:
        yield of_no_shape(request.request_id)


def test_a_callback_that_raises_a_base_exception_ends_no_stream(caplog):
    def leaves(future):
        raise SystemExit(3)

    with (
        fake_server(stream=echo) as fake,
        Client(fake.address, timeout_seconds=30) as client,
        caplog.at_level(logging.ERROR),
        client.stream("ranker") as stream,
    ):
        for _ in range(3):
            answer = stream.predict(**INPUTS)
            answer.add_done_callback(leaves)
        assert stream.predict(**INPUTS).result(WAIT_SECONDS).request_id == ""


def test_a_callback_may_cancel_its_stream():
    told = []

    def cancels(future):
        try:
            stream.cancel()
        except Exception as error:
            told.append(error)

    answering = threading.Event()

    def one_later(requests, context):
        request = next(requests)
        answering.wait(WAIT_SECONDS)
        yield pb.PredictResponse(request_id=request.request_id)
        yield from reads_nothing(requests, context)

    with fake_server(stream=one_later) as fake, Client(fake.address, timeout_seconds=30) as client:
        stream = client.stream("ranker")
        first, second = stream.predict(**INPUTS), stream.predict(**INPUTS)
        first.add_done_callback(cancels)
        answering.set()
        assert isinstance(second.exception(WAIT_SECONDS), UnavailableError)
    assert told == []


def test_an_answer_of_no_shape_fails_its_request_alone():
    with fake_server(stream=answers_of_no_shape, predict=[gives(of_no_shape())]) as fake:
        with Client(fake.address, timeout_seconds=30) as client:
            with pytest.raises(InternalError, match=r"got shape \(-1, -1\)"):
                client.predict("ranker", **INPUTS)
            with client.stream("ranker") as stream:
                for _ in range(2):
                    told = stream.predict(**INPUTS).exception(WAIT_SECONDS)
                    assert isinstance(told, InternalError)

        async def ask():
            async with (
                AsyncClient(fake.address, timeout_seconds=30) as client,
                client.stream("ranker") as stream,
            ):
                predictions = [stream.predict(**INPUTS) for _ in range(2)]
                return await asyncio.gather(*predictions, return_exceptions=True)

        assert all(isinstance(result, InternalError) for result in asyncio.run(ask()))


def test_requests_for_a_server_that_reads_nothing_do_not_pile_up():
    large = {
        "dense": {"price": np.ones(90, np.float32)},
        "sparse": {"item": np.ones((90, 100), np.int64)},
    }
    with fake_server(stream=reads_nothing) as fake, Client(fake.address) as client:
        client.get_model("ranker", timeout_seconds=30)
        stream = client.stream("ranker", in_flight=4)
        late = 0
        while late < 8:
            try:
                answer = stream.predict(**large, timeout_seconds=0.02)
            except DeadlineError as error:
                if "passed before the request was sent" in str(error):
                    continue  # It had not waited for room yet.
                late += 1
                assert stream._requests.qsize() == 4
            else:
                assert isinstance(answer.exception(WAIT_SECONDS), DeadlineError)
        stream.cancel()


def test_what_nobody_waits_for_any_more_is_not_sent():
    begun, seen = threading.Event(), []

    def late_reader(requests, context):
        begun.wait(WAIT_SECONDS)
        for request in requests:
            seen.append(request)
            yield pb.PredictResponse(request_id=request.request_id)

    with fake_server(stream=late_reader) as fake, Client(fake.address) as client:
        client.get_model("ranker", timeout_seconds=30)
        with client.stream("ranker") as stream:
            # Ahead of gRPC's thread, as one that finds no room on the wire is.
            stream._requests.put(pb.PredictRequest(request_id="nobody's"))
            answer = stream.predict(**INPUTS, timeout_seconds=30)
            begun.set()
            answer.result(WAIT_SECONDS)
    assert [call.request_id for call in seen] == ["0/"]


def one_call(client):
    client.predict("ranker", **INPUTS)


def one_stream(client):
    with client.stream("ranker") as stream:
        stream.predict(**INPUTS).result(WAIT_SECONDS)


def use_until_it_fails(use, client, told):
    try:
        while True:
            use(client)
    except Exception as error:
        told.append(error)


def test_a_client_closed_under_way_says_so_to_every_thread():
    """Either how calls under way end, or that the client is closed: never gRPC's own words."""
    with fake_server(stream=echo) as fake:
        for _ in range(10):
            client = Client(fake.address, timeout_seconds=30)
            client.predict("ranker", **INPUTS)
            told = []
            threads = [
                threading.Thread(target=use_until_it_fails, args=(use, client, told))
                for use in (one_call, one_stream, one_call, one_stream)
            ]
            for thread in threads:
                thread.start()
            client.predict("ranker", **INPUTS)
            client.close()
            for thread in threads:
                thread.join(WAIT_SECONDS)
            assert len(told) == len(threads)
            assert {type(error) for error in told} <= {InputError, UnavailableError}, told


def test_a_closed_asyncio_client_cancels_no_one():
    held, left = threading.Event(), threading.Event()

    def holds(context):
        context.add_callback(left.set)
        held.set()
        left.wait(WAIT_SECONDS)
        return pb.PredictResponse()

    async def ask(address):
        client = AsyncClient(address, timeout_seconds=30)
        await client.get_model("ranker")
        task = asyncio.create_task(client.predict("ranker", **INPUTS))
        await asyncio.to_thread(held.wait, WAIT_SECONDS)
        await client.close()
        with pytest.raises(UnavailableError, match="the client was closed"):
            await task

    with fake_server(predict=[holds]) as fake:
        asyncio.run(ask(fake.address))


def test_a_cancelled_task_is_cancelled_and_its_stream_goes_on():
    async def ask(address):
        async with AsyncClient(address, timeout_seconds=30) as client:
            async with client.stream("ranker", in_flight=2) as stream:
                for turns in range(60):
                    request = asyncio.create_task(stream.predict(**INPUTS))
                    for _ in range(turns % 7):
                        await asyncio.sleep(0)
                    if request.cancel():  # The request was still under way.
                        with pytest.raises(asyncio.CancelledError):
                            await request
                answers = await asyncio.gather(*(stream.predict(**INPUTS) for _ in range(20)))
            return answers, [task for task in asyncio.all_tasks() if "Stream" in repr(task)]

    with fake_server(stream=echo) as fake:
        answers, left = asyncio.run(ask(fake.address))
    assert len(answers) == 20
    assert left == []


def test_an_asyncio_client_belongs_to_the_loop_it_was_made_in():
    with pytest.raises(InputError, match="event loop runs, got none"):
        AsyncClient("127.0.0.1:1")

    async def made():
        return AsyncClient("127.0.0.1:1")

    async def used(client):
        with pytest.raises(InputError, match="got another; make a client for each"):
            await client.predict("ranker", **INPUTS)

    asyncio.run(used(asyncio.run(made())))


def answer_of_child(act, *, held=None):
    """Runs ``act(send)`` in a forked child, and returns the object that it sends. ``held``: a
    lock that another thread may hold at the fork."""
    forking = multiprocessing.get_context("fork")
    heard, told = forking.Pipe(duplex=False)
    child = forking.Process(target=act, args=(told.send,))
    with held or nullcontext():
        child.start()
    try:
        assert heard.poll(WAIT_SECONDS)
        return heard.recv()
    finally:
        child.kill()
        child.join()


@contextmanager
def used_stream():
    """A client and a stream of it that has answered."""
    with (
        fake_server(stream=echo) as fake,
        Client(fake.address, timeout_seconds=30) as client,
        client.stream("ranker") as stream,
    ):
        stream.predict(**INPUTS).result(WAIT_SECONDS)
        yield client, stream


def test_a_child_process_is_told_to_make_a_client_of_its_own():
    """gRPC's threads do not come along when a process is forked: calls might wait for ever."""
    with used_stream() as (client, stream):
        for use in (
            lambda: stream.predict(**INPUTS),
            lambda: client.predict("ranker", **INPUTS),
            lambda: client.stream("ranker"),
        ):

            def refused(send, use=use):
                with pytest.raises(InputError) as raised:
                    use()
                send(str(raised.value))

            assert "got a child of it" in answer_of_child(refused)


@pytest.mark.parametrize("is_locked", [False, True])
def test_a_child_process_ends_what_it_inherited_at_once(is_locked):
    with used_stream() as (client, stream):

        def end(send):
            stream.cancel()
            stream.close()
            client.close()
            send("ended")

        assert answer_of_child(end, held=stream._lock if is_locked else None) == "ended"
        stream.predict(**INPUTS).result(WAIT_SECONDS)  # The parent's stream goes on.


def test_lengths_whose_sum_begins_at_0_again_are_refused():
    with fake_server() as fake, Client(fake.address, timeout_seconds=30) as client:
        lists = Lists(np.array([1 << 63, 1 << 63], np.uint64), [])
        with pytest.raises(RequestError, match="at most 2147483647, got 9223372036854775808"):
            client.predict("ranker", dense={"price": [1.0, 1.0]}, sparse={"item": lists})


def test_an_id_of_a_request_is_short():
    with fake_server() as fake, Client(fake.address, timeout_seconds=30) as client:
        client.predict("ranker", **INPUTS, request_id="é" * 500)
        with pytest.raises(InputError, match="request_id: expected at most 1000 bytes, got 1002"):
            client.predict("ranker", **INPUTS, request_id="é" * 501)
