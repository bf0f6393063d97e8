"""The clients of the soak: functions that are called again and again until it is over."""

import random
import socket
import threading
from collections import Counter
from contextlib import ExitStack

import grpc
import numpy as np

from embershard._proto import predictor_pb2 as pb
from tests.serving.asking import named, outputs_of, random_request
from tests.serving.failures.busy import predictor
from tests.serving.refused import Code
from tests.serving.test_hostile_clients import HALVES, PREFACE, SETTINGS

WAIT_SECONDS = 60
MESSAGE_BYTES = 100_000
REQUEST_IDS = 2000
BATCH_EXAMPLES = 256
CONNECTIONS = 40
AGE_SECONDS = 1

SIZES = [*range(1, 36, 3), BATCH_EXAMPLES + 44]  # The last is cut into chunks.
BODIES = [named(random_request(size, seed=size)).SerializeToString() for size in SIZES]
TOO_MANY = pb.PredictRequest(num_examples=4097).SerializeToString()  # The package's own limit.
TOO_LARGE = bytes(MESSAGE_BYTES + 1)
# Appending a serialized message sets its fields in the first.
OTHER_INPUT = pb.PredictRequest(dense=[pb.DenseValues(name="colour")]).SerializeToString()
PRIORITIES = (pb.PRIORITY_INTERACTIVE, pb.PRIORITY_BACKGROUND)
HURRIED = {Code.OK, Code.DEADLINE_EXCEEDED, Code.RESOURCE_EXHAUSTED}

CHANNEL = [
    ("grpc.use_local_subchannel_pool", 1),  # A connection of its own.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 200),
]
CROWD_SECONDS = 0.3
"""Between two crowds, for others to connect."""

GO_AWAY = 7
FRAME_HEADER_BYTES = 9


def too_many_ids() -> bytes:
    message = named(random_request(1, seed=1))
    query = next(feature for feature in message.sparse if feature.name == "query")
    query.lengths = np.array([REQUEST_IDS + 1], "<i4").tobytes()
    query.values = np.arange(REQUEST_IDS + 1, dtype="<i8").tobytes()
    return message.SerializeToString()


class Soak:
    """Clients on threads of their own, until told to end; the first error of one ends them all."""

    def __init__(self, address, local):
        self.address = address
        self.expected = [outputs_of(local.answers([body])[0])["score"] for body in BODIES]
        self.over = threading.Event()
        self.errors = []
        self.done = Counter()
        self.lock = threading.Lock()

    def count(self, what, times=1):
        with self.lock:
            self.done[what] += times

    def run(self, name, client):
        chance = random.Random(name)
        try:
            while not self.over.is_set():
                client(self, chance)
                self.count(name)
        except Exception as error:  # Whatever it is, the test must hear of it.
            self.errors.append(f"{name}: {error!r}")
            self.over.set()

    def connect(self):
        """A raw connection. The server closes it at once if it has too many."""
        host, port = self.address.rsplit(":", 1)
        return socket.create_connection((host, int(port)), timeout=WAIT_SECONDS)

    def channel(self):
        """A channel whose calls wait until the server has room for a connection."""
        return grpc.insecure_channel(self.address, CHANNEL)

    def ask(self, channel, chance):
        """Sends a good request and checks the answer."""
        place = chance.randrange(len(BODIES))
        priority = pb.PredictRequest(priority=chance.choice(PRIORITIES)).SerializeToString()
        self.check(place, begun(channel, BODIES[place] + priority).result())

    def check(self, place, answer):
        got = outputs_of(answer)["score"]
        assert np.abs(got - self.expected[place]).max() <= 1e-6
        self.count("good")


def begun(channel, message, seconds=WAIT_SECONDS):
    return predictor(channel).future(message, timeout=seconds, wait_for_ready=True)


def was_said(connection, data):
    """True if the server took all bytes."""
    try:
        connection.sendall(data)
    except ConnectionError:
        return False
    return True


def heard(connection, size):
    """Reads `size` bytes, or fewer if the server closes the connection."""
    data = b""
    try:
        while len(data) < size and (more := connection.recv(size - len(data))):
            data += more
    except ConnectionError:
        return data
    return data


def good(soak, chance):
    """Calls on one channel for so long that the server ends the connection and the client
    reconnects."""
    with soak.channel() as channel:
        for _ in range(500):
            if not soak.over.is_set():
                soak.ask(channel, chance)


def reconnects(soak, chance):
    with soak.channel() as channel:
        soak.ask(channel, chance)


def opened(channel, messages):
    stream = channel.stream_stream(
        "/embershard.v1.Predictor/PredictStream",
        request_serializer=pb.PredictRequest.SerializeToString,
    )
    return stream(iter(messages), timeout=WAIT_SECONDS, wait_for_ready=True)


