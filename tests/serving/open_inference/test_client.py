"""Triton's own client for Python, unmodified: everything it can ask, and answers equal to those of
our own protocol."""

import queue

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

import embershard
from tests.cases import cases
from tests.serving.asking import random_request
from tests.serving.open_inference.tensors import arrays_of, infer_inputs
from tests.serving.refused import GOOD

FORMS = cases(
    "is_packed",
    {
        "by-name": False,
        "packed": True,
    },
)

MERGED = 1e-6


def good(seed: int = 0, examples: int = 12, *, is_packed: bool = True):
    request = random_request(examples, seed=seed)
    return request, infer_inputs(arrays_of(request, is_packed=is_packed))


def assert_equal(
    result: triton.InferResult, outputs: dict[str, np.ndarray], *, tolerance: float = 0.0
) -> None:
    """Compares bit for bit, unless the request may be merged with others: then with a tolerance."""
    assert [output.name for output in result.get_response().outputs] == list(outputs)
    for name, values in outputs.items():
        np.testing.assert_allclose(
            result.as_numpy(name), values, rtol=tolerance, atol=tolerance, strict=True
        )


def test_is_live_and_ready(client):
    assert client.is_server_live()
    assert client.is_server_ready()


@cases(
    ("model", "version", "ready"),
    {
        "model": ("ranker", "", True),
        "version": ("ranker", "1", True),
        "another-version": ("ranker", "2", False),
        "another-model": ("rankr", "", False),
    },
)
def test_a_model_is_ready_if_it_is_served(client, model, version, ready):
    assert client.is_model_ready(model, version) is ready


def test_the_server_says_who_it_is(client):
    said = client.get_server_metadata()
    assert (said.name, said.version) == ("embershard", embershard.__version__)
    assert "statistics" in said.extensions


def test_the_model_says_what_it_takes_and_gives(client):
    said = client.get_model_metadata("ranker")
    assert (said.name, list(said.versions)) == ("ranker", ["1"])
    inputs = {item.name: (item.datatype, list(item.shape)) for item in said.inputs}
    assert inputs["age"] == ("FP32", [1])
    assert inputs["price"] == ("FP32", [-1])
    assert inputs["user.values"] == ("INT64", [-1])
    assert inputs["user.lengths"] == ("INT32", [1])
    assert inputs["item.lengths"] == ("INT32", [-1])
    assert inputs["tags.weights"] == ("FP32", [-1])
    assert inputs["DENSE"] == ("FP32", [-1, 2])
    assert inputs["REQUEST_DENSE"] == ("FP32", [2])
    assert "item.weights" not in inputs
    outputs = {item.name: (item.datatype, list(item.shape)) for item in said.outputs}
    assert outputs == {
        "score": ("FP32", [-1]),
        "parts": ("FP32", [-1, 2]),
        "user_vector": ("FP32", [1, 6]),
    }


def test_the_configuration_agrees_with_the_metadata(client):
    said = client.get_model_metadata("ranker", "1")
    config = client.get_model_config("ranker", "1").config
    assert (config.name, config.max_batch_size) == ("ranker", 0)
    assert [(item.name, list(item.dims)) for item in config.input] == [
        (item.name, list(item.shape)) for item in said.inputs
    ]
    assert all(item.optional for item in config.input)
    assert {item.data_type for item in config.input} == {8, 9, 11}  # INT32, INT64, FP32
    assert [item.name for item in config.output] == [item.name for item in said.outputs]
    assert config.dynamic_batching.priority_levels == 2
    assert config.parameters["max_examples"].string_value == "4096"


@FORMS
@pytest.mark.parametrize("version", ["", "1"])
def test_infer_gives_what_our_own_protocol_gives(client, our_outputs, is_packed, version):
    request, inputs = good(is_packed=is_packed)
    result = client.infer("ranker", inputs, model_version=version, request_id="mine")
    assert_equal(result, our_outputs(request))
    answer = result.get_response()
    assert (answer.model_name, answer.model_version, answer.id) == ("ranker", "1", "mine")


def test_unknown_ids_are_counted(client, our_outputs):
    arrays = arrays_of(GOOD, is_packed=False) | {"user.values": np.array([12345], "<i8")}
    answer = client.infer("ranker", infer_inputs(arrays)).get_response()
    assert answer.parameters["unknown_ids.user"].int64_param == 1


def test_async_infer_gives_the_same(client, our_outputs):
    answers: queue.Queue = queue.Queue()
    requests = {}
    for seed in range(8):
        requests[str(seed)], inputs = good(seed)
        client.async_infer(
            "ranker",
            inputs,
            lambda result, error: answers.put((result, error)),
            request_id=str(seed),
            client_timeout=60,
        )
    for _ in range(8):
        result, error = answers.get(timeout=60)
        assert error is None
        expected = our_outputs(requests.pop(result.get_response().id))
        assert_equal(result, expected, tolerance=MERGED)
    assert requests == {}


