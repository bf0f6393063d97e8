"""A stream that sends many requests on one call, for asyncio."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Self, Unpack

import grpc

from embershard._proto import predictor_pb2 as pb
from embershard.client.arguments import Names, PredictArguments, predict_request
from embershard.client.core import CLOSE_SECONDS, GRACE_SECONDS, ClientCore, Outstanding, Waiting
from embershard.client.prediction import Prediction
from embershard.client.status import error_of, timeout_ms
from embershard.errors import DeadlineError, EmbershardError, InputError, UnavailableError

Ended = Callable[[], EmbershardError]
AsyncWaiting = Waiting[asyncio.Future[Prediction]]


class AsyncPredictStream:
    """`PredictStream` for one event loop, made by `AsyncClient.stream`. ``async with`` opens it."""

    def __init__(
        self,
        core: ClientCore,
        names: Names,
        *,
        in_flight: int,
    ) -> None:
        self._core, self._names = core, names
        self._address = core.address
        self._room = asyncio.Semaphore(in_flight)
        self._unsent = asyncio.Semaphore(in_flight)  # Limits the queue if the server reads nothing.
        self._outstanding = Outstanding[asyncio.Future[Prediction]]()
        self._requests = asyncio.Queue[pb.PredictRequest | None]()
        self._ended: Ended | None = self._not_open  # Error of further requests.
        self._tasks = list[asyncio.Task[None]]()

    async def predict(
        self, *, timeout_seconds: float | None = None, **arguments: Unpack[PredictArguments]
    ) -> Prediction:
        """See `PredictStream.predict`. Returns the answer instead of a future."""
        request, inputs = predict_request(self._names, **arguments)
        future: asyncio.Future[Prediction] = asyncio.get_running_loop().create_future()
        waiting = await self._core.prepare(request, inputs, timeout_seconds, future)
        left = waiting.deadline + GRACE_SECONDS - time.monotonic()
        try:
            async with asyncio.timeout(left), self._room:
                return await self._send(waiting)
        except TimeoutError:
            raise DeadlineError(f"{self._address}: no answer before the deadline") from None

    async def close(self) -> None:
        """Wait for the open requests, each until its deadline, and end the stream."""
        if self._ended is None:
            self._end(self._not_open)
        unanswered = [waiting.future for waiting in self._outstanding.values()]
        if unanswered:
            remaining = self._outstanding.last_deadline + GRACE_SECONDS - time.monotonic()
            await asyncio.wait(unanswered, timeout=max(0.0, remaining))
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
        await self.cancel()

    async def cancel(self) -> None:
        """End the stream now. Open requests fail with UnavailableError."""
        if self._tasks:
            self._call.cancel()
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
            for task in self._tasks:
                task.cancel()

    async def __aenter__(self) -> Self:
        self._call = self._core.predict_stream()
        self._ended = None
        self._tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._read())]
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            await self.close()
        else:
            await self.cancel()

    async def _send(self, waiting: AsyncWaiting) -> Prediction:
        await self._unsent.acquire()
        if self._ended is not None:
            self._unsent.release()
            raise self._ended()
        waiting.request.timeout_ms = timeout_ms(waiting.deadline, address=self._address)
        self._outstanding.add(waiting)
        self._requests.put_nowait(waiting.request)
        try:
            return await waiting.future
        finally:
            self._outstanding.pop(waiting.request.request_id, None)

    def _not_open(self) -> EmbershardError:
        return InputError(f"{self._address}: expected an open stream")

    def _end(self, error: Ended) -> None:
        self._ended = error
        self._requests.put_nowait(None)  # Half-closes the call.

    async def _write(self) -> None:
        """Send the requests whose answers are still awaited, until the stream ends."""
        try:
            while (request := await self._requests.get()) is not None:
                self._unsent.release()
                if request.request_id in self._outstanding:
                    await self._call.write(request)
            await self._call.done_writing()
        except (grpc.RpcError, asyncio.InvalidStateError, asyncio.CancelledError):
            return  # The call has ended. The reader handles its error.

    async def _read(self) -> None:
        error: Ended = partial(UnavailableError, f"{self._address}: the server ended the stream")
        try:
            async for message in self._call:
                self._answer(message)
        except grpc.RpcError as failure:
            error = partial(error_of, failure, address=self._address)
        except asyncio.CancelledError:  # `cancel` did it.
            pass
        finally:
            self._end_all(error)

    def _end_all(self, error: Ended) -> None:
        if self._ended is None:
            self._end(error)
        while not self._requests.empty():
            if self._requests.get_nowait() is not None:
                self._unsent.release()
        for task in self._tasks[:1]:  # The writer, which would wait for more requests.
            task.cancel()
        for waiting in self._outstanding.take():
            if not waiting.future.done():
                waiting.future.set_exception(error())

    def _answer(self, message: pb.PredictResponse) -> None:
        waiting = self._outstanding.pop(message.request_id, None)
        if waiting is None or waiting.future.done():  # Its deadline had passed.
            return
        outcome = self._core.outcome(message, waiting)
        if isinstance(outcome, Prediction):
            waiting.future.set_result(outcome)
        else:
            waiting.future.set_exception(outcome)
