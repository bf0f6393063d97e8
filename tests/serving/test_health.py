"""The standard health service, asked without its generated code."""

import grpc
import pytest

SERVING = b"\x08\x01"  # HealthCheckResponse{status: SERVING}


def service(name):
    """HealthCheckRequest{service: name}."""
    return b"" if not name else b"\x0a" + bytes([len(name)]) + name.encode()


@pytest.fixture
def check(server):
    with grpc.insecure_channel(server.address) as channel:
        yield channel.unary_unary("/grpc.health.v1.Health/Check")


@pytest.mark.parametrize("name", ["", "embershard.v1.Predictor", "inference.GRPCInferenceService"])
def test_is_serving(check, name):
    assert check(service(name), timeout=60) == SERVING


def test_another_service_is_not_found(check):
    with pytest.raises(grpc.RpcError) as caught:
        check(service("embershard.v9.Predictor"), timeout=60)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
