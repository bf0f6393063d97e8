"""``Sorter`` sorts the ids of a batch by the rank that they are sent to, as ``Outgoing``."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.jagged.checks import negative_fault
from embershard.kernels import permute_segments
from embershard.modules import EmbeddingConfig
from embershard.modules.bags import read_lists, rows_in, weights_in
from embershard.modules.position_weights import check_positions, positions_of
from embershard.modules.variable_batch import pad_variable_batch
from embershard.sharding.environment import CPU
from embershard.sharding.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """Ids of this rank's batch for one collection, stream after stream, rank after rank."""

    examples: int
    """Number of examples in this rank's batch."""

    ids: Tensor
    """int64 ``(total,)``: rows of their bucket."""

    lengths: Tensor
    """int32 ``(streams of all ranks, B)``."""

    weights: Tensor | None
    """float32 ``(total,)``."""

    counts: Tensor
    """int64 ``(streams of all ranks,)``: ids of each stream."""

    bag_lengths: Tensor
    """int64 ``(lookups, B)``: as in the input, with ids of -1 counted."""

    bag_counts: list[int]
    """Sum of ``bag_lengths`` for each lookup."""

    positions: Tensor | None
    """int64 ``(total,)``: position of each id among those of all lookups, with ids of -1 counted.
    None: pooled."""


