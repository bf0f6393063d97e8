"""From examples with raw ids to the tensors that a model's forward takes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from embershard.data.base import Examples, JaggedColumn
from embershard.data.id_lists import IdLists
from embershard.data.requests import sample_requests
from embershard.data.splits import Batch, Split, check_batch_size, check_part, even_sizes
from embershard.data.table_rows import Shares, TableRows
from embershard.errors import InputError
from embershard.modules import DenseTransforms
from embershard.package.id_maps import ZERO_ROW, Identity, IdMap, Vocabulary
from embershard.package.samples import SampleRequest
from embershard.package.schema import Schema, SparseInput


@dataclass(frozen=True, slots=True, kw_only=True)
class RowExamples:
    """N `Examples` after transforms and id mapping, a `Split` in memory. `to_rows` builds it once;
    every epoch cuts it into batches."""

    schema: Schema
    dense: Tensor
    """float32 ``[N, F]``, transformed, columns in ``schema.dense`` order."""

    rows: Mapping[str, JaggedColumn]
    """Table rows of every input in ``schema.sparse``, N lists each; -1 stands for a zero vector."""

    labels: Tensor
    """float32 ``[N]``, or ``[N, T]`` for T > 1 tasks. A label that is NaN does not count."""

    examples: Examples

    def __len__(self) -> int:
        return len(self.labels)

    def batches(
        self,
        *,
        batch_size: int,
        shuffle_seed: int | None = None,
        id_dropout: Mapping[str, float] | None = None,
        rank: int = 0,
        world_size: int = 1,
        first: int = 0,
    ) -> Iterator[Batch]:
        """One pass over the examples; see `batches`."""
        check_batch_size(batch_size)
        check_part(rank, world_size, first)
        shares = dropout_shares(self.schema, id_dropout, shuffle_seed)
        return self._batches(batch_size, shuffle_seed, shares, rank, world_size, first)

    def _batches(
        self,
        batch_size: int,
        shuffle_seed: int | None,
        shares: Shares,
        rank: int,
        world_size: int,
        first: int,
    ) -> Iterator[Batch]:
        order, rng = np.arange(len(self)), np.random.default_rng(shuffle_seed)
        if shuffle_seed is not None:
            rng.shuffle(order)
        rows = self._table_rows()
        for number, start in enumerate(range(0, len(order), batch_size)):
            index = order[start : start + batch_size]
            begin, end = (len(index) * edge // world_size for edge in (rank, rank + 1))
            if shares:
                # Draws for the whole batch, so that each id's fate does not depend on the ranks.
                own = rows.take(index).without_ids(shares, rng).part(begin, end)
            else:
                own = rows.take(index[begin:end])
            if number >= first:
                yield own.to_batch(self.schema)

    def _table_rows(self) -> TableRows:
        labels = self.labels.numpy()
        arrays = {
            "dense": self.dense.numpy(),
            "labels": labels if labels.ndim == 2 else labels[:, None],
            "request": self.examples.request,
        }
        if self.examples.weights is not None:
            arrays["weights"] = self.examples.weights
        return TableRows(arrays, {name: IdLists(*column) for name, column in self.rows.items()})

    def batch_sizes(
        self, *, batch_size: int, shuffle_seed: int | None = None, world_size: int = 1
    ) -> NDArray[np.int64]:
        """Examples of each batch of one pass, of all ranks together."""
        return even_sizes(len(self), batch_size)

    def label_means(self) -> list[float]:
        return self.examples.label_means()

    def samples(self, count: int) -> list[SampleRequest]:
        return sample_requests(self.examples, count)


def to_rows(examples: Examples) -> RowExamples:
    """Apply the transforms of every dense input, and ``max_ids``, ``keep`` and the id map of every
    sparse input. Raises InputError for an id that its map rejects, a list over ``max_ids`` if
    ``keep`` is reject, or a value whose transforms have no finite result."""
    labels = torch.from_numpy(examples.labels)
    return RowExamples(
        schema=examples.schema,
        dense=_transformed(examples.schema, torch.from_numpy(examples.dense)),
        rows={
            item.name: _rows_of(item, examples.sparse[item.name]) for item in examples.schema.sparse
        },
        labels=labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels,
        examples=examples,
    )


def as_split(data: Examples | Split) -> Split:
    """``data`` in the form that training reads; raises InputError like `to_rows`."""
    return to_rows(data) if isinstance(data, Examples) else data


def batches(
    examples: Examples | Split,
    *,
    batch_size: int,
    shuffle_seed: int | None = None,
    id_dropout: Mapping[str, float] | None = None,
    rank: int = 0,
    world_size: int = 1,
    first: int = 0,
) -> Iterator[Batch]:
    """Cut N examples into batches; the last one may be smaller.

    ::

        from embershard.data import batches

        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for batch in batches(examples, batch_size=2, shuffle_seed=0):
            scores = model(batch.dense, batch.sparse)
            loss = torch.nn.functional.binary_cross_entropy(scores, batch.labels)
            optimizer.zero_grad()
            loss.backward()  # Trains the rows of the batch.
            optimizer.step()  # Trains the linear layers.

    Args:
        examples: pass `to_rows(examples)` to map ids once for many epochs.
        batch_size: examples per batch, at least 1.
        shuffle_seed: seed of the order of the examples. None keeps their order.
        id_dropout: per sparse input, the probability with which each id is treated as unknown
            (the ``oov`` row, or no vector under ``zero``), so that training sees what serving will
            when most ids are new. Drawn from ``shuffle_seed``, which it requires.
        rank: number of the part of each batch to return, of ``world_size`` equal parts. A part may
            be empty. The parts together are the batch that one process would get.
        world_size: number of processes that train together.
        first: number of batches to skip, because a resumed run has trained on them.

    Raises:
        InputError: arguments out of range, a name that is no sparse input, an input whose ids
            cannot be unknown, or what `to_rows` refuses.
    """
    return as_split(examples).batches(
        batch_size=batch_size,
        shuffle_seed=shuffle_seed,
        id_dropout=id_dropout,
        rank=rank,
        world_size=world_size,
        first=first,
    )


def _transformed(schema: Schema, dense: Tensor) -> Tensor:
    transformed: Tensor = DenseTransforms(schema)(dense)
    if transformed is not dense and not transformed.isfinite().all():
        example, column = (~transformed.isfinite()).nonzero()[0].tolist()
        raise InputError(
            f"dense {schema.dense[column].name!r}: expected values whose transforms are finite, "
            f"got {dense[example, column]:g} in example {example}; put a Clip first"
        )
    return transformed


def _rows_of(item: SparseInput, raw: JaggedColumn) -> JaggedColumn:
    kept = keep_ids(item, raw)
    if item.ids is None:
        return kept
    try:
        return JaggedColumn(item.ids.rows_of(kept.values), kept.offsets)
    except InputError as error:
        place = int(np.argmax(item.ids.lookup(kept.values) == ZERO_ROW))
        example = int(np.searchsorted(kept.offsets, place, side="right")) - 1
        cut = raw.lengths[example] - kept.lengths[example] if item.keep == "last" else 0
        where = f"at example {example}, position {place - kept.offsets[example] + cut}"
        problem = str(error).replace(f"at position {place}", where)
        raise InputError(f"feature {item.name!r}: {problem}") from error


def keep_ids(item: SparseInput, raw: JaggedColumn) -> JaggedColumn:
    """At most ``max_ids`` ids of each list; 0 means no limit."""
    lengths = raw.lengths
    if not item.max_ids or not (lengths > item.max_ids).any():
        return raw
    if item.keep == "reject":
        example = int(np.argmax(lengths > item.max_ids))
        raise InputError(
            f"feature {item.name!r}: example {example}: expected at most {item.max_ids} ids, "
            f"got {lengths[example]}"
        )
    return IdLists(*raw).at_most(item.max_ids, item.keep).column()


def dropout_shares(
    schema: Schema, dropout: Mapping[str, float] | None, shuffle_seed: int | None
) -> Shares:
    """The share of ids to drop and the row of unknown ids, in the order of the schema. Raises
    InputError for no seed, or shares that `unknown_rows` refuses."""
    if dropout and shuffle_seed is None:
        raise InputError("id_dropout: expected shuffle_seed with it, got None")
    shares = dropout or {}
    rows = unknown_rows(schema, shares)
    return {name: (shares[name], rows[name]) for name in schema.sparse_names() if name in rows}


def unknown_rows(schema: Schema, dropout: Mapping[str, float]) -> dict[str, int]:
    """The row of unknown ids for each input of ``dropout``. Raises InputError for a share out of
    range, a name that is no sparse input, or an input whose ids cannot be unknown."""
    inputs = {item.name: item for item in schema.sparse}
    rows = {}
    for name, probability in dropout.items():
        if name not in inputs:
            raise InputError(f"id_dropout: expected one of {list(inputs)}, got {name!r}")
        if not 0 <= probability <= 1:
            raise InputError(f"id_dropout of {name!r}: expected 0 to 1, got {probability}")
        rows[name] = _unknown_row(name, inputs[name].ids)
    return rows


def _unknown_row(name: str, ids: IdMap | None) -> int:
    if isinstance(ids, (Identity, Vocabulary)):
        if ids.unknown == "oov":
            return ids.num_rows - 1
        if ids.unknown == "zero":
            return ZERO_ROW
    raise InputError(
        f"id_dropout of {name!r}: expected an id map with oov or zero, got {ids!r:.80}"
    )
