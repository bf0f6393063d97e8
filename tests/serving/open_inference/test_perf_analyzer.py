"""The calls of Triton's perf_analyzer, one by one, and the program itself if it is installed."""

import json
import re
import shutil
import subprocess

import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.serving.open_inference.tensors import arrays_of, infer_request
from tests.serving.open_inference.test_wire_page import PAGE
from tests.serving.refused import GOOD


@pytest.fixture(scope="module")
def stub(channel):
    return service_pb2_grpc.GRPCInferenceServiceStub(channel)


def test_its_calls_in_its_order_are_answered_as_it_needs(stub):
    named = {"name": "ranker", "version": ""}
    metadata = stub.ModelMetadata(service_pb2.ModelMetadataRequest(**named), timeout=60)
    config = stub.ModelConfig(service_pb2.ModelConfigRequest(**named), timeout=60).config
    server = stub.ServerMetadata(service_pb2.ServerMetadataRequest(), timeout=60)
    assert [int(version) for version in metadata.versions] == [1]  # It reads them as numbers.
    assert config.name == "ranker"
    assert {item.name for item in config.input} <= {item.name for item in metadata.inputs}
    assert {item.name for item in config.output} <= {item.name for item in metadata.outputs}
    assert "statistics" in server.extensions

    def statistics():
        requests = service_pb2.ModelStatisticsRequest(**named)
        (model,) = stub.ModelStatistics(requests, timeout=60).model_stats
        return model.inference_stats

    before = statistics()
    request = infer_request(list(arrays_of(GOOD, is_packed=False).items()))
    for _ in range(3):
        stub.ModelInfer(request, timeout=60)
    after = statistics()
    assert after.queue.count - before.queue.count == 3
    assert after.success.count - before.success.count == 3


@pytest.mark.skipif(
    shutil.which("perf_analyzer") is None,
    reason="perf_analyzer is not installed: it comes with Triton's SDK",
)
def test_the_program_itself_measures_the_server(server, tmp_path):
    data = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert data is not None
    (tmp_path / "requests.json").write_text(json.dumps(json.loads(data[1])))
    command = ["perf_analyzer", "-m", "ranker", "-i", "grpc", "-u", server.address]
    options = ["--input-data", str(tmp_path / "requests.json"), "--request-count", "100"]
    done = subprocess.run(command + options, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Throughput" in done.stdout
