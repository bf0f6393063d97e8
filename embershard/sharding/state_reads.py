"""``StateReads`` chooses what to read from a folder into a model, under any plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from embershard.errors import DataError
from embershard.optim import KeyedOptimizer
from embershard.package.rectangles import Shard
from embershard.sharding.block_files import Block, SavedTensor
from embershard.sharding.dense_state import (
    DenseReads,
    SavedState,
    optimizer_fault,
    warmup_progress,
)
from embershard.sharding.held_table import HeldTable
from embershard.sharding.held_tables import (
    counters_of_replicas,
    counters_of_shard,
    held_tables,
    inner_module,
    meta_fault,
    whole_tensors,
)
from embershard.sharding.model_parallel import DistributedModelParallel
from embershard.sharding.row_wise_state import RowWiseRead
from embershard.sharding.tables import LocalShard

NO_WEIGHTS = ("optimizer.", "training.")
"""Prefixes of keys that are not weights, unless the module has weights of that name."""
MODEL = "model."
"""Prefix of weights that were saved as ``{"model": model.state_dict(), ...}``."""
WRAPPERS = ("model", "state_dict")
"""Names under which programs save a model's weights, beside other entries."""
NAMES_SHOWN = 3


class StateReads:
    """The blocks to read into a model, and the work to do after reading them. If ``strict``,
    missing optimizer state, state of another optimizer, and entries of neither the model nor its
    optimizer are refused."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None,
        saved: Mapping[str, SavedTensor | None],
        where: Path,
        *,
        strict: bool,
    ) -> None:
        self._saved, self._where, self._model = saved, where, model
        self._optimizer, self._strict = optimizer, strict
        self._state = SavedState(saved)
        self._dense: DenseReads | None = None
        self._is_counted_elsewhere = (
            isinstance(model, DistributedModelParallel) and model.env.rank != 0
        )
        self.blocks = list[Block]()
        self._row_wise = list[tuple[str, RowWiseRead]]()
        self._notes = list[str]()
        tables = held_tables(model)
        whole = dict(whole_tensors(model))
        self._check(type(inner_module(model)).__name__, tables, whole)
        if optimizer is not None and (fault := optimizer_fault(model, tables, optimizer)):
            raise DataError(f"{where}: {fault}")
        if optimizer is not None:
            self._dense = DenseReads(optimizer, self._state, self._unfit)
        for table in tables:
            self._add_table(table)
        for name, tensor in whole.items():
            self.blocks.append(Block.whole(self._keys[name], tensor))
        for block in counters_of_replicas(model):
            self._add_counter(block)
        if optimizer is not None and self._dense is not None:
            self.blocks += self._dense.of_whole(model)
            for key, progress in warmup_progress(optimizer):
                self._add_counter(Block.whole(key, progress))
        if fault := meta_fault((block.key, block.tensor) for block in self.blocks):
            raise DataError(f"{where}: {fault}")

    def finish(self) -> list[str]:
        """Write row-wise state. Returns notes on what was converted, kept or ignored."""
        for table, read in self._row_wise:
            if note := read.finish():
                self._notes.append(f"table {table!r}: row-wise optimizer state: {note}")
        if self._is_counted_elsewhere:
            for block in counters_of_replicas(self._model):
                block.tensor.zero_()  # Rank 0 has the sum over all ranks.
        if self._dense is not None:
            self._dense.finish()
        if isinstance(self._optimizer, KeyedOptimizer):
            self._optimizer.post_load_state_dict()
        return self._notes

    def _check(self, kind: str, tables: list[HeldTable], whole: Mapping[str, Tensor]) -> None:
        expected: dict[str, tuple[int, ...]] = {table.weight_key: table.size for table in tables}
        expected |= {name: tuple(tensor.shape) for name, tensor in whole.items()}
        weights, hint = saved_weights(self._saved, expected, keep_others=True), ""
        if others := other_entries(self._saved, expected):
            names = _names_text(sorted({_top(key) for key in others}))
            hint = (
                "; only entries of the model and 'optimizer' can be read: strict=False ignores the "
                f"others, {names}"
            )
            if not self._strict:
                weights = {name: entry for name, entry in weights.items() if entry[0] not in others}
                self._notes.append(
                    f"not read, since neither of the model nor of 'optimizer': {names}"
                )
        self._keys = {name: key for name, (key, _) in weights.items()}
        shapes = {name: shape for name, (_, shape) in weights.items()}
        check_shapes(expected, shapes, kind=kind, where=self._where, hint=hint)

    def _add_table(self, table: HeldTable) -> None:
        weight = self._saved[self._keys[table.weight_key]]
        assert weight is not None
        for local in table.local:
            self.blocks.append(table.block(self._keys[table.weight_key], local.shard, local.weight))
            for block in counters_of_shard(table, local):
                self._add_counter(block)
            if local.parameter is not None:
                self.blocks += () if self._dense is None else self._dense.of_shard(table, local)
            elif fault := self._fault(table, local):
                self._unfit(f"optimizer state of table {table.name!r}: {fault}")
            else:
                for name, state in local.moments.items():
                    self._add_state(table, local.shard, name, state, weight)

    def _fault(self, table: HeldTable, local: LocalShard) -> str:
        """Reason why the saved state does not fit the kernel of a shard. Empty if it fits."""
        own = {name: moment.dim() for name, moment in local.moments.items()}
        kernel = f"{table.weight_key}.{table.name}"
        saved_state, kind = self._state.of(kernel), self._state.kind(kernel)
        saved = {name: len(tensor.size) for name, tensor in saved_state.items() if name != "steps"}
        others = self._state.of(table.weight_key)
        # Missing steps are reported as counters, since TorchRec does not save them.
        if own == saved and not others and ("steps" in local.state or "steps" not in saved_state):
            if kind in (None, local.optimizer):
                return ""
            return f"expected the state of {local.optimizer}, got the state of {kind}"
        got = _state_text(saved, "steps" in saved_state)
        if others and not saved_state:
            got = f"{', '.join(sorted(others))} of the caller's optimizer"
        return f"expected {_state_text(own, 'steps' in local.state)}, got {got}"

    def _unfit(self, reason: str) -> None:
        """Refuse to leave optimizer state unread if strict, or note it."""
        if self._strict:
            raise DataError(f"{self._where}: {reason}; strict=False keeps the current state")
        self._notes.append(f"{reason}; the current state is kept")

    def _add_state(
        self, table: HeldTable, shard: Shard, name: str, state: Tensor, weight: SavedTensor
    ) -> None:
        key = table.state_key(name)
        saved = self._saved[key]
        assert saved is not None
        if state.dim() == 1:
            read = RowWiseRead(
                key, saved, weight, rows=shard.rows, columns=shard.columns, state=state
            )
            self._row_wise.append((table.name, read))
            self.blocks += read.blocks
        elif saved.size != table.size:
            raise DataError(f"{self._where}: {key}: expected shape {table.size}, got {saved.size}")
        else:
            self.blocks.append(table.block(key, shard, state))

    def _add_counter(self, block: Block) -> None:
        saved = self._saved.get(block.key)
        if saved is None:
            self._notes.append(f"{block.key}: not saved; the current value is kept")
        elif saved.size != block.size:
            raise DataError(
                f"{self._where}: {block.key}: expected shape {block.size}, got {saved.size}"
            )
        else:
            self.blocks.append(block)


def _state_text(dims: Mapping[str, int], counts_steps: bool) -> str:
    names = [f"{name} of each {'row' if dim == 1 else 'value'}" for name, dim in dims.items()]
    return ", ".join([*sorted(names), *["steps"] * counts_steps]) or "none"


def saved_weights(
    saved: Mapping[str, SavedTensor | None], expected: Collection[str], *, keep_others: bool = False
) -> dict[str, tuple[str, tuple[int, ...] | None]]:
    """The weights in a folder, which may also have optimizer state and more. Maps the name without
    a wrapper's prefix to the key in the folder, and the shape, or None if it is not a tensor. If
    not ``keep_others``, entries beside ``WRAPPERS`` are left out."""
    weights = dict[str, tuple[str, tuple[int, ...] | None]]()
    prefix = wrapper_prefix(saved, expected)
    is_wrapped = _top(prefix) in WRAPPERS and any(prefix + name in saved for name in expected)
    others = other_entries(saved, expected) if is_wrapped and not keep_others else frozenset()
    for key, saved_tensor in saved.items():
        name = key.removeprefix(prefix) if key not in expected else key
        if key in expected or not (key.startswith(NO_WEIGHTS) or key in others):
            named = name if name in expected else key
            weights[named] = (key, saved_tensor.size if saved_tensor else None)
    return weights


def other_entries(
    saved: Mapping[str, SavedTensor | None], expected: Collection[str]
) -> frozenset[str]:
    """Keys of top-level entries that are neither the model's nor ``NO_WEIGHTS``, such as ``epoch``
    in ``{"model": ..., "epoch": 3}`` or beside weights without a prefix."""
    prefix = wrapper_prefix(saved, expected)
    own = {_top(name) for name in expected if name in saved}
    if any(prefix + name in saved for name in expected):
        own.add(_top(prefix))
    others = (key for key in saved if _top(key) not in own and not key.startswith(NO_WEIGHTS))
    return frozenset(others if own else ())


def _top(key: str) -> str:
    return key.partition(".")[0]


def wrapper_prefix(names: Collection[str], expected: Collection[str]) -> str:
    """The prefix under which a folder has all expected weights, such as ``net.`` if they were saved
    from a module's attribute ``net``. ``model.`` if there is none."""
    first = next(iter(expected), "")
    for name in names:
        prefix = name.removesuffix(first)
        if prefix.endswith(".") and all(prefix + weight in names for weight in expected):
            return prefix
    return MODEL


def check_shapes(
    expected: Mapping[str, tuple[int, ...]],
    shapes: Mapping[str, tuple[int, ...] | None],
    *,
    kind: str,
    where: Path,
    hint: str = "",
) -> None:
    """Refuse weights that are not a module's. ``hint`` ends the message about unknown names."""
    missing, unexpected = expected.keys() - shapes.keys(), shapes.keys() - expected.keys()
    if missing or unexpected:
        problems = [
            f"{word} {_names_text(names)}"
            for word, names in (("no", sorted(missing)), ("unknown", sorted(unexpected)))
            if names
        ]
        raise DataError(
            f"{where}: expected the {len(expected)} weights of {kind}, got "
            f"{' and '.join(problems)}{hint if unexpected else ''}"
        )
    for name, shape in shapes.items():
        if expected[name] != shape:
            got = "no tensor" if shape is None else str(shape)
            raise DataError(f"{where}: {name}: expected shape {expected[name]}, got {got}")


def _names_text(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:NAMES_SHOWN]))
    more = len(names) - NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
