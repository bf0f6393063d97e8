"""From named inputs to the packed form of a request."""

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
"""Of any request. The model's own limit is the server's to check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a caller wants scored, as they hold it. See :meth:`embershard.Client.predict`."""

    dense: object | None = None
    sparse: Mapping[str, object] | None = None
    weights: Mapping[str, object] | None = None
    num_examples: int | None = None


def pack(model: ServedModel, inputs: Inputs, packed: pb.Packed) -> int:
    """Lay inputs out as the model's schema says, setting every field anew; returns the number of
    examples. `RequestError`: an input is unknown, missing or of the wrong size."""
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
    packed.values = _bytes([each.values for each in lists.values()], "<i8")
    packed.weights = _bytes([_weights(item, lists, weights) for item in weighted], "<f4")
    return num_examples


def _mapping(
    model: ServedModel, kind: str, given: object, known: Collection[ServedInput]
) -> Mapping[str, object]:
    """Inputs by name, every one of them known."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise RequestError(f"{kind} inputs: expected a mapping from their names, got {given!r:.80}")
    names = dict.fromkeys(item.name for item in known)
    for name in given:
        if name not in names:
            raise RequestError(
                f"feature {name!r}: not a {kind} input of model {model.name!r}, expected one of "
                f"{', '.join(map(repr, names)) or 'none'}"
            )
    return given


def _dense_by_name(model: ServedModel, dense: object | None) -> Mapping[str, object]:
    """Dense inputs as a mapping; a matrix has one column an input, in schema order."""
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
            f"dense column {index} ({item.name!r}): it belongs to the whole request, expected "
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
            f"input {item.name!r}: it belongs to the whole request, expected 1 value, "
            f"got {column.size}"
        )
    return column


def _lists(item: ServedInput, lists: object, convert: Convert) -> FlatLists:
    flat = flatten(item.name, lists, convert)
    if item.scope == "example" or (flat.nested and flat.lengths.size == 1):
        return flat
    if flat.nested:
        raise RequestError(
            f"feature {item.name!r}: it belongs to the whole request, expected one list, "
            f"got {flat.lengths.size}"
        )
    # Values without a list around them are the one list of a request-scoped input.
    return FlatLists(np.array([flat.values.size], dtype=np.int32), flat.values, nested=True)


def _num_examples(
    model: ServedModel,
    stated: object,
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
    if isinstance(expected, bool) or not isinstance(expected, (int, np.integer)):
        raise RequestError(f"num_examples: expected a whole number, got {expected!r:.40}")
    # A caller who states num_examples=0 means it; an empty list is a mistake.
    if stated is None and expected == 0:
        raise RequestError(
            f"input {next(iter(sizes))!r}: expected at least 1 example, got none; for outputs in "
            "request scope only, leave it out and write num_examples=0"
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
    """A matrix ``(rows, inputs of that scope)``."""
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
    """One for each id of one weighted input."""
    none = FlatLists(np.zeros(0, np.int32), np.zeros(0, np.float32), nested=True)
    ids = lists.get(item.name, none)
    if item.name not in weights:
        if ids.values.size:
            raise RequestError(f"feature {item.name!r}: expected a weight for each id, got none")
        return none.values
    given = _lists(item, weights[item.name], floats_of)
    if given.values.size != ids.values.size:
        raise RequestError(
            f"feature {item.name!r}: expected {ids.values.size} weights, one for each id, "
            f"got {given.values.size}"
        )
    if not ids.values.size or np.array_equal(given.lengths, ids.lengths):
        return given.values
    if given.lengths.size != ids.lengths.size:
        got = f"{given.lengths.size} lists for {ids.lengths.size}"
    else:
        at = int(np.flatnonzero(given.lengths != ids.lengths)[0])
        got = f"{given.lengths[at]} weights for {ids.lengths[at]} ids in list {at}"
    raise RequestError(
        f"feature {item.name!r}: expected lists of weights as long as those of ids, got {got}"
    )


def _bytes(arrays: list[Array], dtype: str) -> bytes:
    return np.concatenate(arrays, dtype=dtype).tobytes() if arrays else b""
