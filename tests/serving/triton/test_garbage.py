"""Requests that nobody would send: the server answers or refuses each, and goes on."""

import queue
from collections import Counter

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import InferenceServerException

from tests.serving.asking import random_request
from tests.serving.open_inference.tensors import arrays_of, infer_inputs, infer_request
from tests.serving.refused import GOOD
from tests.serving.triton.asking import inputs_of, one, outputs_of

pytestmark = [pytest.mark.needs_triton, pytest.mark.timeout(300)]

MESSAGES = 1500
TENSORS = 500
EDGES = [0, 1, -1, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63), 2**40]


@pytest.fixture(autouse=True)
def still_answers(served, triton_client):
    """Before and after: the same process, the same scores."""
    request = random_request(7)
    before = outputs_of(triton_client.infer("ranker", inputs_of(request)))
    yield
    assert served.process.poll() is None, "".join(served.log)
    after = outputs_of(triton_client.infer("ranker", inputs_of(request)))
    for name, values in before.items():
        np.testing.assert_array_equal(after[name], values, strict=True)


def spoilt(random, message: bytes) -> bytes:
    """Bytes changed, taken away or put in."""
    data = bytearray(message)
    for _ in range(random.integers(1, 6)):
        place = random.integers(len(data))
        match random.integers(4):
            case 0:
                data[place] ^= 1 << random.integers(8)
            case 1:
                data[place] = random.choice([0, 1, 0x7F, 0x80, 0xFF])
            case 2:
                del data[place : place + random.integers(1, 9)]
            case _:
                data[place:place] = random.bytes(random.integers(1, 9))
    return bytes(data)


@pytest.mark.parametrize("is_packed", [False, True], ids=["by-name", "packed"])
def test_messages_with_bytes_changed(served, is_packed):
    random = np.random.default_rng(17)
    request = infer_request(list(one(arrays_of(GOOD, is_packed=is_packed)).items()))
    good = request.SerializeToString()
    with grpc.insecure_channel(served.grpc) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=60)
        refused = Counter()
        for _ in range(MESSAGES):
            try:
                infer(spoilt(random, good), timeout=60)
            except grpc.RpcError as error:
                refused[error.code()] += 1
    assert refused.total() > MESSAGES / 4
    assert grpc.StatusCode.DEADLINE_EXCEEDED not in refused


def odd(random, array):
    """The same tensor with other values, or another size."""
    count = int(random.choice([0, 1, 2, array.size, array.size + 1, 1000]))
    if array.dtype.kind == "f":
        choices = np.array([0, -0.0, 1, np.nan, np.inf, -np.inf, 3e38, 1e-45], array.dtype)
    else:
        limits = np.iinfo(array.dtype)
        choices = np.array([e for e in EDGES if limits.min <= e <= limits.max], array.dtype)
    if random.integers(2) or array.ndim > 1:
        changed = array.copy().reshape(-1)
        if changed.size:
            changed[random.integers(changed.size)] = random.choice(choices)
        return changed.reshape(array.shape)
    return random.choice(choices, count).astype(array.dtype)


@pytest.mark.parametrize("is_packed", [False, True], ids=["by-name", "packed"])
def test_tensors_that_lie(triton_client, is_packed):
    random = np.random.default_rng(18)
    good = arrays_of(GOOD, is_packed=is_packed)
    refused = Counter()
    for _ in range(TENSORS):
        arrays = dict(good)
        for name in random.choice(list(good), random.integers(1, 4)):
            arrays[name] = odd(random, good[name])
        try:
            outputs_of(triton_client.infer("ranker", infer_inputs(one(arrays))))
        except InferenceServerException as error:
            refused[error.status()] += 1
    assert refused.total() > TENSORS / 2
    assert set(refused) <= {"StatusCode.INVALID_ARGUMENT", "StatusCode.INTERNAL"}


def test_one_bad_request_among_good_ones_fails_alone(triton_client):
    arrays = arrays_of(random_request(3), is_packed=False)
    good = infer_inputs(one(arrays))
    bad = infer_inputs(one(arrays | {"price": np.array([1, np.nan, 1], "<f4")}))
    expected = outputs_of(triton_client.infer("ranker", good))
    answers = queue.Queue()
    for number in range(40):
        triton_client.async_infer(
            "ranker",
            bad if number % 4 == 3 else good,
            lambda result, error: answers.put((result, error)),
            client_timeout=60,
        )
    failed = 0
    for _ in range(40):
        result, error = answers.get(timeout=60)
        if error is not None:
            failed += 1
            assert error.message() == "feature 'price': value at example 1 must be finite, got nan"
            continue
        for name, values in outputs_of(result).items():
            np.testing.assert_allclose(values, expected[name], rtol=0, atol=1e-6, strict=True)
    assert failed == 10
