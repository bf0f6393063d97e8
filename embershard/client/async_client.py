"""The client for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import grpc
import grpc.aio

from embershard.client.address import check_address
from embershard.client.arguments import PriorityName, at_least_one, check_timeout
from embershard.client.asking import (
    Names,
    is_stale,
    model_request,
    names_in,
    packed,
    predict_request,
    refused,
)
from embershard.client.async_stream import AsyncPredictStream
from embershard.client.channel import Tls, check_token, open_async_channel
from embershard.client.deadline import deadline_in, remaining_seconds
from embershard.client.methods import methods_of
from embershard.client.packing import Inputs
from embershard.client.prediction import Prediction, prediction
from embershard.client.retry import RetryRules
from embershard.client.schema import ServedModel, served_model
from embershard.client.status import error_of
from embershard.errors import DeadlineError, InputError, RequestError, UnavailableError

__all__ = ["AsyncClient"]


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
        self._address = check_address(address)
        self._timeout_seconds = check_timeout(timeout_seconds)
        self._rules = RetryRules(max_attempts=at_least_one("max_attempts", max_attempts))
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise InputError(
                f"{self._address}: expected to be made while an event loop runs, got none; make "
                "it in a coroutine"
            ) from None
        token = check_token(token)
        self._channel = open_async_channel(self._address, tls)
        self._methods = methods_of(self._channel, token)
        self._fetching = asyncio.Lock()
        self._closed = False
        self._models: dict[Names, ServedModel] = {}

    async def get_model(
        self,
        model: str = "",
        *,
        version: int = 0,
        label: str = "",
        timeout_seconds: float | None = None,
    ) -> ServedModel:
        """As `Client.get_model`."""
        deadline = deadline_in(timeout_seconds, default=self._timeout_seconds)
        timeout = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        request = model_request(model, version, label)
        try:
            schema = served_model(await self._send(self._methods.get_model, request, deadline))
        except grpc.RpcError as failure:
            raise error_of(failure, address=self._address, timeout_seconds=timeout) from None
        self._models[names_in(request)] = schema
        return schema

    async def predict(
        self,
        model: str = "",
        *,
        dense: object | None = None,
        sparse: Mapping[str, object] | None = None,
        weights: Mapping[str, object] | None = None,
        num_examples: int | None = None,
        outputs: Sequence[str] = (),
        version: int = 0,
        label: str = "",
        request_id: str = "",
        priority: PriorityName = "interactive",
        traffic_key: str = "",
        timeout_seconds: float | None = None,
    ) -> Prediction:
        """As `Client.predict`."""
        deadline = deadline_in(timeout_seconds, default=self._timeout_seconds)
        timeout = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        inputs = Inputs(dense=dense, sparse=sparse, weights=weights, num_examples=num_examples)
        request = predict_request(
            model,
            version,
            label,
            request_id=request_id,
            priority=priority,
            outputs=outputs,
            traffic_key=traffic_key,
        )
        names = names_in(request)
        known = self._models.get(names)
        schema = known or await self._schema(names, deadline)
        while True:
            try:
                packed(schema, inputs, request)
                return prediction(await self._send(self._methods.predict, request, deadline))
            except RequestError:
                if known is None:
                    raise
            except grpc.RpcError as failure:
                if known is None or not is_stale(failure.code()):
                    raise refused(
                        failure,
                        address=self._address,
                        schema=schema,
                        request=request,
                        inputs=inputs,
                        timeout_seconds=timeout,
                    ) from None
            # Perhaps the model was changed under us. Once is enough.
            known = None
            schema = await self._fetch(names, deadline)

    def stream(
        self, model: str = "", *, version: int = 0, label: str = "", in_flight: int = 256
    ) -> AsyncPredictStream:
        """As `Client.stream`::

        async with client.stream("ranker") as stream:
            answers = await asyncio.gather(*(stream.predict(sparse=each) for each in asked))
        """
        self._check_open()
        names = names_in(model_request(model, version, label))
        return AsyncPredictStream(
            self._methods.predict_stream,
            self._schema,
            lambda names: self._models.pop(names, None),
            names,
            address=self._address,
            timeout_seconds=self._timeout_seconds,
            in_flight=at_least_one("in_flight", in_flight),
        )

    async def close(self) -> None:
        """End the connection. Calls under way fail with UnavailableError. Safe to repeat."""
        self._closed = True
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _schema(self, names: Names, deadline: float) -> ServedModel:
        """Asked for once, however many wait for it."""
        try:
            left = remaining_seconds(deadline, address=self._address)
            async with asyncio.timeout(left), self._fetching:
                return self._models.get(names) or await self._fetch(names, deadline)
        except TimeoutError:
            raise DeadlineError(
                f"{self._address}: the deadline passed before the schema came"
            ) from None

    async def _fetch(self, names: Names, deadline: float) -> ServedModel:
        model, version, label = names
        left = remaining_seconds(deadline, address=self._address)
        return await self.get_model(model, version=version, label=label, timeout_seconds=left)

    async def _send(self, method: Callable[..., Any], request: object, deadline: float) -> Any:
        """Send, and send again where that can help, until the deadline."""
        attempts = self._rules.begin(deadline)
        while True:
            self._check_open()
            try:
                left = remaining_seconds(deadline, address=self._address)
                return await method(request, timeout=left)
            except asyncio.CancelledError:
                if _task_is_cancelled() or not self._closed:
                    raise
                # gRPC's word for a channel that was closed; nobody has cancelled the caller.
                raise UnavailableError(f"{self._address}: the client was closed") from None
            except grpc.RpcError as failure:
                pause_seconds = attempts.pause_after(failure, time.monotonic())
            await asyncio.sleep(pause_seconds)

    def _check_open(self) -> None:
        if self._closed:
            raise InputError(f"{self._address}: expected an open client, got a closed one")
        if asyncio.get_running_loop() is not self._loop:
            raise InputError(
                f"{self._address}: expected the event loop that the client was made in, got "
                "another; make a client for each"
            )


def _task_is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
