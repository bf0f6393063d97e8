"""What a client sends and does next, of `Client` and `AsyncClient` alike: coroutines over the two
operations in which they differ, a call and a pause. Those of `Client` block and never wait, so that
`run` carries out its coroutines in one step."""

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
from embershard.client.asking import (
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
"""For a stream to end once all its requests are answered."""

GRACE_SECONDS = 0.05
"""Behind a deadline: the server's own word on it tells more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(Generic[Future]):
    """One request, and who waits for its answer."""

    future: Future
    request: pb.PredictRequest
    inputs: Inputs
    schema: ServedModel

    deadline: float
    """Seconds on the monotonic clock."""

    request_id: str
    """The caller's own."""


class Outstanding(dict[str, Waiting[Future]]):
    """By the ids under which they go over the wire: ``<number>/<the caller's own>``."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    @property
    def next_deadline(self) -> float:
        """Of any that waits. Infinity: none does."""
        return min((each.deadline for each in self.values()), default=math.inf)

    @property
    def last_deadline(self) -> float:
        """Of all that wait. 0: none does."""
        return max((each.deadline for each in self.values()), default=0.0)

    def add(self, waiting: Waiting[Future]) -> None:
        """Gives its request an id that no other of the stream has."""
        wire_id = f"{next(self._numbers)}/{waiting.request_id}"
        waiting.request.request_id = wire_id
        self[wire_id] = waiting

    def take(self, until: float = math.inf) -> list[Waiting[Future]]:
        """Those whose deadline has passed by then; by default all."""
        due = [key for key, each in self.items() if each.deadline <= until]
        return [self.pop(key) for key in due]


UNCHANGED_SECONDS = 1.0
"""For which a schema that was asked for, and was the known one, is not asked for again: wrong
requests in a loop would send a call each."""

STALE = grpc.StatusCode.FAILED_PRECONDITION
"""The schema that a request was packed by is not the one served."""

SERVICE = "/embershard.v1.Predictor"

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("the calls of a client that blocks never wait")


class ClientCore(ABC):
    """One connection's methods, its options and the schemas that it has learned. Thread-safe."""

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
        """As `Client` takes them, and raises. ``kind``: ``grpc``, or ``grpc.aio``, which tells what
        a call of a method is."""
        self.address, token = check_address(address), check_token(token)
        self.timeout_seconds = check_timeout(timeout_seconds)
        self._max_attempts = at_least_one("max_attempts", max_attempts)
        self.channel = open_channel(address, tls, kind)
        self._models: dict[Names, ServedModel] = {}  # Each operation on it is atomic.
        self._unchanged_until: dict[Names, float] = {}  # Likewise.

        def method(kind: Any, name: str, request: Any, response: Any) -> Any:
            made = kind(
                f"{SERVICE}/{name}",
                request_serializer=request.SerializeToString,
                response_deserializer=response.FromString,
            )
            return with_token(made, token)

        unary, stream = self.channel.unary_unary, self.channel.stream_stream
        self._predict = method(unary, "Predict", pb.PredictRequest, pb.PredictResponse)
        self._get_model = method(unary, "GetModel", pb.GetModelRequest, pb.GetModelResponse)
        self.predict_stream = method(stream, "PredictStream", pb.PredictRequest, pb.PredictResponse)

    @abstractmethod
    async def call(self, method: Any, request: object, timeout_seconds: float) -> Any:
        """Send a request once: the server's message, or RpcError."""

    @abstractmethod
    async def pause(self, seconds: float) -> None:
        """Wait before the next attempt, or until `close`: UnavailableError."""

    async def get_model(
        self, model: object, version: object, label: object, timeout_seconds: float | None
    ) -> ServedModel:
        """As `Client.get_model`."""
        deadline = deadline_in(timeout_seconds, default=self.timeout_seconds)
        request = model_request(model, version, label)
        return await self._ask_model(request, deadline, self._timeout(timeout_seconds))

    async def learn(
        self, names: Names, deadline: float, stale: ServedModel | None = None
    ) -> ServedModel:
        """Ask for a schema, unless another caller has learned it meanwhile. ``stale``: the one that
        the server no longer serves. None: none was known."""
        known = self._models.get(names)
        if known is not None and known is not stale:
            return known
        model, version, label = names
        left = remaining_seconds(deadline, address=self.address)
        request = pb.GetModelRequest(model=model, version=version, label=label)
        return await self._ask_model(request, deadline, left)

    async def predict(
        self, request: pb.PredictRequest, inputs: Inputs, timeout_seconds: float | None
    ) -> Prediction:
        """As `Client.predict`, of a request without its inputs."""
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
            # The model was replaced meanwhile: its schema is learned again, once.
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
        """A request of a stream, which the stream sends. ``future``: of its answer."""
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
        """Pack inputs by the schema that is known, or, if it refuses them, by the one that is
        served now: the model may have been replaced. Returns the schema, and whether it was asked
        for just now. `RequestError`: the inputs contradict it."""
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
        """What a stream's message answers to a request."""
        request = waiting.request
        if not message.HasField("failure"):
            try:
                answer = prediction(message)
            except EmbershardError as unread:  # Bytes that do not fill their shape.
                return unread
            return dataclasses.replace(answer, request_id=waiting.request_id)
        failure, code = message.failure, code_of(message.failure.code)
        if code is STALE:
            self._models.pop(names_in(request), None)  # The next request asks for it.
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

    async def _ask_model(
        self, request: pb.GetModelRequest, deadline: float, timeout_seconds: float
    ) -> ServedModel:
        try:
            schema = served_model(await self._send(self._get_model, request, deadline))
        except grpc.RpcError as failure:
            # gRPC's own message would hide the sentence; it stays in __context__.
            address = self.address
            raise error_of(failure, address=address, timeout_seconds=timeout_seconds) from None
        self._models[names_in(request)] = schema
        return schema

    async def _send(self, method: Any, request: object, deadline: float) -> Any:
        """Send, and send again where that can help, until the deadline."""
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
