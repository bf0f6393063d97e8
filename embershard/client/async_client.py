"""The client for asyncio."""

import asyncio
from typing import Any, Self, Unpack

import grpc.aio

from embershard.client.arguments import (
    Names,
    PredictArguments,
    at_least_one,
    model_request,
    names_in,
    predict_request,
)
from embershard.client.async_stream import AsyncPredictStream
from embershard.client.channel import Tls
from embershard.client.core import ClientCore
from embershard.client.prediction import Prediction, ServedModel
from embershard.client.status import remaining_seconds
from embershard.errors import DeadlineError, InputError, UnavailableError


class AsyncCore(ClientCore):
    """The core of `AsyncClient`, for one event loop."""

    def __init__(self, address: str, kind: Any, **options: Any) -> None:
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise InputError(
                f"{address}: expected to be made while an event loop runs, got none; make "
                "it in a coroutine"
            ) from None
        super().__init__(address, kind, **options)
        self._learning = asyncio.Lock()
        self.closed = asyncio.Event()

    async def call(self, method: Any, request: object, timeout_seconds: float) -> Any:
        if self.closed.is_set():  # It may have been closed while the schema was fetched.
            raise self._was_closed()
        try:
            return await method(request, timeout=timeout_seconds)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            is_cancelled = task is not None and task.cancelling() > 0
            if is_cancelled or not self.closed.is_set():
                raise
            # gRPC raises this for a closed channel too. The caller was not cancelled.
            raise self._was_closed() from None

    async def pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.closed.wait()
        except TimeoutError:
            return
        raise self._was_closed()

    async def learn(
        self, names: Names, deadline: float, stale: ServedModel | None = None
    ) -> ServedModel:
        """Fetch the schema once for all callers that wait for it."""
        try:
            left = remaining_seconds(deadline, address=self.address)
            async with asyncio.timeout(left), self._learning:
                if self.closed.is_set():  # While it waited for the lock.
                    raise self._was_closed()
                return await super().learn(names, deadline, stale)
        except TimeoutError:
            raise DeadlineError(
                f"{self.address}: the deadline passed before the schema arrived"
            ) from None

    def check_open(self) -> None:
        """Raise InputError if the client is closed, or was made in another event loop."""
        if self.closed.is_set():
            raise InputError(f"{self.address}: expected an open client, got a closed one")
        if asyncio.get_running_loop() is not self._loop:
            raise InputError(
                f"{self.address}: expected the event loop that the client was made in, got "
                "another; make a client for each"
            )

    def _was_closed(self) -> UnavailableError:
        return UnavailableError(f"{self.address}: the client was closed")


class AsyncClient:
    """`Client` for one event loop. Arguments, answers and errors are the same.

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
            address, tls, token, timeout_seconds, max_attempts: see `Client`.

        Raises:
            InputError: see `Client`; also if no event loop runs.
        """
        self._core = AsyncCore(
            address,
            grpc.aio,
            tls=tls,
            token=token,
            timeout_seconds=timeout_seconds,
            max_attempts=max_attempts,
        )

    async def get_model(
        self,
        model: str = "",
        *,
        version: int = 0,
        label: str = "",
        timeout_seconds: float | None = None,
    ) -> ServedModel:
        """See `Client.get_model`."""
        self._core.check_open()
        return await self._core.get_model(model, version, label, timeout_seconds)

    async def predict(
        self,
        model: str = "",
        *,
        version: int = 0,
        label: str = "",
        timeout_seconds: float | None = None,
        **arguments: Unpack[PredictArguments],
    ) -> Prediction:
        """See `Client.predict`."""
        request, inputs = predict_request((model, version, label), **arguments)
        self._core.check_open()
        return await self._core.predict(request, inputs, timeout_seconds)

    def stream(
        self, model: str = "", *, version: int = 0, label: str = "", in_flight: int = 256
    ) -> AsyncPredictStream:
        """See `Client.stream`::

        async with client.stream("ranker") as stream:
            answers = await asyncio.gather(*(stream.predict(sparse=ids) for ids in requests))
        """
        self._core.check_open()
        names = names_in(model_request(model, version, label))
        in_flight = at_least_one("in_flight", in_flight)
        return AsyncPredictStream(self._core, names, in_flight=in_flight)

    async def close(self) -> None:
        """Close the connection. Open calls fail with UnavailableError. Safe to repeat."""
        self._core.closed.set()
        await self._core.channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
