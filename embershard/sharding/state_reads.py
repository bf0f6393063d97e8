"""``StateReads``: what is read of a folder into a model under any plan."""

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
"""Begin of keys that are no weights, unless the module has some of that name."""
MODEL = "model."
"""Before the names of weights that were saved as ``{"model": model.state_dict(), ...}``."""
WRAPPERS = ("model", "state_dict")
"""Names under which programs save a model's weights, beside entries of their own."""
NAMES_SHOWN = 3
"""Of weights that do not fit, in a message."""


class StateReads:
    """The blocks to read into a model, and what remains to be done once they are read.

    Args:
        strict: whether optimizer state that is not saved, or that of another optimizer, is refused,
            and so are entries of neither the model nor its optimizer.
    """

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
        self._said = list[str]()
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
        """Write row-wise state; what is to be reported."""
        for table, read in self._row_wise:
            if said := read.finish():
                self._said.append(f"table {table!r}: row-wise optimizer state: {said}")
        if self._is_counted_elsewhere:
            for block in counters_of_replicas(self._model):
                block.tensor.zero_()  # Rank 0 holds what all counted.
        if self._dense is not None:
            self._dense.finish()
        if isinstance(self._optimizer, KeyedOptimizer):
            self._optimizer.post_load_state_dict()
        return self._said

    def _check(self, kind: str, tables: list[HeldTable], whole: Mapping[str, Tensor]) -> None:
        expected: dict[str, tuple[int, ...]] = {table.weight_key: table.size for table in tables}
        expected |= {name: tuple(tensor.shape) for name, tensor in whole.items()}
        given, hint = saved_weights(self._saved, expected, keep_others=True), ""
        if others := other_entries(self._saved, expected):
            told = _few(sorted({_top(key) for key in others}))
            hint = (
                "; entries of the model and 'optimizer' are read: strict=False ignores the others, "
                f"{told}"
            )
            if not self._strict:
                given = {name: each for name, each in given.items() if each[0] not in others}
                self._said.append(f"neither of the model nor of 'optimizer': {told}; not read")
        self._keys = {name: key for name, (key, _) in given.items()}
        shapes = {name: shape for name, (_, shape) in given.items()}
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
            elif problem := self._problem(table, local):
                self._unfit(f"optimizer state of table {table.name!r}: {problem}")
            else:
                for name, state in local.moments.items():
                    self._add_state(table, local.shard, name, state, weight)

    def _problem(self, table: HeldTable, local: LocalShard) -> str:
        """Why what is saved is not the state of the kernel of a shard. Empty: it is."""
        own = {name: each.dim() for name, each in local.moments.items()}
        kernel = f"{table.weight_key}.{table.name}"
        found, kind = self._state.of(kernel), self._state.kind(kernel)
        saved = {name: len(each.size) for name, each in found.items() if name != "steps"}
        others = self._state.of(table.weight_key)
        # Steps that are not saved are told as counters: TorchRec saves none.
        if own == saved and not others and ("steps" in local.state or "steps" not in found):
            if kind in (None, local.optimizer):
                return ""
            return f"expected that of {local.optimizer}, got that of {kind}"
        got = _told(saved, "steps" in found)
        if others and not found:
            got = f"{', '.join(sorted(others))} of an optimizer of the caller's"
        return f"expected {_told(own, 'steps' in local.state)}, got {got}"

    def _unfit(self, problem: str) -> None:
        """Some optimizer state is not read."""
        if self._strict:
            raise DataError(f"{self._where}: {problem}; strict=False keeps what the optimizer has")
        self._said.append(f"{problem}; it is kept")

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
            self._said.append(f"{block.key}: none is saved; it is kept")
        elif saved.size != block.size:
            raise DataError(
                f"{self._where}: {block.key}: expected shape {block.size}, got {saved.size}"
            )
        else:
            self.blocks.append(block)


def _told(dims: Mapping[str, int], counts_steps: bool) -> str:
    """The state of a kernel, for messages."""
    names = [f"{name} of each {'row' if dim == 1 else 'value'}" for name, dim in dims.items()]
    return ", ".join([*sorted(names), *["steps"] * counts_steps]) or "none"


def saved_weights(
    saved: Mapping[str, SavedTensor | None], expected: Collection[str], *, keep_others: bool = False
) -> dict[str, tuple[str, tuple[int, ...] | None]]:
    """The weights in a folder, beside which optimizer state and more may lie.

    Args:
        saved: by key.
        expected: names of the model's weights.
        keep_others: False: entries beside ``WRAPPERS`` are left out.

    Returns:
        By name, without a wrapper's prefix: key in the folder, and shape. None: it is no tensor.
    """
    found = dict[str, tuple[str, tuple[int, ...] | None]]()
    prefix = wrapper_prefix(saved, expected)
    is_wrapped = _top(prefix) in WRAPPERS and any(prefix + each in saved for each in expected)
    others = other_entries(saved, expected) if is_wrapped and not keep_others else frozenset()
    for key, each in saved.items():
        name = key.removeprefix(prefix) if key not in expected else key
        if key in expected or not (key.startswith(NO_WEIGHTS) or key in others):
            named = name if name in expected else key
            found[named] = (key, each.size if each else None)
    return found


def other_entries(
    saved: Mapping[str, SavedTensor | None], expected: Collection[str]
) -> frozenset[str]:
    """Keys of top-level entries that are neither the model's nor ``NO_WEIGHTS``: ``epoch`` of
    ``{"model": ..., "epoch": 3}``, and also of weights without a prefix beside ``epoch``."""
    prefix = wrapper_prefix(saved, expected)
    own = {_top(each) for each in expected if each in saved}
    if any(prefix + each in saved for each in expected):
        own.add(_top(prefix))
    others = (key for key in saved if _top(key) not in own and not key.startswith(NO_WEIGHTS))
    return frozenset(others if own else ())


def _top(key: str) -> str:
    return key.partition(".")[0]


def wrapper_prefix(names: Collection[str], expected: Collection[str]) -> str:
    """The prefix under which a wrapper's state dict has all expected weights: ``net.`` of a module
    whose attribute ``net`` is theirs. ``model.`` if there is no such prefix."""
    first = next(iter(expected), "")
    for name in names:
        prefix = name.removesuffix(first)
        if prefix.endswith(".") and all(prefix + each in names for each in expected):
            return prefix
    return MODEL


def check_shapes(
    expected: Mapping[str, tuple[int, ...]],
    given: Mapping[str, tuple[int, ...] | None],
    *,
    kind: str,
    where: Path,
    hint: str = "",
) -> None:
    """Refuse weights that are not those of a module. Shapes are by name; None: it is no tensor.
    ``hint`` ends the message if there are unknown names."""
    missing, unexpected = expected.keys() - given.keys(), given.keys() - expected.keys()
    if missing or unexpected:
        problems = [
            f"{word} {_few(names)}"
            for word, names in (("no", sorted(missing)), ("unknown", sorted(unexpected)))
            if names
        ]
        raise DataError(
            f"{where}: expected the {len(expected)} weights of {kind}, got "
            f"{' and '.join(problems)}{hint if unexpected else ''}"
        )
    for name, shape in given.items():
        if expected[name] != shape:
            got = "no tensor" if shape is None else str(shape)
            raise DataError(f"{where}: {name}: expected shape {expected[name]}, got {got}")


def _few(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:NAMES_SHOWN]))
    more = len(names) - NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
