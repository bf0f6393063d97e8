"""The blocking client."""

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Self

import grpc

from embershard.client.arguments import (
    PriorityName,
    at_least_one,
    model_request,
    names_in,
    predict_request,
)
from embershard.client.channel import Tls
from embershard.client.core import ClientCore, run
from embershard.client.prediction import Prediction, ServedModel
from embershard.client.stream import PredictStream
from embershard.errors import InputError, UnavailableError


class BlockingCore(ClientCore):
    """The core of `Client`. Thread-safe, but only in the process that made it."""

    def __init__(self, address: str, kind: Any, **options: Any) -> None:
        super().__init__(address, kind, **options)
        self._process = os.getpid()
        self.closed = threading.Event()

    async def call(self, method: Any, request: object, timeout_seconds: float) -> Any:
        self.check_open()
        try:
            return method(request, timeout=timeout_seconds)
        except ValueError:  # gRPC raises it if the channel was closed meanwhile.
            self.check_open()
            raise

    async def pause(self, seconds: float) -> None:
        if self.closed.wait(seconds):
            raise UnavailableError(f"{self.address}: the client was closed")

    def check_open(self) -> None:
        """Raise InputError if the client is closed, or another process made it."""
        if self._is_inherited():  # Calls might hang, because gRPC's threads were not forked.
            raise InputError(
                f"{self.address}: expected the process that made the client, got a child of it; "
                "make another client in the child"
            )
        if self.closed.is_set():
            raise InputError(f"{self.address}: expected an open client, got a closed one")

    def close(self) -> None:
        if self._is_inherited():  # Threads that were not forked may hold its locks.
            return
        self.closed.set()
        self.channel.close()

    def _is_inherited(self) -> bool:
        return os.getpid() != self._process


class Client:
    """Sends requests to an embershard server. Thread-safe, but only in the process that made it.

    ::

        with Client("127.0.0.1:50051") as client:
            scores = client.predict("ranker", dense=dense, sparse={"item": [[1], [2]]})["score"]
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
            address: ``host:port``, with an IPv6 host in brackets. Nothing is sent before the first
                call.
            tls: settings of TLS. None: the traffic is not encrypted.
            token: a token of the server's ``--token-file``. Empty: none. Without TLS the token
                crosses the network unencrypted.
            timeout_seconds: default timeout of a call, including retries. At most one year.
            max_attempts: how often a call is sent at most. 1 means no retries. UNAVAILABLE is
                retried, and RESOURCE_EXHAUSTED if the server says after what time.

        Raises:
            InputError: the address is malformed, the timeout is not above 0, ``max_attempts`` is
                below 1, a file cannot be read, or the token has characters that are not allowed.
        """
        self._core = BlockingCore(
            address,
            grpc,
            tls=tls,
            token=token,
            timeout_seconds=timeout_seconds,
            max_attempts=max_attempts,
        )

    def get_model(
        self,
        model: str = "",
        *,
        version: int = 0,
        label: str = "",
        timeout_seconds: float | None = None,
    ) -> ServedModel:
        """Fetch the inputs and outputs of a model from the server.

        Args:
            model: name of the model. Empty: the only model that is served.
            version: number of the version. 0: the default version.
            label: label of the version, instead of its number. Empty: none.
            timeout_seconds: None: the client's timeout.

        Raises:
            NotFoundError: no such model, version or label is served.
            UnavailableError, DeadlineError: the server did not answer.
        """
        return run(self._core.get_model(model, version, label, timeout_seconds))

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
        priority: PriorityName = "interactive",
        traffic_key: str = "",
        timeout_seconds: float | None = None,
    ) -> Prediction:
        """Score the examples of one request.

        Args:
            model, version, label: see :meth:`get_model`.
            dense: numbers. A mapping from name to ``(num_examples,)`` values (one value for an
                input in request scope), or a matrix ``(num_examples, inputs)`` in schema order.
            sparse: a mapping from name to lists of ids, which are integers of 64 bits or strings.
                An input has ``num_examples`` lists in example scope, one list in request scope. An
                id may stand for a list of one id. :class:`Lists` and arrays are faster than lists.
                Inputs that are left out are empty.
            weights: a mapping from name to lists of weights, for weighted inputs only. Each id
                needs one weight. For ids in :class:`Lists` use ``Lists(lengths, weights)``.
            num_examples: None: the number that the inputs in example scope have, or 1 if there are
                none. 0: no candidates, for requests that only need ``outputs`` in request scope,
                such as a user's vector.
            outputs: names of the outputs to return. Empty: all.
            request_id: returned in the answer; at most 1000 bytes.
            priority: ``background`` for requests that may wait: they use the capacity that others
                leave free.
            traffic_key: if the server splits traffic between versions, requests with the same key,
                such as a user's, go to the same version. At most 1024 bytes. Empty: at random.
            timeout_seconds: timeout including retries. None: the client's.

        Returns:
            Outputs by name, float32, shape ``(num_examples, ...)`` or ``(1, ...)``.

        Raises:
            InputError: an argument has the wrong type.
            RequestError: an input contradicts the schema.
            NotFoundError: no such model, version, label or output.
            OverloadedError, UnavailableError, DeadlineError: no answer in time. Try later; after
                ``retry_after_seconds`` if an OverloadedError has it.
        """
        request, inputs = predict_request(
            (model, version, label),
            dense=dense,
            sparse=sparse,
            weights=weights,
            num_examples=num_examples,
            outputs=outputs,
            request_id=request_id,
            priority=priority,
            traffic_key=traffic_key,
        )
        return run(self._core.predict(request, inputs, timeout_seconds))

    def stream(
        self, model: str = "", *, version: int = 0, label: str = "", in_flight: int = 256
    ) -> PredictStream:
        """Open a stream. It sends many requests on one call, which costs the server less.

        ::

            with Client("127.0.0.1:50051") as client, client.stream("ranker") as stream:
                requests = [{"item": [[item], [99]]} for item in item_ids]
                answers = [stream.predict(dense=dense, sparse=sparse) for sparse in requests]
            scores = [answer.result()["score"] for answer in answers]

        Close the stream after use: its two threads run until it ends or the client is closed.

        Args:
            model, version, label: of all requests of the stream, see :meth:`get_model`.
            in_flight: largest number of unanswered requests, at least 1. Further requests wait.

        Raises:
            InputError: an argument has the wrong type, or the client is closed.
        """
        self._core.check_open()
        names = names_in(model_request(model, version, label))
        in_flight = at_least_one("in_flight", in_flight)
        try:
            return PredictStream(self._core, names, in_flight=in_flight)
        except ValueError:  # gRPC raises it if the channel was closed meanwhile.
            self._core.check_open()
            raise

    def close(self) -> None:
        """Close the connection. Open calls fail with UnavailableError. Safe to repeat. Does nothing
        in a child of the process that made the client."""
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
