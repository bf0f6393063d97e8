"""``ShardedTables``: this rank's shards of one collection and their kernels."""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, groupby, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from embershard.jagged import KeyedJaggedTensor
from embershard.kernels import AnyFusedTables, FusedOptimizer, build_fused_tables
from embershard.modules import DataType, EmbeddingConfig
from embershard.package.rectangles import Shard
from embershard.sharding.environment import CPU, ShardingEnv
from embershard.sharding.incoming import Incoming
from embershard.sharding.layout import Layout, Part
from embershard.sharding.types import shape_of

ROWS_OF_BLOCK = 1 << 16
"""Number of rows that one seed initializes."""


class AccessCounts:
    """Counts lookups of each row in training, for several tables in one buffer of 8 bytes a row.
    ``lookups`` has the position in ``rows`` of the table that each lookup reads."""

    def __init__(self, rows: Sequence[int], lookups: Sequence[int], device: torch.device) -> None:
        self._counts = torch.zeros(sum(rows), dtype=torch.int64, device=device)
        self.tables = list(torch.split(self._counts, list(rows)))
        """int64 ``(rows,)`` of each table: views, written in place."""
        firsts = list(accumulate(rows, initial=0))
        self._firsts = torch.tensor([firsts[table] for table in lookups], device=device)

    def add(self, ids: Tensor, ends: Tensor) -> None:
        """Count rows ``ids``, int64, lookup after lookup. ``ends`` has where each lookup begins,
        and their end."""
        if not len(ids):
            return
        places = ids + self._firsts.repeat_interleave(ends.diff(), output_size=len(ids))
        self._counts.index_add_(0, places, torch.ones_like(places))

    def add_features(self, features: KeyedJaggedTensor, tables: Iterable[EmbeddingConfig]) -> None:
        """Count the ids of all features of ``tables``, which must match ``rows``. Negative rows
        stand for unknown ids and are not counted."""
        names = [feature for table in tables for feature in table.feature_names]
        ids = [features[name].values().long() for name in names]
        ids = [rows[rows >= 0] for rows in ids]
        ends = torch.tensor([0, *map(len, ids)], device=self._counts.device).cumsum(0)
        self.add(torch.cat(ids), ends)


class LookupClock:
    """CPU seconds of the kernels of one or several collections in training, in all threads."""

    def __init__(self) -> None:
        self.lookup_seconds = 0.0
        self.update_seconds = 0.0
        self._started = 0.0

    def timed(self, look_up: Callable[[], Tensor]) -> Tensor:
        """Call ``look_up`` and count its time, and later that of its backward pass."""
        if not torch.is_grad_enabled():
            return look_up()
        started = time.process_time()
        vectors = look_up()
        self.lookup_seconds += time.process_time() - started
        if (node := vectors.grad_fn) is not None:
            node.register_prehook(self._begin)
            node.register_hook(self._end)
        return vectors

    def _begin(self, _: Any) -> None:
        self._started = time.process_time()

    def _end(self, *_: Any) -> None:
        self.update_seconds += time.process_time() - self._started


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalShard:
    """A shard on this rank."""

    shard: Shard
    weight: Tensor
    """Rows and columns of the shard in the table's data_type: a view, written in place by every
    backward."""

    state: Mapping[str, Tensor]
    """Optimizer state by name, also views: ``momentum1``, ``momentum2``, ``steps``; see
    ``embershard.kernels.FusedTables.states``."""

    parameter: nn.Parameter | None = None
    """Parameter of the caller's optimizer, for the dense kernel; ``weight`` is a view of it."""

    optimizer: str | None = None
    accesses: Tensor | None = None
    """int64 ``(rows,)``: lookups of each row in training, a view. None: not counted."""

    @property
    def moments(self) -> dict[str, Tensor]:
        """``state`` without ``steps``: one number for each row, ``(rows,)``, or for each value."""
        return {name: tensor for name, tensor in self.state.items() if name != "steps"}


