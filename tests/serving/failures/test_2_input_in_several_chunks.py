"""Failure 2: a request that arrives in several pieces gives what it gives in one.

gRPC keeps a message as slices, of which each frame that arrives adds some; here every write to the
connection is cut into chunks that arrive one by one.
"""

import socket
import threading
from contextlib import contextmanager, suppress

import grpc
import pytest

from tests.cases import cases
from tests.serving.asking import named, outputs_of, packed, random_request

DEADLINE_SECONDS = 60


def forward(source, sink, chunk_bytes):
    """Passes on what arrives in writes of at most so many bytes, until either end closes.

    A call whose bytes were lost by that fails by itself.
    """
    with suppress(OSError):
        while data := source.recv(1 << 16):
            for begin in range(0, len(data), chunk_bytes):
                sink.sendall(data[begin : begin + chunk_bytes])
    with suppress(OSError):  # Already closed by the other end.
        sink.shutdown(socket.SHUT_WR)


@contextmanager
def in_chunks(address, chunk_bytes):
    """The address of a port in front of the server, for one connection."""
    host, port = address.rsplit(":", 1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_SECONDS)

        def serve():
            client, _ = listener.accept()
            with client, socket.create_connection((host, int(port))) as server:
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for item in (client, server):
                    item.settimeout(DEADLINE_SECONDS)
                back = threading.Thread(target=forward, args=(server, client, 1 << 16))
                back.start()
                forward(client, server, chunk_bytes)
                back.join(DEADLINE_SECONDS)

        proxy = threading.Thread(target=serve)
        proxy.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        proxy.join(DEADLINE_SECONDS)
        assert not proxy.is_alive()


def predicted(address, message):
    arguments = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(address, options=arguments) as channel:
        predict = channel.unary_unary("/embershard.v1.Predictor/Predict")
        return outputs_of(predict(message, timeout=DEADLINE_SECONDS))


@pytest.mark.parametrize("form", ["named", "packed"])
@cases(
    ("examples", "chunk_bytes"),
    {
        "byte-by-byte": (2, 1),
        "of-7-bytes": (200, 7),
        "of-1000-bytes-and-many-frames": (4000, 1000),
    },
)
def test_the_answer_is_the_same(server, fingerprint, form, examples, chunk_bytes):
    request = random_request(examples)
    message = packed(request, fingerprint) if form == "packed" else named(request)
    data = message.SerializeToString()
    assert examples < 4000 or len(data) > 10 * 16384  # More than ten frames of HTTP/2.
    expected = predicted(server.address, data)
    with in_chunks(server.address, chunk_bytes) as address:
        got = predicted(address, data)
    for name, values in expected.items():
        assert got[name].tobytes() == values.tobytes(), name
