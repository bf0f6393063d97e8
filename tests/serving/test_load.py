"""Forty thousand requests, 64 in flight: each answered once, and memory stays where it was."""

import re
import threading
from pathlib import Path

import grpc
import pytest

from embershard._proto import predictor_pb2 as pb
from tests.cli.running import serving
from tests.serving.asking import named, random_request

REQUESTS = 40_000
WARM = 10_000
IN_FLIGHT = 64
GROWTH_BYTES = 16 << 20
TIMEOUT_SECONDS = 600


def resident_bytes(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return 1024 * int(re.search(r"VmRSS:\s+(\d+) kB", status)[1])


class Answers:
    """Counts what comes back, by request id. Called on gRPC's thread."""

    def __init__(self, count: int) -> None:
        self.times = [0] * count
        self.failures: list[str] = []
        self.free = threading.Semaphore(IN_FLIGHT)

    def take(self, number: int, call: grpc.Future) -> None:
        try:
            answer = pb.PredictResponse.FromString(call.result())
            self.times[int(answer.request_id)] += 1
            if answer.request_id != str(number):
                self.failures.append(f"{number}: got the answer to {answer.request_id}")
        except Exception as error:  # Whatever it is, the test must hear of it.
            self.failures.append(f"{number}: {error}")
        finally:
            self.free.release()


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_every_request_is_answered_once_and_memory_does_not_grow(repository):
    requests = [random_request(1 + seed % 20, seed=seed) for seed in range(50)]
    bodies = [named(request).SerializeToString() for request in requests]
    answers = Answers(REQUESTS)
    with (
        serving(repository, "--threads", 1) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        predict = channel.unary_unary("/embershard.v1.Predictor/Predict")

        def send(numbers):
            for number in numbers:
                answers.free.acquire()
                # Appending a serialized message sets its fields in the first.
                request = pb.PredictRequest(request_id=str(number)).SerializeToString()
                call = predict.future(bodies[number % 50] + request, timeout=TIMEOUT_SECONDS)
                call.add_done_callback(lambda call, number=number: answers.take(number, call))
            for _ in range(IN_FLIGHT):  # All have come back.
                answers.free.acquire()
            for _ in range(IN_FLIGHT):
                answers.free.release()

        send(range(WARM))
        warm_bytes = resident_bytes(server.process.pid)
        send(range(WARM, REQUESTS))
        end_bytes = resident_bytes(server.process.pid)
    assert answers.failures == []
    assert answers.times == [1] * REQUESTS
    assert end_bytes - warm_bytes <= GROWTH_BYTES
