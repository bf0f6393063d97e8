"""A gRPC server in this process: describes a model, and answers as a test says."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc

from embershard._proto import predictor_pb2 as pb
from embershard.bench.target import Target, find_target

Answer = Callable[[int, grpc.ServicerContext], pb.PredictResponse]
"""Makes the response from the number of the request, from 0, and its call."""


def described() -> pb.GetModelResponse:
    """A model `ranker` with inputs of every kind."""
    message = pb.GetModelResponse(model="ranker", version=7, schema=0xABC)
    message.inputs.add(name="age", scope=pb.SCOPE_REQUEST).dense.SetInParent()
    message.inputs.add(name="price", scope=pb.SCOPE_EXAMPLE).dense.SetInParent()
    message.inputs.add(name="hour", scope=pb.SCOPE_EXAMPLE).dense.default = 0.5
    user = message.inputs.add(name="user", scope=pb.SCOPE_REQUEST).sparse
    user.known_ids = 1000
    history = message.inputs.add(name="history", scope=pb.SCOPE_REQUEST).sparse
    history.known_ids, history.max_ids = 500, 20
    item = message.inputs.add(name="item", scope=pb.SCOPE_EXAMPLE).sparse
    item.known_ids = 500
    tags = message.inputs.add(name="tags", scope=pb.SCOPE_EXAMPLE).sparse
    tags.known_ids, tags.max_ids, tags.weighted = 8, 3, True
    message.outputs.add(name="score", scope=pb.SCOPE_EXAMPLE)
    message.limits.max_examples = 100
    message.limits.max_ids = 1000
    message.limits.max_message_bytes = 1 << 20
    return message


def answers(number: int, context: grpc.ServicerContext) -> pb.PredictResponse:
    return pb.PredictResponse(model="ranker", version=7)


@dataclass
class FakePredictor:
    """One thread answers, so that one slow answer delays all behind it; a stream keeps one."""

    model: pb.GetModelResponse
    answer: Answer
    target: Target = field(default_factory=lambda: Target("", 0))
    is_alone: bool = True
    """True if a request need not name the model."""

    is_gone: bool = False
    """True if every call is answered as if no server were there."""

    requests: list[bytes] = field(default_factory=list)
    descriptions: list[pb.GetModelRequest] = field(default_factory=list)
    """Requests for the description of the model, in the order received."""

    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def address(self) -> str:
        return f"{self.target.host}:{self.target.port}"

    def _describe(
        self, message: pb.GetModelRequest, context: grpc.ServicerContext
    ) -> pb.GetModelResponse:
        self._check_there(context)
        self._check_named(message.model, context)
        self.descriptions.append(message)
        described = pb.GetModelResponse()
        described.CopyFrom(self.model)
        described.version = message.version or self.model.version
        return described

    def _predict(self, message: bytes, context: grpc.ServicerContext) -> pb.PredictResponse:
        with self.lock:
            number = len(self.requests)
            self.requests.append(message)
        self._check_there(context)
        self._check_named(pb.PredictRequest.FromString(message).model, context)
        return self.answer(number, context)

    def _check_named(self, model: str, context: grpc.ServicerContext) -> None:
        if not model and not self.is_alone:
            context.abort(grpc.StatusCode.NOT_FOUND, "no model is named, expected one of 'a'; 'b'")

    def _check_there(self, context: grpc.ServicerContext) -> None:
        if self.is_gone:
            context.abort(grpc.StatusCode.UNAVAILABLE, "as if it were gone")

    def _predict_stream(
        self, messages: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[pb.PredictResponse]:
        for message in messages:
            response = self._predict(message, context)
            response.request_id = pb.PredictRequest.FromString(message).request_id
            yield response

    def service(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            "embershard.v1.Predictor",
            {
                "Predict": grpc.unary_unary_rpc_method_handler(
                    self._predict, response_serializer=pb.PredictResponse.SerializeToString
                ),
                "PredictStream": grpc.stream_stream_rpc_method_handler(
                    self._predict_stream, response_serializer=pb.PredictResponse.SerializeToString
                ),
                "GetModel": grpc.unary_unary_rpc_method_handler(
                    self._describe,
                    request_deserializer=pb.GetModelRequest.FromString,
                    response_serializer=pb.GetModelResponse.SerializeToString,
                ),
            },
        )


@contextmanager
def fake_predictor(
    answer: Answer = answers, model: pb.GetModelResponse | None = None, *, threads: int = 1
) -> Iterator[FakePredictor]:
    """Serves on a free port until the block ends.

    Args:
        threads: a call each, or a stream each.
    """
    fake = FakePredictor(model or described(), answer)
    with ThreadPoolExecutor(max_workers=threads) as workers:
        server = grpc.server(workers)
        server.add_generic_rpc_handlers((fake.service(),))
        port = server.add_insecure_port("127.0.0.1:0")
        fake.target = find_target(f"127.0.0.1:{port}")
        server.start()
        try:
            yield fake
        finally:
            server.stop(None).wait()
