"""Drawn requests in the protocol of TorchRec's inference server; docs/wire.md says what its fields
hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from embershard._proto import predictor_pb2 as pb
from embershard.bench.fields import bytes_field, number_field
from embershard.bench.pool import PooledRequest
from embershard.client import ServedInput, ServedModel
from embershard.errors import InputError

__all__ = ["TORCHREC_PREDICT", "torchrec_requests"]

TORCHREC_PREDICT: Final = "/predictor.Predictor/Predict"

# Fields of PredictionRequest, and of its groups of features.
BATCH_SIZE, FLOAT_FEATURES, ID_LIST_FEATURES, ID_SCORE_LIST_FEATURES = 1, 2, 3, 4
NUM_FEATURES, FLOATS = 1, 2
LENGTHS, VALUES, WEIGHTS = 2, 3, 4

LEAST, MOST = -(1 << 31), (1 << 31) - 1


def torchrec_requests(model: ServedModel, pool: Sequence[PooledRequest]) -> list[PooledRequest]:
    """The same requests as ``PredictionRequest`` messages. What is in request scope stands there
    once for every example.

    Args:
        model: that they were drawn for.
        pool: packed ``PredictRequest`` messages.

    Raises:
        InputError: what that protocol cannot say: an id of more than 32 bits, a priority.
    """
    return [
        replace(each, message=_request(model, pb.PredictRequest.FromString(each.message)))
        for each in pool
    ]


@dataclass(frozen=True, slots=True)
class _Lists:
    """Of one sparse input, for all examples."""

    lengths: NDArray[np.int32]
    values: NDArray[np.int64]
    weights: NDArray[np.float32]

    def repeated(self, times: int) -> _Lists:
        return _Lists(
            lengths=np.tile(self.lengths, times),
            values=np.tile(self.values, times),
            weights=np.tile(self.weights, times),
        )


def _request(model: ServedModel, request: pb.PredictRequest) -> bytes:
    if request.priority == pb.PRIORITY_BATCH:
        raise InputError("priority: expected none with protocol 'torchrec', which has no such word")
    lists = _lists_of(model, request)
    groups = []
    for field, weighted in ((ID_LIST_FEATURES, False), (ID_SCORE_LIST_FEATURES, True)):
        group = [each for item, each in lists if item.weighted == weighted]
        if group:
            groups.append(bytes_field(field, _group(group)))
    dense = _dense_of(model, request)
    floats = number_field(NUM_FEATURES, len(model.dense)) + bytes_field(FLOATS, dense.tobytes())
    return b"".join(
        [
            number_field(BATCH_SIZE, request.num_examples),
            *([bytes_field(FLOAT_FEATURES, floats)] if model.dense else []),
            *groups,
        ]
    )


def _dense_of(model: ServedModel, request: pb.PredictRequest) -> NDArray[np.float32]:
    """``[examples, dense inputs]``, in the schema's order."""
    examples = request.num_examples
    of_request = np.frombuffer(request.packed.request_dense, "<f4")
    of_examples = np.frombuffer(request.packed.example_dense, "<f4").reshape(examples, -1)
    dense = np.empty((examples, len(model.dense)), "<f4")
    is_of_request = np.array([item.scope == "request" for item in model.dense], bool)
    dense[:, is_of_request] = of_request
    if not is_of_request.all():
        dense[:, ~is_of_request] = of_examples
    return dense


def _lists_of(model: ServedModel, request: pb.PredictRequest) -> list[tuple[ServedInput, _Lists]]:
    """Cut from the packed arrays, each for all examples."""
    lengths = np.frombuffer(request.packed.lengths, "<i4")
    values = np.frombuffer(request.packed.values, "<i8")
    weights = np.frombuffer(request.packed.weights, "<f4")
    found = []
    for item in model.sparse:
        lists = 1 if item.scope == "request" else request.num_examples
        size = int(lengths[:lists].sum())
        weighed = size if item.weighted else 0
        cut = _Lists(lengths[:lists], values[:size], weights[:weighed])
        _check_ids(item, cut.values)
        found.append((item, cut.repeated(request.num_examples // lists)))
        lengths, values, weights = lengths[lists:], values[size:], weights[weighed:]
    return found


def _check_ids(item: ServedInput, ids: NDArray[np.int64]) -> None:
    wide = ids[(ids < LEAST) | (ids > MOST)]
    if len(wide):
        raise InputError(
            f"feature {item.name!r}: protocol 'torchrec' has ids of 32 bits, got {wide[0]}; "
            "--id-range says which to send"
        )


def _group(lists: Sequence[_Lists]) -> bytes:
    arrays = (
        (LENGTHS, np.concatenate([each.lengths for each in lists]).astype("<i4")),
        (VALUES, np.concatenate([each.values for each in lists]).astype("<i4")),
        (WEIGHTS, np.concatenate([each.weights for each in lists]).astype("<f4")),
    )
    return number_field(NUM_FEATURES, len(lists)) + b"".join(
        bytes_field(field, array.tobytes()) for field, array in arrays if array.size
    )
