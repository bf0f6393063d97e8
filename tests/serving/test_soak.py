"""Clients that do all that they should not, beside some that do nothing wrong: for ten seconds, or
for SOAK_SECONDS (`make soak`: ten minutes). At the end every good answer was right, memory is where
it was, and the metrics add up.
"""

import os
import random
import re
import socket
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path

import grpc
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from embershard._proto import predictor_pb2 as pb
from tests.cli.running import serving
from tests.serving.asking import named, outputs_of, random_request
from tests.serving.failures.busy import predictor, until
from tests.serving.refused import Code
from tests.serving.test_hostile_clients import HALVES, PREFACE, SETTINGS

SECONDS = float(os.environ.get("SOAK_SECONDS", "10"))
WARM_SHARE = 0.3
"""Of the time, before memory counts."""

GROWTH_BYTES = 32 << 20
MESSAGE_BYTES = 100_000
WAIT_SECONDS = 60
BATCH_EXAMPLES = 256
SIZES = [*range(1, 36, 3), BATCH_EXAMPLES + 44]  # The last is cut into pieces.
BODIES = [named(random_request(size, seed=size)).SerializeToString() for size in SIZES]
TOO_MANY = pb.PredictRequest(num_examples=4097).SerializeToString()  # The package's own limit.
# A field appended to a message is a field of it.
OTHER_INPUT = pb.PredictRequest(dense=[pb.DenseValues(name="colour")]).SerializeToString()
TOO_LARGE = bytes(MESSAGE_BYTES + 1)
PRIORITIES = (pb.PRIORITY_INTERACTIVE, pb.PRIORITY_BATCH)
NAMES_OF_PRIORITIES = ("batch", "interactive")
REQUESTS = "embershard_requests_total"
HURRIED = {Code.OK, Code.DEADLINE_EXCEEDED, Code.RESOURCE_EXHAUSTED}


class Soak:
    """Clients on threads of their own, until told to end; the first error of one ends them all."""

    def __init__(self, address, local):
        self.address = address
        self.expected = [outputs_of(local.predict_merged([each])[0])["score"] for each in BODIES]
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
        host, port = self.address.rsplit(":", 1)
        return socket.create_connection((host, int(port)), timeout=WAIT_SECONDS)

    def ask(self, channel, chance):
        """Asks for one in earnest, and looks at the answer."""
        place = chance.randrange(len(BODIES))
        priority = pb.PredictRequest(priority=chance.choice(PRIORITIES)).SerializeToString()
        self.check(place, predictor(channel)(BODIES[place] + priority, timeout=WAIT_SECONDS))

    def check(self, place, answer):
        got = outputs_of(answer)["score"]
        assert np.abs(got - self.expected[place]).max() <= 1e-6
        self.count("good")


def good(soak, chance):
    with grpc.insecure_channel(soak.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        for _ in range(200):
            if not soak.over.is_set():
                soak.ask(channel, chance)


def reconnects(soak, chance):
    with grpc.insecure_channel(soak.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        soak.ask(channel, chance)


def opened(channel, messages):
    stream = channel.stream_stream(
        "/embershard.v1.Predictor/PredictStream",
        request_serializer=pb.PredictRequest.SerializeToString,
    )
    return stream(iter(messages), timeout=WAIT_SECONDS)


def of_a_stream(chance, count):
    """Requests of both priorities, each under an id, which says what is asked."""
    messages = []
    for number in range(count):
        place = chance.randrange(len(BODIES))
        message = pb.PredictRequest.FromString(BODIES[place])
        message.priority = chance.choice(PRIORITIES)
        message.request_id = f"{number}/{place}"
        messages.append(message)
    return messages


def streams(soak, chance):
    """One among them is refused, alone."""
    messages = of_a_stream(chance, 100)
    bad = pb.PredictRequest.FromString(BODIES[0] + OTHER_INPUT)
    bad.request_id = "bad"
    messages.insert(chance.randrange(100), bad)
    waiting = {message.request_id for message in messages}
    with grpc.insecure_channel(soak.address) as channel:
        for answer in opened(channel, messages):
            found = pb.PredictResponse.FromString(answer)
            waiting.remove(found.request_id)  # Each is answered once.
            if found.request_id == "bad":
                assert found.failure.code == Code.INVALID_ARGUMENT.value[0], found.failure
                soak.count("refused")
            else:
                assert not found.HasField("failure"), found.failure
                soak.check(int(found.request_id.partition("/")[2]), answer)
    assert not waiting


def leaves_streams(soak, chance):
    with grpc.insecure_channel(soak.address) as channel:
        call = opened(channel, of_a_stream(chance, 20))
        next(call)
        call.cancel()
    soak.count("doubtful", 20)


def says_half(soak, chance):
    with soak.connect() as connection:
        connection.sendall(chance.choice(HALVES).values[0])
        if chance.random() < 0.5:
            linger_none = b"\x01\0\0\0\0\0\0\0"
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_none)


def sends_random_bytes(soak, chance):
    start = chance.choice([b"", PREFACE, PREFACE + SETTINGS])
    with soak.connect() as connection:
        try:
            connection.sendall(start + chance.randbytes(chance.randrange(20_000)))
        except ConnectionError:  # Told to go before it had said everything.
            return


def sends_nonsense(soak, chance):
    """Messages that are none, that have lost their end, that name an input of no model."""
    whole = chance.choice(BODIES)
    cut = whole[: -1 - chance.randrange(4)]  # Its last field is longer.
    with grpc.insecure_channel(soak.address) as channel:
        for message in (b"\xff" + chance.randbytes(500), cut):
            call = predictor(channel).future(message, timeout=WAIT_SECONDS)
            assert call.code() is Code.INVALID_ARGUMENT, call.code()
            soak.count("refused")
        call = predictor(channel).future(whole + OTHER_INPUT, timeout=WAIT_SECONDS)
        assert call.code() is Code.INVALID_ARGUMENT, call.code()
        soak.count("refused")


def exceeds_limits(soak, _):
    with grpc.insecure_channel(soak.address) as channel:
        call = predictor(channel).future(TOO_MANY, timeout=WAIT_SECONDS)
        assert call.code() is Code.INVALID_ARGUMENT, call.code()
        soak.count("refused")
        call = predictor(channel).future(TOO_LARGE, timeout=WAIT_SECONDS)
        assert call.code() is Code.RESOURCE_EXHAUSTED, call.code()


def hangs_up(soak, chance):
    """Closing the channel ends its calls, answered or not."""
    with grpc.insecure_channel(soak.address) as channel:
        for _ in range(5):
            predictor(channel).future(chance.choice(BODIES), timeout=WAIT_SECONDS)
    soak.count("doubtful", 5)


def cancels(soak, chance):
    with grpc.insecure_channel(soak.address) as channel:
        calls = [predictor(channel).future(chance.choice(BODIES), timeout=60) for _ in range(10)]
        for call in calls:
            call.cancel()
    soak.count("doubtful", 10)


def hurries(soak, chance):
    with grpc.insecure_channel(soak.address) as channel:
        for _ in range(10):
            seconds = chance.choice([1e-5, 1e-4, 1e-3, 2e-3])
            call = predictor(channel).future(chance.choice(BODIES), timeout=seconds)
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
            hangs_up,
            cancels,
            hurries,
        )
    },
}


