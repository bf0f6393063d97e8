"""The standard health service: the standard client, and bytes."""

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

SERVING = b"\x08\x01"  # HealthCheckResponse{status: SERVING}


def service(name):
    """HealthCheckRequest{service: name}."""
    return b"" if not name else b"\x0a" + bytes([len(name)]) + name.encode()


@pytest.fixture
def check(server):
    with grpc.insecure_channel(server.address) as channel:
        yield channel.unary_unary("/grpc.health.v1.Health/Check")


@pytest.mark.parametrize(
    "name", ["", "embershard.v1.Predictor", "inference.GRPCInferenceService", "predictor.Predictor"]
)
def test_is_serving(check, name):
    assert check(service(name), timeout=60) == SERVING


def test_another_service_is_not_found(check):
    with pytest.raises(grpc.RpcError) as caught:
        check(service("embershard.v9.Predictor"), timeout=60)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_the_standard_client_checks_and_watches(server):
    with grpc.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", "embershard.v1.Predictor"):
            request = health_pb2.HealthCheckRequest(service=name)
            serving = health_pb2.HealthCheckResponse.SERVING
            assert stub.Check(request, timeout=60).status == serving
            watched = stub.Watch(request, timeout=60)
            assert next(watched).status == serving
            watched.cancel()
