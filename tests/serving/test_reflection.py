"""gRPC server reflection: off by default, behind the token, and enough to call a service."""

import queue

import grpc
import numpy as np
import pytest
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from tests.serving.asking import named, outputs_of, random_request
from tests.serving.serve import serve

Code = grpc.StatusCode
TOKEN = "one-token-of-a-test_0123456789"
SERVICES = [
    "embershard.v1.Predictor",
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "inference.GRPCInferenceService",
    "predictor.Predictor",
]
VERSIONS = pytest.mark.parametrize("version", ["v1", "v1alpha"])


@pytest.fixture(scope="module")
def reflecting(repository):
    with serve(repository, reflection=True) as server:
        yield server


@pytest.fixture
def channel(reflecting):
    with grpc.insecure_channel(reflecting.address) as opened:
        yield opened


def reflect(channel, *requests, version="v1", metadata=()):
    """The answers to the requests of one stream. Messages of v1 and v1alpha are the same bytes."""
    call = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    return list(call(iter(requests), timeout=60, metadata=metadata))


def request(**fields):
    return reflection_pb2.ServerReflectionRequest(host="here", **fields)


@VERSIONS
def test_lists_every_service(channel, version):
    list_request = request(list_services="*")
    [answer] = reflect(channel, list_request, version=version)
    assert sorted(item.name for item in answer.list_services_response.service) == SERVICES
    assert (answer.valid_host, answer.original_request) == ("here", list_request)


@VERSIONS
def test_is_off_by_default(server, version):
    with (
        grpc.insecure_channel(server.address) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        reflect(channel, request(list_services=""), version=version)
    assert caught.value.code() is Code.UNIMPLEMENTED


@VERSIONS
def test_needs_the_token(repository, tmp_path, version):
    token = tmp_path / "token"
    token.write_text(TOKEN)
    with (
        serve(repository, token_file=str(token), reflection=True) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        with pytest.raises(grpc.RpcError) as caught:
            reflect(channel, request(list_services=""), version=version)
        assert caught.value.code() is Code.UNAUTHENTICATED
        shown = (("authorization", f"Bearer {TOKEN}"),)
        [answer] = reflect(channel, request(list_services=""), version=version, metadata=shown)
        assert len(answer.list_services_response.service) == len(SERVICES)


def test_a_client_without_proto_files_gets_the_scores(channel, server):
    """The messages are built from what reflection gives, as grpcurl builds them."""
    pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
    method = pool.FindServiceByName("embershard.v1.Predictor").FindMethodByName("Predict")
    ours = random_request(5)
    predict = channel.unary_unary(
        "/embershard.v1.Predictor/Predict",
        request_serializer=message_factory.GetMessageClass(method.input_type).SerializeToString,
        response_deserializer=message_factory.GetMessageClass(method.output_type).FromString,
    )
    message = message_factory.GetMessageClass(method.input_type)()
    message.ParseFromString(named(ours).SerializeToString())
    answer = predict(message, timeout=60)
    with grpc.insecure_channel(server.address) as plain:
        expected = plain.unary_unary("/embershard.v1.Predictor/Predict")(
            named(ours).SerializeToString(), timeout=60
        )
    scores = {output.name: np.frombuffer(output.values, "<f4") for output in answer.outputs}
    for name, values in outputs_of(expected).items():
        np.testing.assert_array_equal(scores[name], values.ravel())


@pytest.mark.parametrize("service", SERVICES)
def test_describes_every_service_that_it_lists(channel, service):
    pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
    assert pool.FindServiceByName(service).methods


def test_answers_what_it_does_not_know_without_ending_the_stream(channel):
    answers = reflect(
        channel,
        request(file_containing_symbol="embershard.v1.Nothing"),
        request(file_by_filename="nothing.proto"),
        request(all_extension_numbers_of_type="embershard.v1.PredictRequest"),
        request(),
        request(list_services=""),
    )
    errors = [(answer.error_response.error_code, answer.error_response.error_message)
              for answer in answers[:-1]]  # fmt: skip
    assert errors == [
        (5, "symbol 'embershard.v1.Nothing': not found"),
        (5, "file 'nothing.proto': not found"),
        (5, "no message of this server has extensions"),
        (3, "message_request: expected one of its fields, got none"),
    ]
    assert answers[-1].HasField("list_services_response")


def test_a_file_comes_with_its_imports_each_once(channel):
    [answer] = reflect(channel, request(file_containing_symbol="inference.ModelInferRequest"))
    files = list(answer.file_descriptor_response.file_descriptor_proto)
    assert len(set(files)) == len(files) >= 1


def test_a_request_that_is_too_long_or_no_message_is_refused(channel):
    with pytest.raises(grpc.RpcError) as caught:
        reflect(channel, request(file_by_filename="x" * 5000))
    assert caught.value.code() is Code.INVALID_ARGUMENT
    assert "expected at most 4096 bytes, got 50" in caught.value.details()
    call = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
    with pytest.raises(grpc.RpcError) as caught:
        list(call(iter([b"\xff"]), timeout=60))
    assert caught.value.code() is Code.INVALID_ARGUMENT


def test_an_open_stream_does_not_hold_up_the_end_of_the_server(repository):
    with (
        serve(repository, reflection=True) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        call = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
        requests = queue.Queue()
        requests.put(request(list_services="").SerializeToString())
        opened = call(iter(requests.get, None), timeout=60)
        next(opened)
        server.stop()
        with pytest.raises(grpc.RpcError) as caught:
            next(opened)
        requests.put(None)
        assert caught.value.code() in (Code.CANCELLED, Code.UNAVAILABLE)