def scraped(url):
    """Values by name and by the last of the labels, which is the reason where there is one."""
    with urllib.request.urlopen(f"{url}metrics", timeout=WAIT_SECONDS) as answer:
        text = answer.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k not in ("model", "version")}
            found[sample.name, *labels.values()] = sample.value
    return found


def resident_bytes(process):
    status = Path(f"/proc/{process}/status").read_text()
    return 1024 * int(re.search(r"VmRSS:\s+(\d+) kB", status)[1])


def is_idle(figures):
    waiting = [
        value for (name, *_), value in figures.items() if name.startswith("embershard_queued_")
    ]
    assert len(waiting) == 4
    under_way = figures["embershard_in_flight_requests",] + figures["embershard_open_streams",]
    return not any(waiting) and under_way == 0


def assert_adds_up(figures, done):
    ended = {
        (code, reason): value
        for code, reason in {(key[1], key[3]) for key in figures if key[0] == REQUESTS}
        if (value := sum(figures[REQUESTS, code, each, reason] for each in NAMES_OF_PRIORITIES))
    }
    assert all(figures[REQUESTS, "OK", each, ""] for each in NAMES_OF_PRIORITIES)
    ok = ended.pop(("OK", ""))
    # Whether those that were given up or hurried were still answered is not known.
    assert done["good"] <= ok <= done["good"] + done["doubtful"]
    assert ok == figures["nv_inference_request_success",]
    assert ok == figures["embershard_request_seconds_count",]
    assert figures["embershard_examples_total",] == figures["nv_inference_count",]
    refused = {key: count for key, count in ended.items() if key[0] == "INVALID_ARGUMENT"}
    assert sum(refused.values()) == done["refused"]
    others = ended.keys() - refused.keys()
    assert others <= {
        ("DEADLINE_EXCEEDED", "expired"),
        ("DEADLINE_EXCEEDED", "abandoned"),
        ("RESOURCE_EXHAUSTED", "no_time"),
    }
    assert ok - done["good"] + sum(ended[key] for key in others) <= done["doubtful"]
    failures = [
        value for (name, *_), value in figures.items() if name == "nv_inference_request_failure"
    ]
    assert sum(failures) == sum(ended.values())
    run = figures["embershard_batch_requests_sum",]  # Some were given up while they ran.
    assert ok <= run <= figures["embershard_request_examples_count",]


@pytest.mark.slow
@pytest.mark.timeout(120 + 2 * SECONDS)
def test_good_clients_are_served_right_whatever_others_do(repository, local):
    options = ["--threads", 1, "--metrics-port", 0]
    options += ["--max-message-bytes", MESSAGE_BYTES, "--max-batch-examples", BATCH_EXAMPLES]
    with serving(repository, *options) as server:
        metrics = server.process.stdout.readline().split()[-1]
        soak = Soak(server.address, local)
        threads = [
            threading.Thread(target=soak.run, args=(name, client))
            for name, client in CLIENTS.items()
        ]
        started = time.monotonic()
        for thread in threads:
            thread.start()
        soak.over.wait(WARM_SHARE * SECONDS)
        warm = resident_bytes(server.process.pid)
        soak.over.wait(started + SECONDS - time.monotonic())
        soak.over.set()
        for thread in threads:
            thread.join()
        assert soak.errors == []
        until(lambda: is_idle(scraped(metrics)))
        grown = resident_bytes(server.process.pid) - warm
        figures = scraped(metrics)
    assert all(soak.done[name] for name in CLIENTS), soak.done
    assert grown <= GROWTH_BYTES
    assert_adds_up(figures, soak.done)
    print(f"{dict(soak.done)}; memory grew by {grown >> 10} KiB")
