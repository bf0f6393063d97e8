"""Converts named inputs to the packed form of a request."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from embershard._proto import predictor_pb2 as pb
from embershard.client.arrays import (
    Array,
    Convert,
    FlatLists,
    Float32Array,
    flatten,
    floats_of,
    ids_of,
)
from embershard.client.prediction import Scope, ServedInput, ServedModel
from embershard.errors import RequestError

MAX_EXAMPLES = (1 << 31) - 1
"""Limit of the format. The server checks the limit of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    dense: object | None = None
    sparse: Mapping[str, object] | None = None
    weights: Mapping[str, object] | None = None
    num_examples: int | None = None


def pack(model: ServedModel, inputs: Inputs, packed: pb.Packed) -> int:
    """Write inputs to ``packed`` in the layout of the model's schema. Every field is overwritten.

    Returns the number of examples. Raises RequestError for an input that is unknown, missing or of
    the wrong size.
    """
    dense = _dense_by_name(model, inputs.dense)
    sparse = _mapping(model, "sparse", inputs.sparse, model.sparse)
    weighted = [item for item in model.sparse if item.weighted]
    weights = _mapping(model, "weighted sparse", inputs.weights, weighted)

    columns = {
        item.name: _dense_column(item, dense[item.name])
        for item in model.dense
        if item.name in dense
    }
    lists = {
        item.name: _lists(item, sparse[item.name], ids_of)
        for item in model.sparse
        if item.name in sparse
    }
    num_examples = _num_examples(model, inputs.num_examples, columns, lists)
    packed.schema = model.fingerprint
    packed.request_dense = _dense_bytes(model, columns, "request", 1)
    packed.example_dense = _dense_bytes(model, columns, "example", num_examples)
    lengths = [
        lists[item.name].lengths
        if item.name in lists
        else np.zeros(num_examples if item.scope == "example" else 1, np.int32)
        for item in model.sparse
    ]
    packed.lengths = _bytes(lengths, "<i4")
    packed.values = _bytes([flat.values for flat in lists.values()], "<i8")
    packed.weights = _bytes([_weights(item, lists, weights) for item in weighted], "<f4")
    return num_examples


def _mapping(
    model: ServedModel, kind: str, inputs: object, known: Collection[ServedInput]
) -> Mapping[str, object]:
    """Inputs by name, after a check that all names are known."""
    if inputs is None:
        return {}
    if not isinstance(inputs, Mapping):
        raise RequestError(f"{kind} inputs: expected a mapping from names, got {inputs!r:.80}")
    names = dict.fromkeys(item.name for item in known)
    for name in inputs:
        if name not in names:
            raise RequestError(
                f"feature {name!r}: not a {kind} input of model {model.name!r}, expected one of "
                f"{', '.join(map(repr, names)) or 'none'}"
            )
    return inputs


def _dense_by_name(model: ServedModel, dense: object | None) -> Mapping[str, object]:
    """Dense inputs by name. A matrix has one column per input, in schema order."""
    if dense is None or isinstance(dense, Mapping):
        return _mapping(model, "dense", dense, model.dense)
    matrix = floats_of("dense", dense)
    names = [item.name for item in model.dense]
    if matrix.ndim != 2 or matrix.shape[1] != len(names) or len(matrix) == 0:
        raise RequestError(
            f"dense: expected a mapping from names or shape (num_examples, {len(names)}), "
            f"one column for each of {names}, got {matrix.shape}"
        )
    columns: dict[str, object] = {}
    for index, item in enumerate(model.dense):
        column = matrix[:, index]
        if item.scope == "request":
            _check_constant(index, item, column)
            column = column[:1]
        columns[item.name] = column
    return columns


def _check_constant(index: int, item: ServedInput, column: Float32Array) -> None:
    different = (column != column[0]) & ~(np.isnan(column) & np.isnan(column[0]))
    if different.any():
        row = int(different.argmax())
        raise RequestError(
            f"dense column {index}: input {item.name!r} has request scope: expected "
            f"{column[0]} in every row, got {column[row]} in row {row}"
        )


