"""The common part of `Client` and `AsyncClient`: coroutines over a call and a pause.

Both block in `Client` and never await, so `run` completes its coroutines in one step.
"""

import dataclasses
import itertools
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc

from embershard._proto import predictor_pb2 as pb
from embershard.client.arguments import (
    Names,
    at_least_one,
    check_address,
    check_stream_size,
    check_timeout,
    model_request,
    names_in,
    pack_inputs,
    refusal,
)
from embershard.client.channel import Tls, check_token, open_channel, with_token
from embershard.client.packing import Inputs
from embershard.client.prediction import Prediction, ServedModel, prediction, served_model
from embershard.client.status import (
    code_of,
    deadline_in,
    error_for,
    error_of,
    remaining_seconds,
    retry_seconds,
)
from embershard.errors import EmbershardError, RequestError, UnavailableError

Future = TypeVar("Future")

CLOSE_SECONDS = 1.0

GRACE_SECONDS = 0.05
"""Wait after a deadline, because the server's own error says more than ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(Generic[Future]):
    future: Future
    request: pb.PredictRequest
    inputs: Inputs
    schema: ServedModel

    deadline: float
    """Seconds on the monotonic clock."""

    request_id: str
    """The id that the caller passed."""


class Outstanding(dict[str, Waiting[Future]]):
    """Unanswered requests by their ids on the wire, ``<number>/<the caller's id>``."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    @property
    def next_deadline(self) -> float:
        return min((waiting.deadline for waiting in self.values()), default=math.inf)

    @property
    def last_deadline(self) -> float:
        return max((waiting.deadline for waiting in self.values()), default=0.0)

    def add(self, waiting: Waiting[Future]) -> None:
        """Give the request an id that is unique on the stream."""
        wire_id = f"{next(self._numbers)}/{waiting.request_id}"
        waiting.request.request_id = wire_id
        self[wire_id] = waiting

    def take(self, until: float = math.inf) -> list[Waiting[Future]]:
        """Remove and return the requests with deadlines up to ``until``, by default all."""
        due = [key for key, waiting in self.items() if waiting.deadline <= until]
        return [self.pop(key) for key in due]


UNCHANGED_SECONDS = 1.0
"""Least seconds between two fetches of an unchanged schema. Without it, a client that sends wrong
requests in a loop would fetch the schema for each of them."""

STALE = grpc.StatusCode.FAILED_PRECONDITION
"""The request was packed with another schema than the served one."""

SERVICE = "/embershard.v1.Predictor"

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never awaits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("the calls of a blocking client never await")


