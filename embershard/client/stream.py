"""Many requests on one call, their answers as futures."""

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
from embershard.client.asking import Names, PredictArguments, predict_request
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
"""How long a thread of a stream waits for work before it looks whether the stream has ended."""


class PredictStream:
    """One open stream. Any thread may call; `Client.stream` makes it.

    Nothing is sent twice. When the stream ends, by the server or the network, its requests fail
    with what it ended with, and so does every later one: open another then.
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
        self._room = threading.Condition(self._lock)  # One more may be sent, or none ever.
        self._sooner = threading.Condition(self._lock)  # For the watch.
        self._outstanding = Outstanding[Future[Prediction]]()  # Guarded by _lock, as all below.
        self._ended: Callable[[], EmbershardError] | None = None  # Why it takes no more.
        self._over = False  # Nothing comes any more.
        self._wake = math.inf  # When the watch looks next.
        self._requests = queue.SimpleQueue[pb.PredictRequest | None]()
        self._call = core.predict_stream(self._unsent())
        self._reader = threading.Thread(target=self._read, name="embershard-stream", daemon=True)
        self._watch = threading.Thread(target=self._expire, name="embershard-watch", daemon=True)
        self._reader.start()
        self._watch.start()

    def predict(
        self, *, timeout_seconds: float | None = None, **arguments: Unpack[PredictArguments]
    ) -> Future[Prediction]:
        """Send a request. Waits where as many as may be in flight have no answer yet.

        Args:
            dense, sparse, weights, num_examples, outputs, request_id, priority, traffic_key: as in
                `Client.predict`.
            timeout_seconds: of this request. None: the client's.

        Returns:
            The answer to come, or one of the errors of `Client.predict`, at the deadline at the
            latest. It cannot be cancelled.

        Raises:
            InputError: an argument of another type than asked for; the stream is closed, or was
                opened by the process that this one was forked from.
            RequestError: an input contradicts the schema.
            DeadlineError: no room, or no schema, until the deadline.
            UnavailableError: the stream has ended.
        """
        if self._is_inherited():  # Its threads did not come along.
            raise InputError(
                f"{self._address}: expected the process that opened the stream, got a child of it; "
                "open another there, with a client of its own"
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
        """Wait for the answers to what was sent, each until its deadline, and end the stream. Safe
        to repeat, but not from a future's callback; in a child of the process that opened it, it
        does nothing."""
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
        """End the stream now. What has no answer fails with UnavailableError. In a child of the
        process that opened it, it does nothing."""
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
        """REQUIRES: the lock is held."""
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
        """Those whose deadline passed before they were sent take room as well: where the server
        reads nothing they would pile up."""
        return max(len(self._outstanding), self._requests.qsize()) < self._in_flight

    def _unsent(self) -> Iterator[pb.PredictRequest]:
        """For gRPC, in a thread of its own: what somebody still waits for, one by one."""
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
        """Take no more requests. REQUIRES: the lock is held."""
        self._ended = error
        self._requests.put(None)  # Half-closes the call.
        self._room.notify_all()

    def _read(self) -> None:
        """Until the call ends."""
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
        """Nothing comes any more."""
        with self._lock:
            left = self._outstanding.take()
            self._over = True
            if self._ended is None:
                self._end(error)
            self._room.notify_all()
            self._sooner.notify()
        for each in left:
            _settle(each.future, error())

    def _answer(self, message: pb.PredictResponse) -> None:
        with self._lock:
            waiting = self._outstanding.pop(message.request_id, None)
            self._room.notify_all()
        if waiting is None:  # Its deadline had passed.
            return
        _settle(waiting.future, self._core.outcome(message, waiting))

    def _expire(self) -> None:
        """Until the call ends: fail those whose server does not say that their time is over."""
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
            for each in late:
                late_error = DeadlineError(f"{self._address}: no answer before the deadline")
                _settle(each.future, late_error)


def _settle(future: Future[Prediction], outcome: Prediction | EmbershardError) -> None:
    """Calls the future's callbacks, too, of which none ends the thread that others wait for."""
    try:
        if isinstance(outcome, Prediction):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)
    except BaseException:  # `Future` passes on what is no Exception, as `sys.exit` raises.
        LOG.exception("a callback of a prediction failed")


def _join(thread: threading.Thread) -> None:
    """Waits for its end, but in a callback that it runs itself."""
    if thread is not threading.current_thread():
        thread.join(CLOSE_SECONDS)
