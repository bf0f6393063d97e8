"""The client: one connection, the schemas it has learned, deadlines and retries."""

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Self

import grpc

from embershard.client.asking import (
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
    """For any thread of one process."""

    def __init__(self, address: str, kind: Any, **options: Any) -> None:
        super().__init__(address, kind, **options)
        self._process = os.getpid()
        self.closed = threading.Event()

    async def call(self, method: Any, request: object, timeout_seconds: float) -> Any:
        self.check_open()
        try:
            return method(request, timeout=timeout_seconds)
        except ValueError:  # gRPC's error for a channel that was closed meanwhile.
            self.check_open()
            raise

    async def pause(self, seconds: float) -> None:
        if self.closed.wait(seconds):
            raise UnavailableError(f"{self.address}: the client was closed")

    def check_open(self) -> None:
        """`InputError`: the client is closed, or another process made it."""
        if self._is_inherited():  # Calls might never end: gRPC's threads are not here.
            raise InputError(
                f"{self.address}: expected the process that made the client, got a child of it; "
                "make another there"
            )
        if self.closed.is_set():
            raise InputError(f"{self.address}: expected an open client, got a closed one")

    def close(self) -> None:
        """As `Client.close`."""
        if self._is_inherited():  # Threads that are not here may hold its locks.
            return
        self.closed.set()
        self.channel.close()

    def _is_inherited(self) -> bool:
        return os.getpid() != self._process


class Client:
    """Asks an embershard server for predictions. Any thread may call, of the process that made it.

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
            address: ``host:port``, an IPv6 host in brackets. Nothing is sent before the first
                call.
            tls: how to connect. None: without TLS, so that who listens on the network reads along.
            token: one that the server's ``--token-file`` holds. Empty: none. Without TLS it crosses
                the network as it is.
            timeout_seconds: default deadline of a call, retries included. More than a
                year is a year.
            max_attempts: how often one call is sent at the most. 1: never retried. Retried are
                UNAVAILABLE, and RESOURCE_EXHAUSTED where the server says after how long.

        Raises:
            InputError: an address of another form, a timeout that is not above 0, fewer than 1
                attempt, a file that cannot be read, or what cannot be a token.
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
            model, version, label: as in :meth:`get_model`.
            dense: numbers. A mapping from name to ``(num_examples,)`` values (one value for an
                input in request scope), or a matrix ``(num_examples, inputs)`` in schema order.
            sparse: from name to lists of ids (integers of 64 bits, or strings): ``num_examples``
                lists in example scope, one in request scope; a list of one id may be given as the
                id. :class:`Lists` or arrays for speed. An input left out is empty.
            weights: from name to lists of weights, as many as ids; weighted inputs only. Of ids in
                :class:`Lists` likewise: ``Lists(lengths, weights)``.
            num_examples: None: as many as the inputs in example scope have, 1 where none is given.
                0: no candidates, for ``outputs`` in request scope alone, as a user's vector is.
            outputs: names of those wanted. Empty: all.
            request_id: comes back in the answer; at most 1000 bytes.
            priority: ``background`` for what nobody waits for: it runs in what others leave free.
            traffic_key: where the server splits traffic between versions, requests of the same key
                get the same version, as those of one user; at most 1024 bytes. Empty: at random.
            timeout_seconds: deadline, retries included. None: the client's.

        Returns:
            Outputs by name, float32, shape ``(num_examples, ...)`` or ``(1, ...)``.

        Raises:
            InputError: an argument of another type than asked for.
            RequestError: an input contradicts the schema.
            NotFoundError: no such model, version, label or output.
            OverloadedError, UnavailableError, DeadlineError: no answer in time; try later, and
                where the first has ``retry_after_seconds``, after those.
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
        """Open a stream: many requests on one call, which costs the server less than calls.

        ::

            with Client("127.0.0.1:50051") as client, client.stream("ranker") as stream:
                requests = [{"item": [[item], [99]]} for item in item_ids]
                answers = [stream.predict(dense=dense, sparse=sparse) for sparse in requests]
            scores = [answer.result()["score"] for answer in answers]

        Close it: its two threads live until it ends, or the client is closed.

        Args:
            model, version, label: of all its requests; as in :meth:`get_model`.
            in_flight: requests without an answer, at least 1; one more waits for room.

        Raises:
            InputError: an argument of another type than asked for; a closed client.
        """
        self._core.check_open()
        names = names_in(model_request(model, version, label))
        in_flight = at_least_one("in_flight", in_flight)
        try:
            return PredictStream(self._core, names, in_flight=in_flight)
        except ValueError:  # gRPC's error for a channel that was closed meanwhile.
            self._core.check_open()
            raise

    def close(self) -> None:
        """End the connection. Calls under way fail with UnavailableError. Safe to repeat. It does
        nothing in a child of the process that made the client."""
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
