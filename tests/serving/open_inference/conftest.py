"""Triton's client, as it comes, of the server that the other tests ask in our own protocol."""

import grpc
import pytest
import tritonclient.grpc as triton

from embershard._proto import predictor_pb2 as pb
from tests.serving.asking import named, outputs_of


@pytest.fixture(scope="session")
def client(server):
    with triton.InferenceServerClient(server.address) as connected:
        yield connected


@pytest.fixture(scope="session")
def channel(server):
    with grpc.insecure_channel(server.address) as connected:
        yield connected


@pytest.fixture(scope="session")
def infer(channel):
    """ModelInfer, with Triton's messages."""
    from tritonclient.grpc import service_pb2_grpc

    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    return lambda message: stub.ModelInfer(message, timeout=60)


@pytest.fixture(scope="session")
def our_outputs(channel):
    """The outputs that our own protocol gives, by name."""
    predict = channel.unary_unary(
        "/embershard.v1.Predictor/Predict",
        request_serializer=pb.PredictRequest.SerializeToString,
    )
    return lambda request: outputs_of(predict(named(request), timeout=60))
