"""The minimal Python server with grpc.aio. Answers zeros in a PredictResponse of our size.

``python -m benchmarks.peers.aio_echo MODEL OUTPUT...`` serves on a free port until SIGTERM or
SIGINT. Answers contain the model's name MODEL and each OUTPUT with one value per example.
"""

import asyncio
import signal
import sys
from collections.abc import Sequence

import grpc

from embershard._proto import predictor_pb2 as pb


def answer(request: pb.PredictRequest, model: str, outputs: Sequence[str]) -> pb.PredictResponse:
    count = request.num_examples
    return pb.PredictResponse(
        model=model,
        version=1,
        outputs=[pb.Output(name=name, values=bytes(4 * count), shape=[count]) for name in outputs],
        timing=pb.Timing(queue_us=100, lookup_us=100, dense_us=100, total_us=300),
        request_id=request.request_id,
    )


async def serve(model: str, outputs: Sequence[str]) -> None:
    async def predict(request: pb.PredictRequest, _: object) -> pb.PredictResponse:
        return answer(request, model, outputs)

    method = grpc.unary_unary_rpc_method_handler(
        predict,
        request_deserializer=pb.PredictRequest.FromString,
        response_serializer=pb.PredictResponse.SerializeToString,
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("embershard.v1.Predictor", {"Predict": method}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await server.start()
    print(f"serving on 127.0.0.1:{port}", flush=True)
    await stop.wait()
    await server.stop(grace=None)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2:]))
