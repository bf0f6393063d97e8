"""A gRPC server in this process that answers from a script and remembers what it was asked."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc

from embershard._proto import predictor_pb2 as pb
from embershard.client import Client

INPUTS = {"dense": {"price": [1, 2]}, "sparse": {"item": [[3], [4]]}}
"""Inputs of two examples, for the model that `describes` describes."""

Answer = Callable[[grpc.ServicerContext], object]

Stream = Callable[[Iterator[pb.PredictRequest], grpc.ServicerContext], Iterator[object]]


def fails(code: grpc.StatusCode, details: str = "", *, pushback_ms: str | None = None) -> Answer:
    """An answer that is an error."""

    def answer(context):
        if pushback_ms is not None:
            context.set_trailing_metadata((("grpc-retry-pushback-ms", pushback_ms),))
        context.abort(code, details)

    return answer


def gives(message: object) -> Answer:
    return lambda context: message


def describes(fingerprint: int = 1, **limits: int) -> Answer:
    """A model `ranker` of one dense and one sparse input, both in example scope."""
    message = pb.GetModelResponse(model="ranker", version=7, schema=fingerprint)
    message.inputs.add(name="price", scope=pb.SCOPE_EXAMPLE).dense.SetInParent()
    message.inputs.add(name="item", scope=pb.SCOPE_EXAMPLE).sparse.SetInParent()
    message.outputs.add(name="score", scope=pb.SCOPE_EXAMPLE)
    message.limits.max_examples = 100
    message.limits.max_ids = 1000
    message.limits.max_message_bytes = limits.get("max_message_bytes", 1 << 20)
    return gives(message)


def scores(*values: float, request_id: str = "") -> Answer:
    message = pb.PredictResponse(model="ranker", version=7, request_id=request_id)
    bytes_of_values = b"".join(FLOAT32[value] for value in values)
    message.outputs.add(name="score", values=bytes_of_values, shape=[len(values)])
    return gives(message)


def silent(
    requests: Iterator[pb.PredictRequest], context: grpc.ServicerContext
) -> Iterator[object]:
    """A stream that reads, and answers nothing until its client leaves."""
    left = threading.Event()
    context.add_callback(left.set)
    for _ in requests:
        yield from ()
    left.wait(timeout=60)


FLOAT32 = {0.0: b"\0\0\0\0", 0.5: b"\0\0\0\x3f", 1.0: b"\0\0\x80\x3f", -2.0: b"\0\0\0\xc0"}


@dataclass
class FakeServer:
    """Answers each call with the next of its script; the last one for ever."""

    address: str = ""
    predict: list[Answer] = field(default_factory=list)
    get_model: list[Answer] = field(default_factory=list)
    stream: Stream = silent
    predict_calls: list[pb.PredictRequest] = field(default_factory=list)
    get_model_calls: list[pb.GetModelRequest] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)

    def _handle(self, script: list[Answer], calls: list[object]) -> grpc.RpcMethodHandler:
        def handler(message, context):
            calls.append(message)
            self.timeouts.append(context.time_remaining())
            answer = script[min(len(calls), len(script)) - 1]
            return answer(context)

        return handler

    def service(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            "embershard.v1.Predictor",
            {
                "PredictStream": grpc.stream_stream_rpc_method_handler(
                    self.stream,
                    request_deserializer=pb.PredictRequest.FromString,
                    response_serializer=pb.PredictResponse.SerializeToString,
                ),
                "Predict": grpc.unary_unary_rpc_method_handler(
                    self._handle(self.predict, self.predict_calls),
                    request_deserializer=pb.PredictRequest.FromString,
                    response_serializer=pb.PredictResponse.SerializeToString,
                ),
                "GetModel": grpc.unary_unary_rpc_method_handler(
                    self._handle(self.get_model, self.get_model_calls),
                    request_deserializer=pb.GetModelRequest.FromString,
                    response_serializer=pb.GetModelResponse.SerializeToString,
                ),
            },
        )


@contextmanager
def fake_server(
    *,
    predict: list[Answer] | None = None,
    get_model: list[Answer] | None = None,
    stream: Stream | None = None,
    port: int = 0,
) -> Iterator[FakeServer]:
    """Serves a script until the block ends. Port 0: a free one."""
    fake = FakeServer(
        predict=predict or [scores(0.5)],
        get_model=get_model or [describes()],
        stream=stream or silent,
    )
    with ThreadPoolExecutor(max_workers=4) as threads:
        server = grpc.server(threads)
        server.add_generic_rpc_handlers((fake.service(),))
        fake.address = f"127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{port}')}"
        server.start()
        try:
            yield fake
        finally:
            server.stop(None).wait()


def ask(fake, **options):
    """One prediction by a client of its own."""
    with Client(fake.address, timeout_seconds=options.pop("timeout_seconds", 30), **options) as c:
        return c.predict("ranker", **INPUTS)
