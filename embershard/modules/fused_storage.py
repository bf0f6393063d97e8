"""The base of fused collections."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from embershard.errors import InputError
from embershard.kernels import AnyFusedTables, FusedOptimizer, build_fused_tables
from embershard.modules.configs import EmbeddingConfig
from embershard.modules.tables import Collection, Table, TableDict, embedding_names


class FusedCollection(Collection):
    """A collection whose parameters are views of the memory that the kernel trains. So are those of
    copies and pickles, which ``_build(tables, optimizer, device, *_settings())`` builds."""

    accesses: Mapping[str, Tensor] = MappingProxyType({})
    """Lookups of each row in training, int64 ``(rows,)`` by table. Empty if not counted."""

    def _lay_out(
        self,
        configs: Sequence[EmbeddingConfig],
        optimizer: FusedOptimizer,
        device: torch.device,
        *,
        pooled: bool,
    ) -> None:
        """Allocate the memory of all tables. Lookups go table by table, feature by feature."""
        types = {table.name: table.data_type for table in configs}
        if len(set(types.values())) > 1:
            raise InputError(f"tables: expected one data_type in a fused collection, got {types}")
        self._configs = tuple(configs)
        self._names = embedding_names(configs)
        self._device = device
        self._tables: AnyFusedTables = build_fused_tables(
            [(table.num_embeddings, table.embedding_dim) for table in configs],
            [place for place, table in enumerate(configs) for _ in table.feature_names],
            optimizer=optimizer,
            device=device,
            pooled=pooled,
            dtype=configs[0].data_type.dtype,
        )
        parameters = {
            config.name: _FusedTable(nn.Parameter(weight, requires_grad=False))
            for config, weight in zip(configs, self._tables.weights, strict=True)
        }
        setattr(self, self.PREFIX, TableDict(parameters))

    def set_learning_rate(self, learning_rate: float) -> None:
        """Use another step size from the next backward on.

        ::

            for step in range(10):
                fused.set_learning_rate(0.1 * (step + 1) / 10)  # A linear warm-up.
                fused(sparse).values().sum().backward()

        Raises:
            InputError: not a finite number of at least 0.
        """
        self._tables.set_learning_rate(learning_rate)

    @property
    def optimizer(self) -> FusedOptimizer:
        """The optimizer in backward, with the present learning rate."""
        return self._tables.optimizer

    def optimizer_state(self) -> dict[str, Tensor]:
        """The state of the optimizer, to be saved in addition to the state dict: views by
        ``<prefix>.<table>.<name>``, with the state dict's prefix. The next backward changes them.
        ``momentum1`` and ``momentum2`` are float32, ``(num_embeddings,)`` for a row-wise optimizer
        or ``(num_embeddings, embedding_dim)``; ``steps`` is int64 ``(1,)``. Empty for "sgd"."""
        return {
            f"{self.PREFIX}.{table.name}.{name}": state
            for table, states in zip(self._configs, self._tables.states, strict=True)
            for name, state in states.items()
        }

    def load_optimizer_state(self, state: Mapping[str, Tensor]) -> None:
        """Copy a state that ``optimizer_state()`` returned. Raises InputError for other keys or
        shapes. The state is unchanged then."""
        own = self.optimizer_state()
        if own.keys() != state.keys():
            raise InputError(f"optimizer state: expected {sorted(own)}, got {sorted(state)}")
        for key, tensor in own.items():
            if tensor.shape != state[key].shape:
                raise InputError(
                    f"optimizer state: {key}: expected shape {tuple(tensor.shape)}, "
                    f"got {tuple(state[key].shape)}"
                )
        for key, tensor in own.items():
            tensor.copy_(state[key])

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Called by .to(), .cuda(), .half() and the like; refused if it moves or casts a table."""
        for table, weight in zip(self._configs, self._tables.weights, strict=True):
            moved = fn(weight[:1])
            if moved.data_ptr() != weight.data_ptr() or moved.dtype != weight.dtype:
                raise InputError(
                    f"fused table {table.name!r}: expected to stay {weight.dtype} on "
                    f"{weight.device}, got moved to {moved.dtype} on {moved.device}; "
                    "build the collection with device=... instead"
                )
        parent: Any = super()
        return parent._apply(fn, recurse)

    def _settings(self) -> tuple[object, ...]:
        return ()

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (self._configs, self.optimizer, self._device, *self._settings())
        state = (self.state_dict(), self.optimizer_state())
        return _rebuild, (type(self), arguments, state, self.training)


def _rebuild(
    kind: Any,
    arguments: tuple[object, ...],
    state: tuple[dict[str, Any], dict[str, Tensor]],
    training: bool,
) -> nn.Module:
    module = kind.__new__(kind)
    module._build(*arguments)
    weights, optimizer_state = state
    module.load_state_dict(weights)
    module.load_optimizer_state(optimizer_state)
    trained: nn.Module = module.train(training)
    return trained


class _FusedTable(Table):
    """A table whose weights may be written to, never replaced."""

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict[str, Any],
        *args: Any,
    ) -> None:
        if local_metadata.get("assign_to_params_buffers", False):
            raise InputError(
                f"{prefix}weight: expected load_state_dict with assign=False, which copies into "
                "the fused buffer; got assign=True"
            )
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)
