"""Plans for devices, by torch's and FBGEMM's kernels on the CPU, in a server: the scores of
processors over every protocol, and refusals of what cannot be served."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton

from embershard.errors import PlanError
from embershard.package import Package, add_plan, make_plan
from embershard.serving import LocalPredictor, Server, ServerOptions
from tests.serving import test_torchrec as torchrec
from tests.serving.asking import named, outputs_of, random_request
from tests.serving.messages import MessagePredictor
from tests.serving.open_inference.tensors import arrays_of, infer_inputs

REQUESTS = 500
TOLERANCE = 1e-5
DEVICES = ("torch-cpu:0", "torch-cpu:1", "torch-cpu:2")


@pytest.fixture(scope="module")
def device_repository(package, tmp_path_factory):
    folder = tmp_path_factory.mktemp("devices")
    own = shutil.copytree(package, folder / "ranker" / "1")
    add_plan(own, make_plan(Package.open(own), DEVICES, name="devices", strategy="row"))
    return folder


@pytest.fixture(scope="module")
def device_server(device_repository):
    options = ServerOptions(port=0, plan="devices", default_timeout_ms=60_000)
    with Server(device_repository, options=options) as device_server:
        yield device_server


def score_of(predictor, request):
    (answer,) = predictor.answers([named(request).SerializeToString()])
    return outputs_of(answer)["score"]


def assert_scores(send, requests, local):
    """Sent 8 at a time, so that batches form."""
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(send, requests))
    for request, scores in zip(requests, got, strict=True):
        np.testing.assert_allclose(scores, score_of(local, request), rtol=0, atol=TOLERANCE)


def random_requests():
    return [random_request(1 + seed % 40, seed) for seed in range(REQUESTS)]


def test_our_protocol_gives_the_scores_of_processors(device_server, local):
    with grpc.insecure_channel(device_server.address) as channel:
        predict = channel.unary_unary("/embershard.v1.Predictor/Predict")

        def send(request):
            return outputs_of(predict(named(request).SerializeToString(), timeout=60))["score"]

        assert_scores(send, random_requests(), local)


def test_open_inference_gives_the_scores_of_processors(device_server, local):
    with triton.InferenceServerClient(device_server.address) as client:

        def send(request):
            inputs = infer_inputs(arrays_of(request, is_packed=True))
            return client.infer("ranker", inputs).as_numpy("score")

        assert_scores(send, random_requests(), local)


def test_torchrec_gives_the_scores_of_processors(device_server, local):
    with grpc.insecure_channel(device_server.address) as channel:
        predict = channel.unary_unary(torchrec.PREDICT)

        def send(request):
            answer = predict(torchrec.encoded(request), timeout=60)
            return torchrec.predictions(answer)["default"]

        requests = [torchrec.request(1 + seed % 40, seed) for seed in range(REQUESTS)]
        assert_scores(send, requests, local)


def test_device_metrics_count_lookups_and_copies(device_server):
    with grpc.insecure_channel(device_server.address) as channel:
        predict = channel.unary_unary("/embershard.v1.Predictor/Predict")
        predict(named(random_request(3)).SerializeToString(), timeout=60)
    metrics = device_server.metrics()
    assert set(metrics.by("embershard_device_copied_bytes", "device")) == set(DEVICES)
    assert metrics.total("embershard_device_copied_bytes") > 0
    assert metrics.total("embershard_device_dense_seconds") > 0


def test_a_gpu_plan_without_a_gpu_is_refused_in_a_sentence(device_repository):
    own = device_repository / "ranker" / "1"
    add_plan(own, make_plan(Package.open(own), ["cuda:0"], name="gpu", strategy="table"))
    with pytest.raises(PlanError) as caught:
        LocalPredictor(own, plan="gpu")
    assert str(caught.value).startswith("device cuda:0: ")  # Torch without CUDA, or no driver.
    assert "\n" not in str(caught.value)
    MessagePredictor(own)  # The processors' plan is served.
