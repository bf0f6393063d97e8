"""From named inputs to the packed form of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from embershard._proto import predictor_pb2 as pb
from embershard.client.arrays import FlatLists, Lists, flatten, floats_of, ids_of
from embershard.client.schema import ServedInput, ServedModel
from embershard.errors import RequestError

__all__ = ["Inputs", "pack"]

Float32Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a caller wants scored, as they hold it. See :meth:`embershard.Client.predict`."""

    dense: object | None = None
    sparse: Mapping[str, object] | None = None
    weights: Mapping[str, object] | None = None
    num_examples: int | None = None


def pack(model: ServedModel, inputs: Inputs) -> tuple[int, pb.Packed]:
    """Lay inputs out as the model's schema says.

    Returns:
        The number of examples, and the packed form.

    Raises:
        RequestError: an input is unknown, missing or of the wrong size; named with what was
            expected and got.
    """
    dense = _dense_by_name(model, inputs.dense)
    sparse = dict(inputs.sparse or {})
    weights = dict(inputs.weights or {})
    _refuse_unknown(model, dense, "dense", model.dense)
    _refuse_unknown(model, sparse, "sparse", model.sparse)
    _refuse_unknown(
        model, weights, "weighted sparse", tuple(item for item in model.sparse if item.weighted)
    )

    columns = {item.name: _dense_column(item, dense[item.name]) for item in _given(model, dense)}
    lists = {item.name: _lists(item, sparse[item.name]) for item in _given(model, sparse)}
    num_examples = _num_examples(model, inputs.num_examples, columns, lists)
    packed = pb.Packed(schema=model.fingerprint)
    packed.request_dense = _dense_matrix(model, columns, "request", 1).tobytes()
    packed.example_dense = _dense_matrix(model, columns, "example", num_examples).tobytes()
    _pack_sparse(packed, model, lists, weights, num_examples)
    return num_examples, packed


def _dense_by_name(model: ServedModel, dense: object | None) -> dict[str, object]:
    """Dense inputs as a mapping; a matrix has one column an input, in schema order."""
    if dense is None:
        return {}
    if isinstance(dense, Mapping):
        return dict(dense)
    matrix = floats_of("dense", dense)
    names = [item.name for item in model.dense]
    if matrix.ndim != 2 or matrix.shape[1] != len(names):
        raise RequestError(
            f"dense: expected shape (num_examples, {len(names)}), one column for each of "
            f"{names}, got {matrix.shape}"
        )
    columns: dict[str, object] = {}
    for index, item in enumerate(model.dense):
        column = matrix[:, index]
        if item.scope == "request":
            if (column != column[:1]).any():
                raise RequestError(
                    f"dense column {index} ({item.name!r}): it belongs to the whole request, "
                    "expected the same value in every row, got several"
                )
            column = column[:1]
        columns[item.name] = column
    return columns


def _given(model: ServedModel, given: Mapping[str, object]) -> list[ServedInput]:
    return [item for item in model.inputs if item.name in given]


def _refuse_unknown(
    model: ServedModel, given: Mapping[str, object], kind: str, known: Sequence[ServedInput]
) -> None:
    names = [item.name for item in known]
    for name in given:
        if name not in names:
            raise RequestError(
                f"model {model.name!r} has no {kind} input {name!r}; its {kind} inputs: "
                f"{', '.join(names) or 'none'}"
            )


def _dense_column(item: ServedInput, values: object) -> Float32Array:
    column = floats_of(item.name, values)
    if column.ndim == 0:
        column = column.reshape(1)
    if column.ndim == 2 and 1 in column.shape:
        column = column.reshape(-1)
    if column.ndim != 1:
        raise RequestError(f"input {item.name!r}: expected 1 dimension, got shape {column.shape}")
    if item.scope == "request" and column.size != 1:
        raise RequestError(
            f"input {item.name!r}: it belongs to the whole request, expected 1 value, "
            f"got {column.size}"
        )
    return column


def _lists(item: ServedInput, lists: object) -> FlatLists:
    flat = flatten(item.name, lists)
    if item.scope == "example" or isinstance(lists, Lists) or flat.lengths.size == 1:
        return flat
    if _is_nested(lists):
        raise RequestError(
            f"feature {item.name!r}: it belongs to the whole request, expected one list of ids, "
            f"got {flat.lengths.size}"
        )
    # A flat list is the one list of a request-scoped input.
    return FlatLists(np.asarray([flat.values.size], dtype=np.int32), flat.values)


def _is_nested(lists: object) -> bool:
    if isinstance(lists, Sequence) and not isinstance(lists, str):
        return any(isinstance(item, Sequence) and not isinstance(item, str) for item in lists)
    return np.ndim(lists) > 1  # type: ignore[arg-type]


def _num_examples(
    model: ServedModel,
    stated: int | None,
    columns: Mapping[str, Float32Array],
    lists: Mapping[str, FlatLists],
) -> int:
    """Stated by the caller, or read off the example-scoped inputs, which must agree."""
    sizes: dict[str, int] = {}
    for item in model.inputs:
        if item.scope == "example" and item.name in columns:
            sizes[item.name] = columns[item.name].size
        elif item.scope == "example" and item.name in lists:
            sizes[item.name] = lists[item.name].lengths.size
    expected = stated if stated is not None else next(iter(sizes.values()), 1)
    source = "num_examples" if stated is not None else f"{next(iter(sizes), 'nothing')!r}"
    for name, size in sizes.items():
        if size != expected:
            raise RequestError(
                f"input {name!r}: expected {expected} examples as {source} has, got {size}"
            )
    return expected


def _dense_matrix(
    model: ServedModel, columns: Mapping[str, Float32Array], scope: str, rows: int
) -> npt.NDArray[Any]:
    """Shape ``(rows, inputs of that scope)``, little-endian float32."""
    items = [item for item in model.dense if item.scope == scope]
    matrix = np.empty((rows, len(items)), dtype="<f4")
    for index, item in enumerate(items):
        if item.name in columns:
            matrix[:, index] = columns[item.name]
        elif item.default is not None:
            matrix[:, index] = item.default
        else:
            raise RequestError(f"input {item.name!r}: expected a value, got none (no default)")
    return matrix


def _pack_sparse(
    packed: pb.Packed,
    model: ServedModel,
    lists: Mapping[str, FlatLists],
    weights: Mapping[str, object],
    num_examples: int,
) -> None:
    lengths, values, floats = [], [], []
    for item in model.sparse:
        bags = num_examples if item.scope == "example" else 1
        if item.name not in lists:
            lengths.append(np.zeros(bags, dtype="<i4"))
            continue
        flat = lists[item.name]
        lengths.append(flat.lengths.astype("<i4"))
        values.append(ids_of(item.name, flat.values).astype("<i8"))
        if item.weighted:
            floats.append(_weights(item, flat, weights))
    packed.lengths = b"".join(array.tobytes() for array in lengths)
    packed.values = b"".join(array.tobytes() for array in values)
    packed.weights = b"".join(array.tobytes() for array in floats)


def _weights(item: ServedInput, flat: FlatLists, weights: Mapping[str, object]) -> npt.NDArray[Any]:
    if item.name not in weights:
        raise RequestError(f"feature {item.name!r}: expected a weight for each id, got none")
    given = flatten(item.name, weights[item.name])
    if given.values.size != flat.values.size:
        raise RequestError(
            f"feature {item.name!r}: expected {flat.values.size} weights, one for each id, "
            f"got {given.values.size}"
        )
    return floats_of(item.name, given.values).astype("<f4")
