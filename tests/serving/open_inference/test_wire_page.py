"""What docs/protocols.md prints works as it is printed."""

import json
import re
from pathlib import Path

import numpy as np
from google.protobuf import json_format
from tritonclient.grpc import service_pb2

from tests.serving.open_inference.tensors import infer_inputs

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "protocols.md").read_text()
TYPES = {"FP32": "<f4", "INT32": "<i4", "INT64": "<i8"}


def found(pattern: str) -> str:
    match = re.search(pattern, PAGE, re.DOTALL)
    assert match is not None, f"docs/protocols.md has nothing that looks like {pattern}"
    return match[1]


def test_the_example_for_tritonclient_runs(server, capsys):
    code = found(r"```python\n(import numpy as np\nimport tritonclient.*?)```")
    assert '"127.0.0.1:50051"' in code
    exec(code.replace("127.0.0.1:50051", server.address), {})
    assert re.fullmatch(r"\[0\.\d+ +0\.\d+ *\]\n", capsys.readouterr().out)


def test_the_request_for_grpcurl_is_a_good_one(infer):
    document = found(r"grpcurl -plaintext -d '(\{\s+\"model_name\".*?)' 127")
    answer = infer(json_format.Parse(document, service_pb2.ModelInferRequest()))
    assert [(output.name, list(output.shape)) for output in answer.outputs] == [("score", [2])]


def test_the_data_for_perf_analyzer_is_a_good_request(client):
    (entry,) = json.loads(found(r"```json\n(.*?)```"))["data"]
    types = {item.name: item.datatype for item in client.get_model_metadata("ranker").inputs}
    arrays = {
        name: np.array(data["content"], TYPES[types[name]]).reshape(data["shape"])
        for name, data in entry.items()
    }
    assert client.infer("ranker", infer_inputs(arrays)).as_numpy("score").shape == (2,)
