"""A stream that sends many requests on one call and returns their answers as futures."""

import logging
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Self, Unpack

import grpc

from embershard._proto import predictor_pb2 as pb
from embershard.client.arguments import Names, PredictArguments, predict_request
from embershard.client.core import CLOSE_SECONDS, GRACE_SECONDS, ClientCore, Outstanding, run
from embershard.client.prediction import Prediction
from embershard.client.status import error_of, timeout_ms
from embershard.errors import (
    DeadlineError,
    EmbershardError,
    InputError,
    UnavailableError,
)

LOG = logging.getLogger(__name__)

WATCH_SECONDS = 1.0
"""Longest time for which a thread waits for work before it checks if the stream has ended."""


class PredictStream:
    """An open stream, made by `Client.stream`. Thread-safe.

    Requests are never sent twice. If the server or the network ends the stream, its open requests
    and all later ones fail with that error. Open another stream then.
    """

    def __init__(
        self,
        core: ClientCore,
        names: Names,
        *,
        in_flight: int,
    ) -> None:
        self._core, self._names = core, names
        self._address, self._in_flight = core.address, in_flight
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)  # There is room, or the stream ends.
        self._sooner = threading.Condition(self._lock)  # Wakes the watch before its time.
        # This field and those below are guarded by _lock.
        self._outstanding = Outstanding[Future[Prediction]]()
        self._ended: Callable[[], EmbershardError] | None = None  # Error of further requests.
        self._over = False  # No more answers can arrive.
        self._wake = math.inf  # Time of the watch's next check.
        self._requests = queue.SimpleQueue[pb.PredictRequest | None]()
        self._call = core.predict_stream(self._unsent())
        self._reader = threading.Thread(target=self._read, name="embershard-stream", daemon=True)
        self._watch = threading.Thread(target=self._expire, name="embershard-watch", daemon=True)
        self._reader.start()
        self._watch.start()

    def predict(
        self, *, timeout_seconds: float | None = None, **arguments: Unpack[PredictArguments]
    ) -> Future[Prediction]:
        """Send a request. Waits if the stream's limit of requests in flight is reached.

        Args:
            dense, sparse, weights, num_examples, outputs, request_id, priority, traffic_key: see
                `Client.predict`.
            timeout_seconds: timeout of this request. None: the client's.

        Returns:
            A future of the answer, or of an error of `Client.predict`. It is done by the deadline
            and cannot be cancelled.

        Raises:
            InputError: an argument has the wrong type, the stream is closed, or another process
                opened it.
            RequestError: an input contradicts the schema.
            DeadlineError: the request could not be sent before the deadline.
            UnavailableError: the stream has ended.
        """
        if self._is_inherited():  # The stream's threads were not forked.
            raise InputError(
                f"{self._address}: expected the process that opened the stream, got a child of it; "
                "open another stream in the child, with another client"
            )
        future = Future[Prediction]()
        future.set_running_or_notify_cancel()
        request, inputs = predict_request(self._names, **arguments)
        waiting = run(self._core.prepare(request, inputs, timeout_seconds, future))
        deadline = waiting.deadline
        with self._lock:
            self._wait_for_room(deadline)
            waiting.request.timeout_ms = timeout_ms(deadline, address=self._address)
            self._outstanding.add(waiting)
            self._requests.put(waiting.request)
            if deadline < self._wake:
                self._wake = deadline
                self._sooner.notify()
        return future

    def close(self) -> None:
        """Wait for the open requests, each until its deadline, and end the stream.

        Safe to repeat, but not from a future's callback. Does nothing in a child of the process
        that opened the stream.
        """
        if self._is_inherited():
            return
        with self._lock:
            if self._ended is None:
                self._end(lambda: InputError(f"{self._address}: expected an open stream"))
            left = self._outstanding.last_deadline - time.monotonic() + CLOSE_SECONDS
            self._room.wait_for(lambda: not self._outstanding, timeout=max(0.0, left))
        _join(self._reader)
        self.cancel()

    def cancel(self) -> None:
        """End the stream now. Open requests fail with UnavailableError. Does nothing in a child of
        the process that opened the stream."""
        if self._is_inherited():
            return
        self._call.cancel()
        _join(self._reader)
        _join(self._watch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self.close()
        else:
            self.cancel()

    def _is_inherited(self) -> bool:
        return os.getpid() != self._process

    def _wait_for_room(self, deadline: float) -> None:
        """REQUIRES: the caller holds the lock."""
        room = self._room.wait_for(
            lambda: self._ended is not None or self._has_room(),
            timeout=max(0.0, deadline - time.monotonic()),
        )
        if self._ended is not None:
            raise self._ended()
        if not room:
            raise DeadlineError(
                f"{self._address}: the deadline passed while {self._in_flight} requests of the "
                "stream waited for answers"
            )

    def _has_room(self) -> bool:
        """Requests whose deadline passed before they were sent count too. Otherwise they would pile
        up if the server reads nothing."""
        return max(len(self._outstanding), self._requests.qsize()) < self._in_flight

    def _unsent(self) -> Iterator[pb.PredictRequest]:
        """Yield queued requests that have not ended by their deadline. Runs on a thread of gRPC."""
        while not self._over:
            try:
                request = self._requests.get(timeout=WATCH_SECONDS)
            except queue.Empty:
                continue
            if request is None:
                return
            with self._lock:
                self._room.notify()
                waits = request.request_id in self._outstanding
            if waits:
                yield request

    def _end(self, error: Callable[[], EmbershardError]) -> None:
        """Take no more requests. REQUIRES: the caller holds the lock."""
        self._ended = error
        self._requests.put(None)  # Half-closes the call.
        self._room.notify_all()

    def _read(self) -> None:
        error: Callable[[], EmbershardError] = partial(
            UnavailableError, f"{self._address}: the server ended the stream"
        )
        try:
            for message in self._call:
                self._answer(message)
        except grpc.RpcError as failure:
            error = partial(error_of, failure, address=self._address)
        finally:
            self._end_all(error)

    def _end_all(self, error: Callable[[], EmbershardError]) -> None:
        """Fail the open requests after the call has ended."""
        with self._lock:
            unanswered = self._outstanding.take()
            self._over = True
            if self._ended is None:
                self._end(error)
            self._room.notify_all()
            self._sooner.notify()
        for waiting in unanswered:
            _settle(waiting.future, error())

    def _answer(self, message: pb.PredictResponse) -> None:
        with self._lock:
            waiting = self._outstanding.pop(message.request_id, None)
            self._room.notify_all()
        if waiting is None:  # Its deadline had passed.
            return
        _settle(waiting.future, self._core.outcome(message, waiting))

    def _expire(self) -> None:
        """Until the call ends, fail requests that the server did not answer by their deadlines."""
        while True:
            with self._lock:
                if self._over:
                    return
                now = time.monotonic()
                late = self._outstanding.take(now - GRACE_SECONDS)
                if late:
                    self._room.notify_all()
                else:
                    self._wake = self._outstanding.next_deadline
                    pause = self._wake + GRACE_SECONDS - now
                    self._sooner.wait(min(pause, WATCH_SECONDS))
            for waiting in late:
                late_error = DeadlineError(f"{self._address}: no answer before the deadline")
                _settle(waiting.future, late_error)


def _settle(future: Future[Prediction], outcome: Prediction | EmbershardError) -> None:
    """Set a future's result. Exceptions of its callbacks are logged, so that the thread goes on."""
    try:
        if isinstance(outcome, Prediction):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)
    except BaseException:  # `Future` passes on exceptions such as that of `sys.exit`.
        LOG.exception("a callback of a prediction failed")


def _join(thread: threading.Thread) -> None:
    """Wait for the end of the thread, unless a callback on that thread is the caller."""
    if thread is not threading.current_thread():
        thread.join(CLOSE_SECONDS)
