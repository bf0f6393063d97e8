"""The standard health service, asked by its standard client."""

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

SERVING = b"\x08\x01"  # HealthCheckResponse{status: SERVING}


def service(name):
    """HealthCheckRequest{service: name}."""
    return b"" if not name else b"\x0a" + bytes([len(name)]) + name.encode()


SERVICES = (
    "",
    "embershard.v1.Predictor",
    "inference.GRPCInferenceService",
    "predictor.Predictor",
)


def test_the_standard_client_checks_and_watches_every_service(server):
    with grpc.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in SERVICES:
            request = health_pb2.HealthCheckRequest(service=name)
            serving = health_pb2.HealthCheckResponse.SERVING
            assert stub.Check(request, timeout=60).status == serving
            watched = stub.Watch(request, timeout=60)
            assert next(watched).status == serving
            watched.cancel()