class Sorter:
    """Checks a batch and sorts its ids by rank. Features of ``replicated`` tables are checked and
    not sent. If not ``pooled``, positions of ids are kept. ``max_lengths`` has the most ids of a
    bag by feature, to send positions in place of weights."""

    def __init__(
        self,
        layout: Layout,
        *,
        is_weighted: bool,
        replicated: Sequence[EmbeddingConfig],
        device: torch.device,
        pooled: bool = True,
        max_lengths: Mapping[str, int] | None = None,
    ) -> None:
        self.expand = pad_variable_batch
        """Turns a variable batch into one with the same number of examples for all keys."""
        self._pooled, self._max_lengths = pooled, max_lengths
        self._layout, self._is_weighted, self._replicated = layout, is_weighted, replicated
        self._device = device
        self._features = [lookup.feature for lookup in layout.lookups]
        rows = torch.tensor(
            [lookup.table.num_embeddings for lookup in layout.lookups],
            dtype=torch.int64,
            device=CPU,
        )
        bases = rows.cumsum(0) - rows
        self._rows, self._bases = rows.to(device), bases.to(device)
        self._lookups = torch.arange(len(rows), device=device)
        self._is_cut = len(layout.buckets) > len(layout.lookups)
        lookup_of = [bucket.lookup for bucket in layout.buckets]
        ends = torch.tensor(
            [bucket.rows.end for bucket in layout.buckets], dtype=torch.int64, device=CPU
        )
        self._bucket_ends = (ends + bases[lookup_of]).to(device)
        starts = torch.tensor(
            [bucket.rows.first for bucket in layout.buckets], dtype=torch.int64, device=CPU
        )
        self._bucket_starts = starts.to(device)
        sent = [bucket for streams in layout.streams for bucket in streams]
        self._sent = torch.tensor(sent, dtype=torch.int32, device=device)
        self._is_sorted = sent == list(range(len(layout.buckets)))

    def sort(self, features: object) -> Outgoing:
        if not isinstance(features, KeyedJaggedTensor):
            got = type(features).__name__
            raise InputError(f"features: expected a KeyedJaggedTensor, got {got}")
        for name, tensor in (("values", features.values()), ("lengths", features.lengths())):
            if tensor.device != self._device:
                raise InputError(
                    f"features: {name}: expected a tensor on {self._device}, got {tensor.device}"
                )
        features = self.expand(features)
        for table in self._replicated:
            for feature in table.feature_names:
                read_lists(features, feature, table)
        self._check_positions(features)
        bag_counts, ids, lengths, weights = self._select(features)
        examples = lengths.shape[1]
        lookup_of_id = self._lookups.repeat_interleave(lengths.sum(1), output_size=len(ids))
        bag_lengths = lengths
        positions = None if self._pooled else torch.arange(len(ids), device=ids.device)
        bag_of_id: Tensor | None = None
        keep = ids >= 0
        if not self._check(ids, lookup_of_id, keep):
            bag_of_id = _bags(lengths, len(ids))[keep]
            ids, lookup_of_id = ids[keep], lookup_of_id[keep]
            weights = None if weights is None else weights[keep]
            positions = None if positions is None else positions[keep]
            lengths = _count_places(bag_of_id, lengths.shape)
        if self._is_cut:
            if bag_of_id is None:
                bag_of_id = _bags(lengths, len(ids))
            rows = ids + self._bases[lookup_of_id]
            buckets = torch.bucketize(rows, self._bucket_ends, right=True)
            order = buckets.argsort(stable=True)
            ids = (ids - self._bucket_starts[buckets])[order]
            weights = None if weights is None else weights[order]
            positions = None if positions is None else positions[order]
            places = buckets * examples + bag_of_id % max(examples, 1)
            lengths = _count_places(places, (len(self._bucket_ends), examples))
        if not self._is_sorted:
            if positions is not None:
                positions = permute_segments(self._sent, lengths, positions)[1]
            lengths, ids, weights = permute_segments(self._sent, lengths, ids, weights)
        return Outgoing(
            examples=examples,
            ids=ids,
            lengths=lengths.int(),
            weights=weights,
            counts=lengths.sum(1),
            bag_lengths=bag_lengths,
            bag_counts=bag_counts,
            positions=positions,
        )

    def _select(
        self, features: KeyedJaggedTensor
    ) -> tuple[list[int], Tensor, Tensor, Tensor | None]:
        """Number of ids of each lookup, int64 ids, int64 lengths ``(lookups, B)`` and weights,
        lookup after lookup."""
        is_read = self._is_weighted and self._max_lengths is None
        weights = weights_in(features) if is_read else None
        if is_read and weights is None:
            feature = self._features[0] if self._features else features.keys()
            raise InputError(f"feature {feature!r}: expected weights, got none")
        if weights is not None and weights.requires_grad:
            raise InputError(
                "weights: expected weights that require no gradient, which sharded training does "
                "not compute; FeatureProcessedEmbeddingBagCollection trains position weights"
            )
        keys = features.index_per_key()
        for lookup in self._layout.lookups:
            if lookup.feature not in keys:
                raise InputError(
                    f"feature {lookup.feature!r} of table {lookup.table.name!r}: expected it in "
                    f"the input, got {features.keys()}"
                )
        lengths = features.lengths().long().view(len(features.keys()), features.stride())
        if lengths.numel() and int(lengths.min()) < 0:
            raise InputError(negative_fault(features.keys(), lengths.shape[1], lengths.flatten()))
        # Raises unless the lengths sum to the number of values.
        counts = features.length_per_key()
        ids = rows_in(features)
        weights = None if weights is None else weights.float()
        if features.keys() != self._features:
            order = [keys[name] for name in self._features]
            counts = [counts[at] for at in order]
            places = torch.tensor(order, dtype=torch.int32, device=ids.device)
            lengths, ids, weights = permute_segments(places, lengths, ids, weights)
        if self._max_lengths is not None:
            weights = positions_of(lengths.flatten(), len(ids)).float()
        return counts, ids, lengths, weights

    def _check_positions(self, features: KeyedJaggedTensor) -> None:
        for feature, most in (self._max_lengths or {}).items():
            if feature in features.keys():  # noqa: SIM118  not a dict
                check_positions(f"feature {feature!r}: ", features[feature].lengths(), most)

    def _check(self, ids: Tensor, lookup_of_id: Tensor, keep: Tensor) -> bool:
        """True if all ids are kept. Refuses rows outside their tables."""
        outside = (ids < -1) | (ids >= self._rows[lookup_of_id])
        is_outside, is_kept = torch.stack([outside.any(), keep.all()]).cpu().tolist()
        if not is_outside:
            return bool(is_kept)
        at = int(outside.nonzero()[0])
        lookup = self._layout.lookups[int(lookup_of_id[at])]
        position = at - int((lookup_of_id == lookup_of_id[at]).nonzero()[0])
        raise InputError(
            f"feature {lookup.feature!r}, table {lookup.table.name!r}: row {int(ids[at])} at value "
            f"{position} is not in 0..{lookup.table.num_embeddings - 1}, nor -1 for a zero vector"
        )


def _bags(lengths: Tensor, total: int) -> Tensor:
    """Bag of each id, as its position in the flat lengths."""
    flat = lengths.flatten()
    bags = torch.arange(len(flat), device=flat.device)
    return bags.repeat_interleave(flat, output_size=total)


def _count_places(places: Tensor, shape: Sequence[int]) -> Tensor:
    """Number of occurrences of each place. Unlike bincount, this does not wait for a device."""
    counts = places.new_zeros(math.prod(shape))
    return counts.scatter_add_(0, places, torch.ones_like(places)).view(*shape)