def of_a_stream(chance, count):
    """Requests of both priorities. The id of each names the expected scores."""
    messages = []
    for number in range(count):
        place = chance.randrange(len(BODIES))
        message = pb.PredictRequest.FromString(BODIES[place])
        message.priority = chance.choice(PRIORITIES)
        message.request_id = f"{number}/{place}"
        message.timeout_ms = 1000 * WAIT_SECONDS
        messages.append(message)
    return messages


def streams(soak, chance):
    """Only the bad request of a stream is refused."""
    messages = of_a_stream(chance, 100)
    bad = pb.PredictRequest.FromString(BODIES[0] + OTHER_INPUT)
    bad.request_id = "bad"
    messages.insert(chance.randrange(100), bad)
    waiting = {message.request_id for message in messages}
    with soak.channel() as channel:
        for answer in opened(channel, messages):
            result = pb.PredictResponse.FromString(answer)
            waiting.remove(result.request_id)  # Each is answered once.
            if result.request_id == "bad":
                assert result.failure.code == Code.INVALID_ARGUMENT.value[0], result.failure
                soak.count("refused")
            else:
                assert not result.HasField("failure"), result.failure
                soak.check(int(result.request_id.partition("/")[2]), answer)
    assert not waiting


def leaves_streams(soak, chance):
    with soak.channel() as channel:
        call = opened(channel, of_a_stream(chance, 20))
        next(call)
        call.cancel()
    soak.count("doubtful", 20)


def says_half(soak, chance):
    with soak.connect() as connection:
        if was_said(connection, chance.choice(HALVES).values[0]) and chance.random() < 0.5:
            linger_none = b"\x01\0\0\0\0\0\0\0"
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_none)


def sends_random_bytes(soak, chance):
    start = chance.choice([b"", PREFACE, PREFACE + SETTINGS])
    with soak.connect() as connection:
        # The server may close the connection before all bytes are sent.
        was_said(connection, start + chance.randbytes(chance.randrange(20_000)))


def sends_nonsense(soak, chance):
    """Sends bytes that are no message, a message without its end, and one that names an unknown
    input."""
    whole = chance.choice(BODIES)
    cut = whole[: -1 - chance.randrange(4)]  # Its last field announces more bytes.
    with soak.channel() as channel:
        for message in (b"\xff" + chance.randbytes(500), cut, whole + OTHER_INPUT):
            expect(soak, channel, message, Code.INVALID_ARGUMENT)
            soak.count("refused")


def expect(soak, channel, message, code):
    call = begun(channel, message)
    assert call.code() is code, (call.code(), call.details())


def exceeds_limits(soak, _):
    with soak.channel() as channel:
        for message in (TOO_MANY, too_many_ids()):
            expect(soak, channel, message, Code.INVALID_ARGUMENT)
            soak.count("refused")
        expect(soak, channel, TOO_LARGE, Code.RESOURCE_EXHAUSTED)


def crowds(soak, _):
    """Connects until one connection is too many, and leaves room again."""
    with ExitStack() as held:
        for _ in range(CONNECTIONS + 1):
            connection = held.enter_context(soak.connect())
            if not was_said(connection, PREFACE + SETTINGS) or not heard(connection, 1):
                soak.count("turned-away")
                break
    soak.over.wait(CROWD_SECONDS)


def outstays(soak, _):
    """Reads frames, and answers none, until told to go."""
    with soak.connect() as connection:
        was_said(connection, PREFACE + SETTINGS)
        while len(header := heard(connection, FRAME_HEADER_BYTES)) == FRAME_HEADER_BYTES:
            if header[3] == GO_AWAY:
                soak.count("told-to-go")
                return
            heard(connection, int.from_bytes(header[:3], "big"))


def disconnects(soak, chance):
    """Closing the channel ends its calls, answered or not."""
    with soak.channel() as channel:
        soak.ask(channel, chance)  # Connected, or none of them would reach the server.
        for _ in range(5):
            begun(channel, chance.choice(BODIES))
    soak.count("doubtful", 5)


def cancels(soak, chance):
    with soak.channel() as channel:
        soak.ask(channel, chance)
        calls = [begun(channel, chance.choice(BODIES)) for _ in range(10)]
        for call in calls:
            call.cancel()
    soak.count("doubtful", 10)


def hurries(soak, chance):
    with soak.channel() as channel:
        soak.ask(channel, chance)
        for _ in range(10):
            call = begun(channel, chance.choice(BODIES), chance.choice([1e-5, 1e-4, 1e-3, 2e-3]))
            assert call.code() in HURRIED, call.code()
    soak.count("doubtful", 10)


CLIENTS = {
    "good-1": good,
    "good-2": good,
    **{
        client.__name__: client
        for client in (
            reconnects,
            streams,
            leaves_streams,
            says_half,
            sends_random_bytes,
            sends_nonsense,
            exceeds_limits,
            crowds,
            outstays,
            disconnects,
            cancels,
            hurries,
        )
    },
}