def _dense_column(item: ServedInput, values: object) -> Float32Array:
    column = floats_of(item.name, values)
    if column.ndim == 0 or (column.ndim == 2 and column.shape[1] == 1):
        column = column.reshape(-1)
    if column.ndim != 1:
        raise RequestError(f"input {item.name!r}: expected 1 dimension, got shape {column.shape}")
    if item.scope == "request" and column.size != 1:
        raise RequestError(
            f"input {item.name!r} has request scope: expected 1 value, got {column.size}"
        )
    return column


def _lists(item: ServedInput, lists: object, convert: Convert) -> FlatLists:
    flat = flatten(item.name, lists, convert)
    if item.scope == "example" or (flat.nested and flat.lengths.size == 1):
        return flat
    if flat.nested:
        raise RequestError(
            f"feature {item.name!r} has request scope: expected one list, got {flat.lengths.size}"
        )
    # An input with request scope has one list, so its values need no list around them.
    return FlatLists(np.array([flat.values.size], dtype=np.int32), flat.values, nested=True)


def _num_examples(
    model: ServedModel,
    stated: object,
    columns: Mapping[str, Float32Array],
    lists: Mapping[str, FlatLists],
) -> int:
    """The stated number of examples, or that of the inputs with example scope. All must agree."""
    sizes: dict[str, int] = {}
    for item in model.inputs:
        if item.scope == "example" and item.name in columns:
            sizes[item.name] = columns[item.name].size
        elif item.scope == "example" and item.name in lists:
            sizes[item.name] = lists[item.name].lengths.size
    expected = stated if stated is not None else next(iter(sizes.values()), 1)
    if isinstance(expected, bool) or not isinstance(expected, (int, np.integer)):
        raise RequestError(f"num_examples: expected a whole number, got {expected!r:.40}")
    # num_examples=0 is deliberate, but an empty list is probably a mistake.
    if stated is None and expected == 0:
        raise RequestError(
            f"input {next(iter(sizes))!r}: expected at least 1 example, got none; for outputs in "
            "request scope only, leave the input out and pass num_examples=0"
        )
    if not 0 <= expected <= MAX_EXAMPLES:
        raise RequestError(f"num_examples: expected 0..{MAX_EXAMPLES}, got {expected}")
    source = "num_examples says" if stated is not None else f"{next(iter(sizes), '')!r} has"
    for name, size in sizes.items():
        if size != expected:
            raise RequestError(
                f"input {name!r}: expected {expected} examples as {source}, got {size}"
            )
    return int(expected)


def _dense_bytes(
    model: ServedModel, columns: Mapping[str, Float32Array], scope: Scope, rows: int
) -> bytes:
    items = [item for item in model.dense if item.scope == scope]
    matrix = np.empty((rows, len(items)), dtype="<f4")
    for index, item in enumerate(items):
        if not rows:
            continue
        if item.name in columns:
            matrix[:, index] = columns[item.name]
        elif item.default is not None:
            matrix[:, index] = item.default
        else:
            raise RequestError(f"input {item.name!r}: expected a value, got none (no default)")
    return matrix.tobytes()


def _weights(
    item: ServedInput, lists: Mapping[str, FlatLists], weights: Mapping[str, object]
) -> Array:
    none = FlatLists(np.zeros(0, np.int32), np.zeros(0, np.float32), nested=True)
    ids = lists.get(item.name, none)
    if item.name not in weights:
        if ids.values.size:
            raise RequestError(f"feature {item.name!r}: expected a weight for each id, got none")
        return none.values
    flat = _lists(item, weights[item.name], floats_of)
    if flat.values.size != ids.values.size:
        raise RequestError(
            f"feature {item.name!r}: expected {ids.values.size} weights, one for each id, "
            f"got {flat.values.size}"
        )
    if not ids.values.size or np.array_equal(flat.lengths, ids.lengths):
        return flat.values
    if flat.lengths.size != ids.lengths.size:
        received = f"{flat.lengths.size} lists for {ids.lengths.size}"
    else:
        position = int(np.flatnonzero(flat.lengths != ids.lengths)[0])
        received = (
            f"{flat.lengths[position]} weights for {ids.lengths[position]} ids in list {position}"
        )
    raise RequestError(
        f"feature {item.name!r}: expected lists of weights as long as those of ids, got {received}"
    )


def _bytes(arrays: list[Array], dtype: str) -> bytes:
    return np.concatenate(arrays, dtype=dtype).tobytes() if arrays else b""
