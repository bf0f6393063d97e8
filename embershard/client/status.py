"""Maps gRPC's status codes to this library's errors, and decides which calls are retried."""

import math
import time

import grpc

from embershard.client.arguments import check_timeout
from embershard.errors import (
    DeadlineError,
    EmbershardError,
    InternalError,
    NotFoundError,
    OverloadedError,
    RequestError,
    UnauthenticatedError,
    UnavailableError,
)
from embershard.formatting import duration_text

ERRORS: dict[grpc.StatusCode, type[EmbershardError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: RequestError,
    grpc.StatusCode.FAILED_PRECONDITION: RequestError,
    grpc.StatusCode.OUT_OF_RANGE: RequestError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.UNIMPLEMENTED: RequestError,
    grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: OverloadedError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineError,
    grpc.StatusCode.CANCELLED: UnavailableError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
}

CODES = {code.value[0]: code for code in grpc.StatusCode}

GRPCS_DEADLINE = "Deadline Exceeded"

PUSHBACK_KEY = "grpc-retry-pushback-ms"


def error_of(
    failure: grpc.RpcError, *, address: str, timeout_seconds: float | None = None
) -> EmbershardError:
    """The error for a failed call. ``timeout_seconds`` is None if it is not known here."""
    return error_for(
        failure.code(),
        failure.details() or "no details",
        address=address,
        retry_after_seconds=pushback_seconds(failure),
        timeout_seconds=timeout_seconds,
    )


def error_for(
    code: grpc.StatusCode,
    details: str,
    *,
    address: str,
    retry_after_seconds: float | None = None,
    timeout_seconds: float | None = None,
) -> EmbershardError:
    kind = ERRORS.get(code, InternalError)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        expected = "expected a server with embershard's protocol"
        return kind(f"{address}: {expected}, got one that does not know the call ({details})")
    if kind is UnavailableError or kind is InternalError:
        return kind(f"{address}: {code.name}: {details}{_tls_hint(details)}")
    if kind is DeadlineError:
        message = "no answer before the deadline" if details == GRPCS_DEADLINE else details
        timeout = "" if timeout_seconds is None else f" ({duration_text(timeout_seconds)})"
        return kind(f"{address}: {message}{timeout}")
    if kind is OverloadedError:
        return OverloadedError(details, retry_after_seconds=retry_after_seconds)
    return kind(details)


def _tls_hint(details: str) -> str:
    """A hint if gRPC's message means that only one side uses TLS, else an empty text."""
    if "WRONG_VERSION_NUMBER" in details:
        return "; does the server use TLS on this port? This client does (--tls..., Client(tls=))"
    if "failed to connect" in details and details.endswith("Socket closed"):
        return "; does the server use TLS? This client does not (--tls-ca, Client(tls=))"
    return ""


def code_of(number: int) -> grpc.StatusCode:
    """gRPC's code with this number, or UNKNOWN if there is none."""
    return CODES.get(number, grpc.StatusCode.UNKNOWN)


def pushback_seconds(failure: grpc.RpcError) -> float | None:
    """Time after which the server wants a retry. None if it does not say."""
    for key, value in failure.trailing_metadata() or ():
        if key == PUSHBACK_KEY:
            try:
                milliseconds = int(value)
            except ValueError:
                return None
            return milliseconds / 1000 if milliseconds >= 0 else None
    return None


def deadline_in(timeout_seconds: float | None, *, default: float) -> float:
    timeout = default if timeout_seconds is None else check_timeout(timeout_seconds)
    return time.monotonic() + timeout


def remaining_seconds(deadline: float, *, address: str) -> float:
    """Time until a deadline, which is above 0. Raises DeadlineError if it has passed."""
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise DeadlineError(f"{address}: the deadline passed before the request was sent")
    return remaining


def timeout_ms(deadline: float, *, address: str) -> int:
    """Milliseconds until a deadline for the request's field ``timeout_ms``, at least 1."""
    return max(1, int(remaining_seconds(deadline, address=address) * 1000))


FIRST_BACKOFF_SECONDS = 0.05
BACKOFF_SECONDS_MAX = 1.0


def retry_seconds(
    failure: grpc.RpcError, *, attempt: int, max_attempts: int, remaining_seconds: float
) -> float | None:
    """Time to wait before the next attempt, which is less than ``remaining_seconds``. None if the
    call is not retried. ``attempt`` is the number of the last attempt, from 1.

    =================== ===========================================================
    UNAVAILABLE         retried after a pause that doubles
    RESOURCE_EXHAUSTED  retried after the time that the server names, if it does
    all others          not retried
    =================== ===========================================================
    """
    seconds = None
    if failure.code() is grpc.StatusCode.UNAVAILABLE:
        doubled = math.ldexp(FIRST_BACKOFF_SECONDS, min(attempt - 1, 64))
        seconds = min(doubled, BACKOFF_SECONDS_MAX)
    elif failure.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
        seconds = pushback_seconds(failure)
    if attempt >= max_attempts or seconds is None or seconds >= remaining_seconds:
        return None
    return seconds