class DenseTables:
    """Tables with the interface of ``FusedTables``, and gradients of the size of the tables."""

    def __init__(
        self, shapes: Sequence[tuple[int, int]], lookups: Sequence[int], device: torch.device
    ) -> None:
        self._lookups = list(lookups)
        self.weights = [
            nn.Parameter(torch.zeros(shape, dtype=torch.float32, device=device)) for shape in shapes
        ]

    def lookup(self, rows: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        sums = [
            functional.embedding_bag(
                rows[ids],
                self.weights[table],
                bags[:-1] - bags[0],
                mode="sum",
                per_sample_weights=None if weights is None else weights[ids],
            )
            for table, bags, ids in self._calls(offsets)
        ]
        return torch.cat(sums, dim=1)

    def gather(self, rows: Tensor, offsets: Tensor) -> Tensor:
        vectors = [
            functional.embedding(rows[ids], self.weights[table])
            for table, _, ids in self._calls(offsets)
        ]
        return torch.cat(vectors)

    def _calls(self, offsets: Tensor) -> Iterator[tuple[int, Tensor, slice]]:
        """For each lookup: its table, the offsets of its bags with their end, and its ids."""
        examples = (len(offsets) - 1) // len(self._lookups)
        ends: list[int] = offsets[:: examples or 1].cpu().tolist()
        for place, (table, (first, end)) in enumerate(
            zip(self._lookups, pairwise(ends), strict=True)
        ):
            bags = offsets[place * examples : (place + 1) * examples + 1]
            yield table, bags, slice(first, end)


@dataclass(slots=True, kw_only=True)
class _Group:
    """Shards of one kernel."""

    tables: AnyFusedTables | DenseTables
    lookups: list[int]
    """Position in the group of the shard that each part reads."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings as in ``torch.optim``. Empty: the dense kernel."""
    accesses: AccessCounts | None = None


class ShardedTables:
    """This rank's shards of one collection, built with zeros for the caller to fill. ``pooled`` is
    True for ``lookup``, False for ``gather``."""

    def __init__(self, layout: Layout, env: ShardingEnv, *, pooled: bool = True) -> None:
        self._pooled, self._device = pooled, env.device
        self.clock: LookupClock | None = None
        """Measures lookups and updates from now on. None: they are not measured."""
        self._groups = list[_Group]()
        self._columns = layout.dim_of(env.rank)
        self.shards = list[LocalShard]()
        for (optimizer, data_type, compute_kernel, _), parts in groupby(
            layout.parts[env.rank], key=lambda part: part.kernel(pooled=pooled)
        ):
            self._add_group(optimizer, data_type, compute_kernel, list(parts))
        # Autograd calls backward only if an input requires a gradient, also on ranks without
        # tables.
        self._anchor = torch.zeros(0, dtype=torch.float32, device=env.device, requires_grad=True)

    def lookup(self, incoming: Incoming) -> Tensor:
        """Sums of bags: float32 ``(examples of all ranks, columns of all parts)``."""
        examples = sum(incoming.examples)
        weights = incoming.weights
        pooled = [
            self._timed(
                partial(
                    tables.lookup,
                    incoming.ids[ids],
                    offsets,
                    None if weights is None else weights[ids],
                )
            )
            for tables, ids, offsets in self._calls(incoming)
            if examples
        ]
        if not pooled:
            # Include the weights, so that trained weights without ids get a gradient of 0.
            nothing = self._anchor.sum() + (0 if weights is None else weights.sum())
            return self._anchor.new_zeros(examples, self._columns) + nothing
        return pooled[0] if len(pooled) == 1 else torch.cat(pooled, dim=1)

    def gather(self, incoming: Incoming) -> Tensor:
        """Rows of all ids: float32, flat, part after part, rank after rank."""
        vectors = list[Tensor]()
        for tables, ids, offsets in self._calls(incoming):
            if len(offsets) == 1:  # No examples.
                continue
            if ids.start < ids.stop or isinstance(tables, DenseTables):
                rows = self._timed(partial(tables.gather, incoming.ids[ids], offsets))
                vectors.append(rows.flatten())
            else:  # This still counts as a step.
                tables.count()
        return torch.cat([self._anchor, *vectors]) if len(vectors) != 1 else vectors[0]

    def _timed(self, look_up: Callable[[], Tensor]) -> Tensor:
        return look_up() if self.clock is None else self.clock.timed(look_up)

    def _calls(
        self, incoming: Incoming
    ) -> Iterator[tuple[AnyFusedTables | DenseTables, slice, Tensor]]:
        """For each kernel: its tables, its ids, and the offsets of their bags."""
        examples = sum(incoming.examples)
        counts = incoming.counts.sum(1).tolist()
        self.apply_learning_rates()
        part, at = 0, 0
        for group in self._groups:
            parts = len(group.lookups)
            total = sum(counts[part : part + parts])
            lengths = incoming.lengths[part * examples : (part + parts) * examples]
            offsets = lengths.new_zeros(len(lengths) + 1)
            torch.cumsum(lengths, 0, out=offsets[1:])
            if group.accesses is not None and torch.is_grad_enabled():
                group.accesses.add(incoming.ids[at : at + total], offsets[:: examples or 1])
            yield group.tables, slice(at, at + total), offsets
            part, at = part + parts, at + total

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Settings of each fused kernel, as in ``torch.optim``. Lookups read ``lr``."""
        return [group.settings for group in self._groups if group.settings]

    def apply_learning_rates(self) -> None:
        for group in self._groups:
            if not isinstance(group.tables, DenseTables):
                group.tables.set_learning_rate(float(group.settings["lr"]))

    def set_learning_rate(self, learning_rate: float) -> None:
        for settings in self.param_groups:
            settings["lr"] = learning_rate
        self.apply_learning_rates()

    def flush(self) -> None:
        """Write the rows in device caches to the shards' weights, and empty the caches."""
        for group in self._groups:
            if not isinstance(group.tables, DenseTables):
                group.tables.flush()

    def count_accesses(self) -> None:
        counted = list[LocalShard]()
        for group in self._groups:
            shards = self.shards[len(counted) : len(counted) + len(group.tables.weights)]
            rows = [len(shard.weight) for shard in shards]
            group.accesses = AccessCounts(rows, group.lookups, self._device)
            counted += [
                replace(shard, accesses=accesses)
                for shard, accesses in zip(shards, group.accesses.tables, strict=True)
            ]
        self.shards = counted

    def _add_group(
        self,
        optimizer: FusedOptimizer | None,
        data_type: DataType,
        compute_kernel: str,
        parts: Sequence[Part],
    ) -> None:
        shards = list(dict.fromkeys(part.shard for part in parts))
        lookups = [shards.index(part.shard) for part in parts]
        shapes = [shape_of(shard) for shard in shards]
        if optimizer is None:
            dense = DenseTables(shapes, lookups, self._device)
            self._groups.append(_Group(tables=dense, lookups=lookups))
            self.shards += [
                LocalShard(shard=shard, weight=weight.detach(), state={}, parameter=weight)
                for shard, weight in zip(shards, dense.weights, strict=True)
            ]
            return
        tables = build_fused_tables(
            shapes,
            lookups,
            optimizer=optimizer,
            device=self._device,
            pooled=self._pooled,
            compute_kernel=compute_kernel,
            dtype=data_type.dtype,
        )
        settings: dict[str, Any] = {
            "params": tables.weights,
            "lr": optimizer.learning_rate,
            "eps": optimizer.eps,
            "max_gradient": optimizer.max_gradient,
        }
        self._groups.append(_Group(tables=tables, lookups=lookups, settings=settings))
        self.shards += [
            LocalShard(
                shard=shard,
                weight=tables.weights[place],
                state=tables.states[place],
                optimizer=optimizer.name,
            )
            for place, shard in enumerate(shards)
        ]


@torch.no_grad()
def fill_shard(
    table: EmbeddingConfig, shard: Shard, weight: Tensor, seed: int, *, into: Tensor
) -> None:
    """Initialize the weights ``into`` of a shard from those of the whole table. If that is on
    device meta, they are new values by ``seed``, equal under every plan. An ``init_fn`` fills the
    shard itself, so its values also depend on the plan."""
    if weight.device.type != "meta":
        into.copy_(weight[slice(*shard.rows), slice(*shard.columns)])
        return
    if table.init_fn is not None:
        # Ranks often share torch's seed: all their shards of one size would get the same values.
        with torch.random.fork_rng([into.device] if into.is_cuda else []):
            # torch.manual_seed would also seed other devices, whose state would not be restored.
            shard_seed = _seed(f"{seed} {table.name} {shard.rows} {shard.columns}")
            torch.default_generator.manual_seed(shard_seed)
            if into.is_cuda:
                torch.cuda.default_generators[into.device.index].manual_seed(shard_seed)
            table.init_fn(into)
        return
    low, high = table.init_range()
    (first, end), columns = shard.rows, slice(*shard.columns)
    for start in range(first - first % ROWS_OF_BLOCK, end, ROWS_OF_BLOCK):
        rows = min(ROWS_OF_BLOCK, table.num_embeddings - start)
        generator = torch.Generator(CPU).manual_seed(_seed(f"{seed} {table.name} {start}"))
        block = torch.empty(rows, table.embedding_dim, device=CPU)
        block.uniform_(low, high, generator=generator)
        a, b = max(first, start), min(end, start + rows)
        into[a - first : b - first] = block[a - start : b - start, columns]


def _seed(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")
