"""The client for asyncio."""

import asyncio
from typing import Any, Self, TypeVar, Unpack

import grpc
import grpc.aio

from embershard.client.asking import (
    PredictArguments,
    at_least_one,
    model_request,
    names_in,
    predict_request,
)
from embershard.client.async_stream import AsyncPredictStream
from embershard.client.channel import Tls
from embershard.client.core import Call, ClientCore, Learn, Pause, Step, Steps
from embershard.client.prediction import Prediction, ServedModel
from embershard.client.status import remaining_seconds
from embershard.errors import DeadlineError, EmbershardError, InputError, UnavailableError

T = TypeVar("T")


class AsyncClient:
    """`Client`, for one event loop: the same arguments, answers and errors.

    ::

        async with AsyncClient("127.0.0.1:50051") as client:
            answer = await client.predict("ranker", sparse={"item": [[1], [2]]})
    """

    def __init__(
        self,
        address: str,
        *,
        tls: Tls | None = None,
        token: str = "",
        timeout_seconds: float = 1.0,
        max_attempts: int = 4,
    ) -> None:
        """
        Args:
            address, tls, token, timeout_seconds, max_attempts: as in `Client`.

        Raises:
            InputError: as `Client`; no event loop runs.
        """
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise InputError(
                f"{address}: expected to be made while an event loop runs, got none; make "
                "it in a coroutine"
            ) from None
        self._core = ClientCore(
            address,
            grpc.aio,
            tls=tls,
            token=token,
            timeout_seconds=timeout_seconds,
            max_attempts=max_attempts,
        )
        self._fetching = asyncio.Lock()
        self._closed = asyncio.Event()

    async def get_model(
        self,
        model: str = "",
        *,
        version: int = 0,
        label: str = "",
        timeout_seconds: float | None = None,
    ) -> ServedModel:
        """As `Client.get_model`."""
        return await self._run(self._core.get_model(model, version, label, timeout_seconds))

    async def predict(
        self,
        model: str = "",
        *,
        version: int = 0,
        label: str = "",
        timeout_seconds: float | None = None,
        **arguments: Unpack[PredictArguments],
    ) -> Prediction:
        """As `Client.predict`."""
        request, inputs = predict_request((model, version, label), **arguments)
        return await self._run(self._core.predict(request, inputs, timeout_seconds))

    def stream(
        self, model: str = "", *, version: int = 0, label: str = "", in_flight: int = 256
    ) -> AsyncPredictStream:
        """As `Client.stream`::

        async with client.stream("ranker") as stream:
            answers = await asyncio.gather(*(stream.predict(sparse=each) for each in asked))
        """
        self._check_open()
        names = names_in(model_request(model, version, label))
        in_flight = at_least_one("in_flight", in_flight)
        return AsyncPredictStream(self._core, self._run, names, in_flight=in_flight)

    async def close(self) -> None:
        """End the connection. Calls under way fail with UnavailableError. Safe to repeat."""
        self._closed.set()
        await self._core.channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, steps: Steps[T]) -> T:
        """Carry out steps to their result."""
        advance, outcome = steps.send, None
        try:
            while True:
                step = advance(outcome)
                try:
                    advance, outcome = steps.send, await self._carry_out(step)
                except (grpc.RpcError, EmbershardError) as error:
                    advance, outcome = steps.throw, error
        except StopIteration as done:
            result: T = done.value
            return result

    async def _carry_out(self, step: Step) -> Any:
        match step:
            case Pause():
                return await self._pause(step.seconds)
            case Call():
                self._check_open()
                try:
                    return await step.method(step.request, timeout=step.timeout_seconds)
                except asyncio.CancelledError:
                    task = asyncio.current_task()
                    is_cancelled = task is not None and task.cancelling() > 0
                    if is_cancelled or not self._closed.is_set():
                        raise
                    # gRPC's error for a closed channel; nobody has cancelled the caller.
                    raise self._was_closed() from None
            case _:
                return await self._fetch(step)

    async def _pause(self, seconds: float) -> None:
        """Until `close`, at the latest."""
        try:
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        except TimeoutError:
            return
        raise self._was_closed()

    def _was_closed(self) -> UnavailableError:
        return UnavailableError(f"{self._core.address}: the client was closed")

    async def _fetch(self, step: Learn) -> ServedModel:
        """Asked for once, however many wait for it."""
        try:
            left = remaining_seconds(step.deadline, address=self._core.address)
            async with asyncio.timeout(left), self._fetching:
                return await self._run(self._core.fetch(step))
        except TimeoutError:
            raise DeadlineError(
                f"{self._core.address}: the deadline passed before the schema came"
            ) from None

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise InputError(f"{self._core.address}: expected an open client, got a closed one")
        if asyncio.get_running_loop() is not self._loop:
            raise InputError(
                f"{self._core.address}: expected the event loop that the client was made in, got "
                "another; make a client for each"
            )
