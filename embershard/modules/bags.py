"""Checked rows of features, and bags of rows as weighted sums, for the lookups of collections."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from embershard.errors import InputError
from embershard.jagged import JaggedTensor, KeyedJaggedTensor
from embershard.kernels import permute_segments
from embershard.modules.configs import EmbeddingBagConfig, EmbeddingConfig, PoolingType

ROW_DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class Bags(NamedTuple):
    """B bags of one feature. The vector of a bag is the sum of ``weights * table[rows]``."""

    rows: Tensor
    """int64 ``(total,)``, all in the table."""

    lengths: Tensor
    """int64 ``(B,)``."""

    weights: Tensor
    """``(total,)``: 0 for a zero vector, otherwise the feature's own weight, or 1. For a mean they
    are divided by the number of ids of the bag."""


class JoinedBags(NamedTuple):
    """The bags of several lookups, lookup after lookup."""

    rows: Tensor
    """int64 ``(total,)``."""

    lengths: Tensor
    """int64 ``(lookups * B,)``."""

    weights: Tensor | None
    """``(total,)``. If None, each row has weight 1."""


def read_all_bags(
    features: KeyedJaggedTensor,
    tables: Sequence[EmbeddingBagConfig],
    *,
    is_weighted: bool,
    dtype: torch.dtype,
) -> JoinedBags:
    """The bags of every feature of every table, in order. Raises the errors of ``read_bags``."""
    joined = _read_at_once(features, tables, is_weighted=is_weighted, dtype=dtype)
    if joined is not None:
        return joined
    bags = [
        read_bags(features, feature, table, is_weighted=is_weighted, dtype=dtype)
        for table in tables
        for feature in table.feature_names
    ]
    return JoinedBags(
        torch.cat([bag.rows for bag in bags]),
        torch.cat([bag.lengths for bag in bags]),
        torch.cat([bag.weights for bag in bags]),
    )


def _read_at_once(
    features: KeyedJaggedTensor,
    tables: Sequence[EmbeddingBagConfig],
    *,
    is_weighted: bool,
    dtype: torch.dtype,
) -> JoinedBags | None:
    """The bags, or None if ``read_bags`` has to read them: on CUDA, if weights need a gradient, or
    if a row is not in its table, such as -1."""
    lookups = [(table, feature) for table in tables for feature in table.feature_names]
    keys, rows = features.index_per_key(), rows_in(features)
    weights = weights_in(features) if is_weighted else None
    if (
        rows.device.type != "cpu"
        or len(keys) < len(features.keys())
        or any(feature not in keys for _, feature in lookups)
        or (is_weighted and (weights is None or weights.requires_grad))
    ):
        return None
    lengths = features.lengths().long().view(len(keys), features.stride())
    features.length_per_key()  # Raises unless the lengths sum to the number of values.
    if not rows.numel() or int(lengths.min()) < 0:
        return None
    weights = None if weights is None else weights.to(dtype)
    order = [keys[feature] for _, feature in lookups]
    if order != list(range(len(keys))):
        places = torch.tensor(order, dtype=torch.int32)
        lengths, rows, weights = permute_segments(places, lengths, rows, weights)
    sizes = torch.tensor([table.num_embeddings for table, _ in lookups])
    sizes = sizes.repeat_interleave(lengths.sum(1), output_size=len(rows))
    if bool(((rows < 0) | (rows >= sizes)).any()):
        return None
    is_mean = [table.pooling is PoolingType.MEAN for table, _ in lookups]
    if any(is_mean):
        shares = lengths.to(dtype).reciprocal()  # an empty bag's infinity is repeated 0 times
        shares[~torch.tensor(is_mean)] = 1
        shares = shares.flatten().repeat_interleave(lengths.flatten(), output_size=len(rows))
        weights = shares if weights is None else weights * shares
    return JoinedBags(rows, lengths.flatten(), weights)


def read_bags(
    features: KeyedJaggedTensor,
    feature: str,
    table: EmbeddingBagConfig,
    *,
    is_weighted: bool,
    dtype: torch.dtype,
) -> Bags:
    """The bags to look up in ``table`` for ``feature``, with weights of ``dtype``. Row -1 stands
    for a zero vector: it adds nothing, but counts in a mean's divisor. Raises InputError for a
    missing feature, or missing weights if weighted; on CPU also for a negative length or a row that
    is neither -1 nor in the table. On CUDA the kernel finds those."""
    jagged = read_lists(features, feature, table)
    rows, lengths = jagged.values(), jagged.lengths()
    weights = (rows >= 0).to(dtype)
    if is_weighted:
        weights_in(features)
        own_weights = jagged.weights_or_none()
        if own_weights is None:
            raise InputError(f"feature {feature!r}: expected weights, got none")
        weights = weights * own_weights.to(dtype)
    if table.pooling is PoolingType.MEAN:
        shares = lengths.to(dtype).reciprocal()  # an empty bag's infinity is repeated 0 times
        weights = weights * shares.repeat_interleave(lengths, output_size=rows.numel())
    return Bags(rows.clamp(min=0), lengths, weights)


def read_lists(features: KeyedJaggedTensor, feature: str, table: EmbeddingConfig) -> JaggedTensor:
    """The lists of ``feature``, as int64 rows of ``table`` or -1, with the feature's own weights,
    if any. Raises `InputError` if there is no such feature, on CPU also for a negative length or
    another row."""
    if feature not in features.keys():  # noqa: SIM118  not a dict
        raise InputError(
            f"feature {feature!r} of table {table.name!r}: expected it in the input, "
            f"got {features.keys()}"
        )
    rows_in(features)
    jagged = features[feature]
    rows, lengths = jagged.values().long(), jagged.lengths().long()
    if rows.device.type == "cpu":
        _check_rows(rows, lengths, where=f"feature {feature!r}, table {table.name!r}", table=table)
    return JaggedTensor(rows, jagged.weights_or_none(), lengths)


def rows_in(features: KeyedJaggedTensor) -> Tensor:
    """The values, which are rows of tables: int64 ``(total,)``, contiguous. Raises `InputError` for
    values that are no integers, or vectors."""
    values = features.values()
    if values.dim() != 1 or values.dtype not in ROW_DTYPES:
        raise InputError(
            f"features {features.keys()}: values: expected integers of shape [total], got "
            f"{values.dtype} of shape {list(values.shape)}"
        )
    return _contiguous(values.long())


def weights_in(features: KeyedJaggedTensor) -> Tensor | None:
    """The weights, if any: ``(total,)``, contiguous. Raises `InputError` for weights that are
    vectors."""
    weights = features.weights_or_none()
    if weights is not None and weights.dim() != 1:
        raise InputError(
            f"features {features.keys()}: weights: expected shape [total], got "
            f"{list(weights.shape)}"
        )
    return None if weights is None else _contiguous(weights)


def _contiguous(numbers: Tensor) -> Tensor:
    """Numbers as kernels read them. A column of a matrix is copied; ``Tensor.contiguous`` would
    leave a column of one number unchanged."""
    if numbers.stride(0) == 1:
        return numbers
    return numbers.clone(memory_format=torch.contiguous_format)


def _check_rows(rows: Tensor, lengths: Tensor, *, where: str, table: EmbeddingConfig) -> None:
    if lengths.numel() and int(lengths.min()) < 0:
        example = int((lengths < 0).nonzero()[0])
        raise InputError(f"{where}: length {int(lengths[example])} at example {example} is < 0")
    if not rows.numel():
        return
    least, greatest = (int(bound) for bound in torch.aminmax(rows))
    if least < -1 or greatest >= table.num_embeddings:
        position = int(((rows < -1) | (rows >= table.num_embeddings)).nonzero()[0])
        raise InputError(
            f"{where}: row {int(rows[position])} at value {position} is not in "
            f"0..{table.num_embeddings - 1}, nor -1 for a zero vector"
        )