def test_stream_infer_agrees_and_a_bad_request_fails_alone(client, our_outputs):
    answers: queue.Queue = queue.Queue()
    requests = {}
    client.start_stream(lambda result, error: answers.put((result, error)), stream_timeout=60)
    for seed in range(6):
        requests[str(seed)], inputs = good(seed)
        client.async_stream_infer("ranker", inputs, request_id=str(seed))
        if seed == 3:
            client.async_stream_infer("ranker", inputs[:-1], request_id="bad")
    failed = []
    for _ in range(7):
        result, error = answers.get(timeout=60)
        if error is not None:
            failed.append(error.message())
            continue
        expected = our_outputs(requests.pop(result.get_response().id))
        assert_equal(result, expected, tolerance=MERGED)
        assert result.get_response().parameters["triton_final_response"].bool_param
    client.stop_stream()
    assert requests == {}
    assert len(failed) == 1
    assert failed[0].startswith("tensor 'WEIGHTS': expected ")


def test_outputs_can_be_chosen(client, our_outputs):
    request, inputs = good()
    wanted = [triton.InferRequestedOutput("parts")]
    expected = {"parts": our_outputs(request)["parts"]}
    assert_equal(client.infer("ranker", inputs, outputs=wanted), expected)


def test_a_user_alone_needs_no_examples(client, our_outputs):
    request, _ = good()
    arrays = {
        name: array
        for name, array in arrays_of(request, is_packed=False).items()
        if name.split(".")[0] in ("age", "hour", "user", "history", "query", "topics")
    }
    wanted = [triton.InferRequestedOutput("user_vector")]
    result = client.infer("ranker", infer_inputs(arrays), outputs=wanted)
    assert_equal(result, {"user_vector": our_outputs(request)["user_vector"]})


def test_priorities_and_timeouts_are_heard(client, our_outputs):
    request, inputs = good()
    assert_equal(
        client.infer("ranker", inputs, priority=2, timeout=60_000_000), our_outputs(request)
    )
    with pytest.raises(InferenceServerException) as caught:
        client.infer("ranker", inputs, priority=3)
    assert caught.value.message() == "priority: expected 0..2, got 3"
    with pytest.raises(InferenceServerException) as caught:
        client.infer("ranker", inputs, timeout=1)  # Microsecond.
    assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"


def test_the_deadline_of_the_call_counts(client):
    _, inputs = good()
    with pytest.raises(InferenceServerException) as caught:
        client.infer("ranker", inputs, client_timeout=1e-6)
    assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"


def test_statistics_count_requests_and_their_examples(client):
    def now():
        (counted,) = client.get_inference_statistics("ranker", "1").model_stats
        return counted

    before = now()
    _, inputs = good(examples=12)
    client.infer("ranker", inputs)
    client.infer("ranker", inputs)
    after = now()
    assert (after.name, after.version) == ("ranker", "1")
    assert after.inference_count - before.inference_count == 24
    assert after.execution_count - before.execution_count in (1, 2)
    for name in ("success", "queue", "compute_infer"):
        counted = getattr(after.inference_stats, name)
        earlier = getattr(before.inference_stats, name)
        assert counted.count - earlier.count == 2, name
        assert counted.ns >= earlier.ns, name
    assert after.inference_stats.success.ns > before.inference_stats.success.ns
    assert after.last_inference >= before.last_inference > 0
    with pytest.raises(InferenceServerException):
        client.infer("ranker", inputs, priority=3)
    assert now().inference_stats.fail.count == after.inference_stats.fail.count + 1


def test_statistics_of_all_models(client):
    assert [model_stat.name for model_stat in client.get_inference_statistics().model_stats] == [
        "ranker"
    ]


def test_the_index_lists_what_is_served(client):
    (model,) = client.get_model_repository_index().models
    assert (model.name, model.version, model.state, model.reason) == ("ranker", "1", "READY", "")


@cases(
    ("ask", "words"),
    {
        "shared-memory": ("get_system_shared_memory_status", "shared memory"),
        "cuda-shared-memory": ("get_cuda_shared_memory_status", "shared memory"),
        "trace": ("get_trace_settings", "trace"),
        "log": ("get_log_settings", "log"),
    },
)
def test_what_is_not_served_says_so(client, ask, words):
    with pytest.raises(InferenceServerException) as caught:
        getattr(client, ask)()
    assert caught.value.status() == "StatusCode.UNIMPLEMENTED"
    assert words in caught.value.message()
