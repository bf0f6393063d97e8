"""Requests as tensors, for Triton's own client and its own messages."""

from collections.abc import Iterator

import numpy as np
from tritonclient.grpc import InferInput, service_pb2

from embershard._proto import predictor_pb2 as pb
from tests.serving.asking import Asked, named, packed

TYPES = {np.dtype("<f4"): "FP32", np.dtype("<i4"): "INT32", np.dtype("<i8"): "INT64"}

Arrays = dict[str, np.ndarray]


def by_name(message: pb.PredictRequest) -> Iterator[tuple[str, np.ndarray]]:
    """The named form, tensor by tensor; a name may come twice."""
    for item in message.dense:
        yield item.name, np.frombuffer(item.values, "<f4")
    for item in message.sparse:
        yield f"{item.name}.values", np.frombuffer(item.values, "<i8")
        yield f"{item.name}.lengths", np.frombuffer(item.lengths, "<i4")
        if item.weights:
            yield f"{item.name}.weights", np.frombuffer(item.weights, "<f4")


def in_arrays(message: pb.PredictRequest) -> Iterator[tuple[str, np.ndarray]]:
    """The packed form, tensor by tensor."""
    columns = 2
    inputs = message.packed
    yield "REQUEST_DENSE", np.frombuffer(inputs.request_dense, "<f4")
    yield "DENSE", np.frombuffer(inputs.example_dense, "<f4").reshape(-1, columns)
    yield "LENGTHS", np.frombuffer(inputs.lengths, "<i4")
    yield "VALUES", np.frombuffer(inputs.values, "<i8")
    yield "WEIGHTS", np.frombuffer(inputs.weights, "<f4")


def arrays_of(request: Asked, *, is_packed: bool) -> Arrays:
    message = packed(request, 0) if is_packed else named(request)
    return dict(in_arrays(message) if is_packed else by_name(message))


def infer_inputs(arrays: Arrays) -> list[InferInput]:
    """The arrays as inputs of Triton's client."""
    inputs = []
    for name, array in arrays.items():
        tensor = InferInput(name, array.shape, TYPES[array.dtype])
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    return inputs


def infer_request(
    tensors: list[tuple[str, np.ndarray]], model: str = "ranker"
) -> service_pb2.ModelInferRequest:
    """With raw contents, laid out by hand."""
    message = service_pb2.ModelInferRequest(model_name=model)
    for name, array in tensors:
        message.inputs.add(name=name, datatype=TYPES[array.dtype], shape=array.shape)
        message.raw_input_contents.append(array.tobytes())
    return message
