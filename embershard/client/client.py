"""The client: one connection, the schemas it has learned, deadlines and retries."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

import grpc

from embershard._proto import predictor_pb2 as pb
from embershard.client.packing import Inputs, pack
from embershard.client.prediction import Prediction, prediction
from embershard.client.schema import ServedModel, served_model
from embershard.client.status import error_of, pushback_seconds
from embershard.errors import DeadlineError, InputError

__all__ = ["Client"]

SERVICE = "/embershard.v1.Predictor"

# Ranking requests pass gRPC's default of 4 MiB; the server states its own limit.
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
)

FIRST_BACKOFF_SECONDS = 0.05
BACKOFF_SECONDS_MAX = 1.0

Message = TypeVar("Message")


class Client:
    """Asks an embershard server for predictions. Any thread may call.

    ::

        with Client("127.0.0.1:50051") as client:
            scores = client.predict("ranker", dense=dense, sparse={"item": [[1], [2]]})["score"]
    """

    def __init__(
        self, address: str, *, timeout_seconds: float = 1.0, max_attempts: int = 4
    ) -> None:
        """
        Args:
            address: ``host:port``. Nothing is sent before the first call.
            timeout_seconds: deadline of a call that states none, retries included.
            max_attempts: how often one call is sent at the most. 1: never retried. Retried are
                UNAVAILABLE, and RESOURCE_EXHAUSTED where the server says after how long.

        Raises:
            InputError: a timeout that is not above 0, or fewer than 1 attempt.
        """
        if timeout_seconds <= 0:
            raise InputError(f"timeout_seconds: expected more than 0, got {timeout_seconds}")
        if max_attempts < 1:
            raise InputError(f"max_attempts: expected at least 1, got {max_attempts}")
        self._address = address
        self._timeout_seconds = timeout_seconds
        self._max_attempts = max_attempts
        self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._predict = self._channel.unary_unary(
            f"{SERVICE}/Predict",
            request_serializer=pb.PredictRequest.SerializeToString,
            response_deserializer=pb.PredictResponse.FromString,
        )
        self._get_model = self._channel.unary_unary(
            f"{SERVICE}/GetModel",
            request_serializer=pb.GetModelRequest.SerializeToString,
            response_deserializer=pb.GetModelResponse.FromString,
        )
        self._lock = threading.Lock()
        self._models: dict[tuple[str, int, str], ServedModel] = {}  # Guarded by _lock.

    def get_model(
        self,
        model: str = "",
        *,
        version: int = 0,
        label: str = "",
        timeout_seconds: float | None = None,
    ) -> ServedModel:
        """Ask what a model takes and gives. Always asks the server.

        Args:
            model: its name. Empty: the only one served.
            version: 0: the one being served.
            label: a name for a version. Empty: none.
            timeout_seconds: None: the client's.

        Raises:
            NotFoundError: no such model, version or label.
            UnavailableError, DeadlineError: no answer.
        """
        deadline = self._deadline(timeout_seconds)
        request = pb.GetModelRequest(model=model, version=version, label=label)
        answer = self._call(self._get_model, request, deadline)
        schema = served_model(answer)
        with self._lock:
            self._models[(model, version, label)] = schema
        return schema

    def predict(
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
        timeout_seconds: float | None = None,
    ) -> Prediction:
        """Score the examples of one request.

        Args:
            model, version, label: as in :meth:`get_model`.
            dense: numbers. A mapping from name to ``(num_examples,)`` values (one value for an
                input in request scope), or a matrix ``(num_examples, inputs)`` in schema order.
            sparse: from name to lists of ids (integers of 64 bits, or strings): ``num_examples``
                lists in example scope, one in request scope; a list of one id may be given as the
                id. :class:`Lists` or arrays for speed. An input left out is empty.
            weights: from name to lists of weights, as many as ids; weighted inputs only.
            num_examples: needed only when no input in example scope is given.
            outputs: names of those wanted. Empty: all.
            request_id: comes back in the answer.
            timeout_seconds: deadline, retries included. None: the client's.

        Returns:
            Outputs by name, float32, shape ``(num_examples, ...)`` or ``(1, ...)``.

        Raises:
            RequestError: an input contradicts the schema.
            NotFoundError: no such model, version, label or output.
            OverloadedError, UnavailableError, DeadlineError: no answer in time; try later.
        """
        deadline = self._deadline(timeout_seconds)
        inputs = Inputs(dense=dense, sparse=sparse, weights=weights, num_examples=num_examples)
        request = pb.PredictRequest(
            model=model, version=version, label=label, request_id=request_id, outputs=outputs
        )
        schema, fresh = self._schema(request, deadline)
        while True:
            count, packed = pack(schema, inputs)
            request.num_examples = count
            request.packed.CopyFrom(packed)
            try:
                return prediction(self._send(self._predict, request, deadline))
            except grpc.RpcError as failure:
                stale = failure.code() is grpc.StatusCode.FAILED_PRECONDITION
                if fresh or not stale:
                    raise error_of(failure, address=self._address) from failure
            schema, fresh = self._fetch(request, deadline), True

    def close(self) -> None:
        """End the connection. Calls under way fail with UnavailableError."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _deadline(self, timeout_seconds: float | None) -> float:
        """Seconds on the monotonic clock."""
        if timeout_seconds is not None and timeout_seconds <= 0:
            raise InputError(f"timeout_seconds: expected more than 0, got {timeout_seconds}")
        return time.monotonic() + (timeout_seconds or self._timeout_seconds)

    def _schema(self, request: pb.PredictRequest, deadline: float) -> tuple[ServedModel, bool]:
        """The schema to pack with, and whether it comes from the server just now."""
        with self._lock:
            known = self._models.get((request.model, request.version, request.label))
        return (known, False) if known else (self._fetch(request, deadline), True)

    def _fetch(self, request: pb.PredictRequest, deadline: float) -> ServedModel:
        return self.get_model(
            request.model,
            version=request.version,
            label=request.label,
            timeout_seconds=self._remaining(deadline),
        )

    def _remaining(self, deadline: float) -> float:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise DeadlineError(f"{self._address}: the deadline passed before the call was sent")
        return remaining

    def _call(self, method: Callable[..., Message], request: object, deadline: float) -> Message:
        try:
            return self._send(method, request, deadline)
        except grpc.RpcError as failure:
            raise error_of(failure, address=self._address) from failure

    def _send(self, method: Callable[..., Message], request: object, deadline: float) -> Message:
        """Send, and send again where that can help, until the deadline."""
        backoff_seconds = FIRST_BACKOFF_SECONDS
        for attempt in range(1, self._max_attempts + 1):
            try:
                return method(request, timeout=self._remaining(deadline))
            except grpc.RpcError as failure:
                wait_seconds = _retry_after(failure, backoff_seconds)
                out_of_time = time.monotonic() + (wait_seconds or 0) >= deadline
                if wait_seconds is None or attempt == self._max_attempts or out_of_time:
                    raise
            time.sleep(wait_seconds)
            backoff_seconds = min(2 * backoff_seconds, BACKOFF_SECONDS_MAX)
        raise AssertionError("unreachable: the last attempt returns or raises")


def _retry_after(failure: grpc.RpcError, backoff_seconds: float) -> float | None:
    """Seconds to wait before another attempt. None: another attempt cannot help."""
    if failure.code() is grpc.StatusCode.UNAVAILABLE:
        return backoff_seconds
    if failure.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return pushback_seconds(failure)
    return None
