"""Converts drawn requests to other protocols, so that one load measures all of them."""

import importlib.resources
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from numpy.typing import NDArray

from embershard._proto import predictor_pb2 as pb
from embershard.bench.load_options import PooledRequest, Protocol
from embershard.client import ServedInput, ServedModel
from embershard.errors import InputError

MODEL_INFER: Final = "/inference.GRPCInferenceService/ModelInfer"
PREDICT_STREAM: Final = "/embershard.v1.Predictor/PredictStream"

METHODS: Final[dict[Protocol, str]] = {
    "embershard": "/embershard.v1.Predictor/Predict",
    "oip": MODEL_INFER,
    "torchrec": "/predictor.Predictor/Predict",
}

INT32: Final = np.iinfo(np.int32)


def in_protocol(
    protocol: Protocol,
    model: ServedModel,
    pool: Sequence[PooledRequest],
    *,
    first_dimension: bool = False,
) -> list[PooledRequest]:
    """Convert a pool of packed ``PredictRequest`` messages to a protocol.

    | protocol | message |
    |---|---|
    | embershard | unchanged |
    | oip | ``ModelInferRequest``; ``first_dimension`` adds one of size 1, as Triton requires |
    | torchrec | ``PredictionRequest``; inputs in request scope are repeated for each example |

    `InputError`: with "torchrec", an id has more than 32 bits, or a request has a priority.
    """
    if protocol == "embershard":
        return list(pool)

    converted = []
    for pooled in pool:
        request = pb.PredictRequest.FromString(pooled.message)
        if protocol == "oip":
            message = _infer_request(model, request, [1] if first_dimension else [])
        else:
            message = _prediction_request(model, request)
        converted.append(replace(pooled, message=message.SerializeToString()))
    return converted


@cache
def _message_class(name: str) -> Any:
    """Uses a descriptor pool of its own: tritonclient registers the names in the default one."""
    data = (importlib.resources.files("embershard") / "_proto" / "protocols.binpb").read_bytes()
    descriptors = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        descriptors.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(descriptors.FindMessageTypeByName(name))


def _infer_request(
    model: ServedModel, request: pb.PredictRequest, leading_dimensions: list[int]
) -> Any:
    columns = sum(item.scope == "example" for item in model.dense)
    packed = request.packed
    message = _message_class("inference.ModelInferRequest")(
        model_name=model.name, model_version=request.label or str(request.version or "")
    )
    message.parameters["num_examples"].int64_param = request.num_examples
    message.parameters["priority"].int64_param = request.priority

    def add(name: str, datatype: str, data: bytes, *, item_bytes: int, columns: int = 0) -> None:
        values = len(data) // item_bytes
        shape = [values // columns, columns] if columns else [values]
        message.inputs.add(name=name, datatype=datatype, shape=[*leading_dimensions, *shape])
        message.raw_input_contents.append(data)

    if columns:
        add("DENSE", "FP32", packed.example_dense, item_bytes=4, columns=columns)
    if columns < len(model.dense):
        add("REQUEST_DENSE", "FP32", packed.request_dense, item_bytes=4)
    if model.sparse:
        add("LENGTHS", "INT32", packed.lengths, item_bytes=4)
        add("VALUES", "INT64", packed.values, item_bytes=8)
    if any(item.weighted for item in model.sparse):
        add("WEIGHTS", "FP32", packed.weights, item_bytes=4)
    return message


def _prediction_request(model: ServedModel, request: pb.PredictRequest) -> Any:
    if request.priority != pb.PRIORITY_UNSPECIFIED:
        raise InputError("priority: expected none with protocol 'torchrec', got one")
    message = _message_class("predictor.PredictionRequest")(batch_size=request.num_examples)
    if model.dense:
        message.float_features.num_features = len(model.dense)
        message.float_features.values = _dense_matrix(model, request).tobytes()
    lengths = np.frombuffer(request.packed.lengths, "<i4")
    values = np.frombuffer(request.packed.values, "<i8")
    weights = np.frombuffer(request.packed.weights, "<f4")
    for item in model.sparse:
        lists = 1 if item.scope == "request" else request.num_examples
        size = int(lengths[:lists].sum())
        weighted = size if item.weighted else 0
        times = request.num_examples // lists
        ids = values[:size]
        _check_ids(item, ids)
        group = message.id_score_list_features if item.weighted else message.id_list_features
        group.num_features += 1
        group.lengths += np.tile(lengths[:lists], times).tobytes()
        group.values += np.tile(ids, times).astype("<i4").tobytes()
        group.weights += np.tile(weights[:weighted], times).tobytes()
        lengths, values, weights = lengths[lists:], values[size:], weights[weighted:]
    return message


def _dense_matrix(model: ServedModel, request: pb.PredictRequest) -> NDArray[np.float32]:
    """Values ``[examples, dense inputs]``, in schema order."""
    examples = request.num_examples
    dense = np.empty((examples, len(model.dense)), "<f4")
    in_request = np.array([item.scope == "request" for item in model.dense], bool)
    dense[:, in_request] = np.frombuffer(request.packed.request_dense, "<f4")
    dense[:, ~in_request] = np.frombuffer(request.packed.example_dense, "<f4").reshape(
        examples, int((~in_request).sum())
    )
    return dense


def _check_ids(item: ServedInput, ids: NDArray[np.int64]) -> None:
    wide = ids[(ids < INT32.min) | (ids > INT32.max)]
    if len(wide):
        raise InputError(
            f"feature {item.name!r}: expected ids of 32 bits with protocol 'torchrec', got "
            f"{wide[0]}; choose smaller ids with --id-range"
        )
