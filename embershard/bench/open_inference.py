"""Drawn requests in the Open Inference Protocol, so that one load measures both protocols."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from embershard._proto import predictor_pb2 as pb
from embershard.bench.fields import bytes_field, number_field, packed_field
from embershard.bench.pool import PooledRequest
from embershard.client import ServedModel

__all__ = ["MODEL_INFER", "infer_requests"]

MODEL_INFER: Final = "/inference.GRPCInferenceService/ModelInfer"

# Fields of ModelInferRequest, of an input, and of an entry of its parameters.
MODEL_NAME, MODEL_VERSION, PARAMETERS, INPUTS, RAW_INPUT_CONTENTS = 1, 2, 4, 5, 7
NAME, DATATYPE, SHAPE = 1, 2, 3
KEY, VALUE = 1, 2
INT64_PARAM = 2

SIZES: Final = {"FP32": 4, "INT32": 4, "INT64": 8}


def infer_requests(
    model: ServedModel, pool: Sequence[PooledRequest], *, first_dimension: bool = False
) -> list[PooledRequest]:
    """The same requests as ``ModelInferRequest`` messages, with packed tensors in raw contents.

    Args:
        model: that they were drawn for.
        pool: packed ``PredictRequest`` messages.
        first_dimension: whether each tensor has a 1 before its shape, as Triton wants it.
    """
    return [
        replace(
            each,
            message=_infer_request(
                model, pb.PredictRequest.FromString(each.message), (1,) if first_dimension else ()
            ),
        )
        for each in pool
    ]


def _infer_request(model: ServedModel, request: pb.PredictRequest, before: Sequence[int]) -> bytes:
    """``before``: dimensions before each shape."""
    example_width = sum(item.scope == "example" for item in model.dense)
    packed = request.packed
    tensors: list[tuple[str, str, bytes, int]] = []
    if example_width:
        tensors.append(("DENSE", "FP32", packed.example_dense, example_width))
    if example_width < len(model.dense):
        tensors.append(("REQUEST_DENSE", "FP32", packed.request_dense, 0))
    if model.sparse:
        tensors.append(("LENGTHS", "INT32", packed.lengths, 0))
        tensors.append(("VALUES", "INT64", packed.values, 0))
    if any(item.weighted for item in model.sparse):
        tensors.append(("WEIGHTS", "FP32", packed.weights, 0))
    return b"".join(
        [
            bytes_field(MODEL_NAME, model.name.encode()),
            bytes_field(MODEL_VERSION, (request.label or str(request.version or "")).encode()),
            _parameter("num_examples", request.num_examples),
            _parameter("priority", request.priority),
            *(bytes_field(INPUTS, _input(*tensor, before)) for tensor in tensors),
            *(bytes_field(RAW_INPUT_CONTENTS, data) for _, _, data, _ in tensors),
        ]
    )


def _input(name: str, datatype: str, data: bytes, columns: int, before: Sequence[int]) -> bytes:
    """``columns``: of a matrix; 0 where there is one dimension."""
    values = len(data) // SIZES[datatype]
    shape = [*before, *([values // columns, columns] if columns else [values])]
    return b"".join(
        [
            bytes_field(NAME, name.encode()),
            bytes_field(DATATYPE, datatype.encode()),
            packed_field(SHAPE, shape),
        ]
    )


def _parameter(key: str, value: int) -> bytes:
    number = number_field(INT64_PARAM, value)
    return bytes_field(PARAMETERS, bytes_field(KEY, key.encode()) + bytes_field(VALUE, number))