class ClientCore(ABC):
    """Base class of the cores of `Client` and `AsyncClient`. Thread-safe."""

    def __init__(
        self,
        address: str,
        kind: Any,
        *,
        tls: Tls | None,
        token: str,
        timeout_seconds: float,
        max_attempts: int,
    ) -> None:
        """See `Client`. ``kind`` is ``grpc``, or ``grpc.aio`` for methods that are awaited."""
        self.address, token = check_address(address), check_token(token)
        self.timeout_seconds = check_timeout(timeout_seconds)
        self._max_attempts = at_least_one("max_attempts", max_attempts)
        self.channel = open_channel(address, tls, kind)
        self._models: dict[Names, ServedModel] = {}  # Each operation on it is atomic.
        self._unchanged_until: dict[Names, float] = {}  # Each operation on it is atomic.

        def method(kind: Any, name: str, request: Any, response: Any) -> Any:
            method = kind(
                f"{SERVICE}/{name}",
                request_serializer=request.SerializeToString,
                response_deserializer=response.FromString,
            )
            return with_token(method, token)

        unary, stream = self.channel.unary_unary, self.channel.stream_stream
        self._predict = method(unary, "Predict", pb.PredictRequest, pb.PredictResponse)
        self._get_model = method(unary, "GetModel", pb.GetModelRequest, pb.GetModelResponse)
        self.predict_stream = method(stream, "PredictStream", pb.PredictRequest, pb.PredictResponse)

    @abstractmethod
    async def call(self, method: Any, request: object, timeout_seconds: float) -> Any:
        """Send a request once. Returns the server's message or raises RpcError."""

    @abstractmethod
    async def pause(self, seconds: float) -> None:
        """Wait before the next attempt. Raises UnavailableError if the client is closed."""

    async def get_model(
        self, model: object, version: object, label: object, timeout_seconds: float | None
    ) -> ServedModel:
        deadline = deadline_in(timeout_seconds, default=self.timeout_seconds)
        request = model_request(model, version, label)
        return await self._fetch_model(request, deadline, self._timeout(timeout_seconds))

    async def learn(
        self, names: Names, deadline: float, stale: ServedModel | None = None
    ) -> ServedModel:
        """Fetch a schema, unless another caller has fetched it meanwhile. ``stale`` is the schema
        that the server no longer serves, or None."""
        known = self._models.get(names)
        if known is not None and known is not stale:
            return known
        model, version, label = names
        left = remaining_seconds(deadline, address=self.address)
        request = pb.GetModelRequest(model=model, version=version, label=label)
        return await self._fetch_model(request, deadline, left)

    async def predict(
        self, request: pb.PredictRequest, inputs: Inputs, timeout_seconds: float | None
    ) -> Prediction:
        """See `Client.predict`. ``request`` has no inputs yet."""
        deadline = deadline_in(timeout_seconds, default=self.timeout_seconds)
        names = names_in(request)
        schema, is_new = await self._pack(names, request, inputs, deadline)
        while True:
            try:
                return prediction(await self._send(self._predict, request, deadline))
            except grpc.RpcError as failure:
                code, timeout = failure.code(), self._timeout(timeout_seconds)
                if is_new or code is not STALE:
                    error = error_of(failure, address=self.address, timeout_seconds=timeout)
                    raise refusal(code, error, schema, request, inputs) from None
            # The model was replaced meanwhile, so its schema is fetched again, once.
            is_new = True
            schema = await self.learn(names, deadline, schema)
            pack_inputs(schema, inputs, request)

    async def prepare(
        self,
        request: pb.PredictRequest,
        inputs: Inputs,
        timeout_seconds: float | None,
        future: Future,
    ) -> Waiting[Future]:
        """Prepare a request that a stream will send. ``future`` receives its answer."""
        deadline = deadline_in(timeout_seconds, default=self.timeout_seconds)
        schema, _ = await self._pack(names_in(request), request, inputs, deadline)
        check_stream_size(request, schema)
        return Waiting(
            future=future,
            request=request,
            inputs=inputs,
            schema=schema,
            deadline=deadline,
            request_id=request.request_id,
        )

    async def _pack(
        self, names: Names, request: pb.PredictRequest, inputs: Inputs, deadline: float
    ) -> tuple[ServedModel, bool]:
        """Pack inputs with the known schema. If it refuses them, the model may have been replaced,
        so pack them with the schema that is served now. Raises RequestError if it refuses them too.

        Returns the schema, and True if it was fetched just now.
        """
        known = self._models.get(names)
        if known is not None:
            try:
                pack_inputs(known, inputs, request)
                return known, False
            except RequestError:
                if time.monotonic() < self._unchanged_until.get(names, -math.inf):
                    raise
        schema = await self.learn(names, deadline, known)
        if known is not None and schema.fingerprint == known.fingerprint:
            self._unchanged_until[names] = time.monotonic() + UNCHANGED_SECONDS
        pack_inputs(schema, inputs, request)
        return schema, True

    def outcome(
        self, message: pb.PredictResponse, waiting: Waiting[Any]
    ) -> Prediction | EmbershardError:
        """The result of a request from its message on the stream."""
        request = waiting.request
        if not message.HasField("failure"):
            try:
                answer = prediction(message)
            except EmbershardError as invalid:  # The bytes do not match the shape.
                return invalid
            return dataclasses.replace(answer, request_id=waiting.request_id)
        failure, code = message.failure, code_of(message.failure.code)
        if code is STALE:
            self._models.pop(names_in(request), None)  # The next request fetches it.
            words = f"the model was replaced; send the request again ({failure.message})"
            return UnavailableError(f"{self.address}: {words}")
        error = error_for(
            code,
            failure.message or "no details",
            address=self.address,
            retry_after_seconds=failure.retry_pushback_ms / 1000 or None,
        )
        return refusal(code, error, waiting.schema, request, waiting.inputs)

    def _timeout(self, timeout_seconds: float | None) -> float:
        return self.timeout_seconds if timeout_seconds is None else timeout_seconds

    async def _fetch_model(
        self, request: pb.GetModelRequest, deadline: float, timeout_seconds: float
    ) -> ServedModel:
        try:
            schema = served_model(await self._send(self._get_model, request, deadline))
        except grpc.RpcError as failure:
            # "from None" hides gRPC's long message, which stays in __context__.
            address = self.address
            raise error_of(failure, address=address, timeout_seconds=timeout_seconds) from None
        self._models[names_in(request)] = schema
        return schema

    async def _send(self, method: Any, request: object, deadline: float) -> Any:
        """Send a request, and retry until the deadline if that can help."""
        attempt = 1
        while True:
            try:
                left = remaining_seconds(deadline, address=self.address)
                return await self.call(method, request, left)
            except grpc.RpcError as failure:
                pause_seconds = retry_seconds(
                    failure,
                    attempt=attempt,
                    max_attempts=self._max_attempts,
                    remaining_seconds=deadline - time.monotonic(),
                )
                if pause_seconds is None:
                    raise
            await self.pause(pause_seconds)
            attempt += 1
