"""What the fused collections share: parameters that are views of the trained memory, the
optimizer's state beside them, and how both are copied."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from embershard.errors import InputError
from embershard.kernels import AnyFusedTables, FusedOptimizer, build_fused_tables
from embershard.modules.configs import EmbeddingConfig
from embershard.modules.tables import Table, TableDict


def fused_tables(
    configs: Sequence[EmbeddingConfig],
    *,
    optimizer: FusedOptimizer,
    device: torch.device,
    pooled: bool,
) -> tuple[AnyFusedTables, TableDict]:
    """The memory of all tables, looked up table by table, feature by feature; and parameters that
    are views of it: reading, loading and checkpointing them is reading and writing what the
    kernel trains.
    """
    types = {table.name: table.data_type for table in configs}
    if len(set(types.values())) > 1:
        raise InputError(f"tables: expected one data_type in a fused collection, got {types}")
    tables = build_fused_tables(
        [(table.num_embeddings, table.embedding_dim) for table in configs],
        [place for place, table in enumerate(configs) for _ in table.feature_names],
        optimizer=optimizer,
        device=device,
        pooled=pooled,
        dtype=configs[0].data_type.dtype,
    )
    parameters = {
        config.name: _FusedTable(nn.Parameter(weight, requires_grad=False))
        for config, weight in zip(configs, tables.weights, strict=True)
    }
    return tables, TableDict(parameters)


def momentum_of(
    prefix: str, configs: Sequence[EmbeddingConfig], tables: AnyFusedTables
) -> dict[str, Tensor]:
    """``<prefix>.<table>.<name>`` -> state; views, see ``FusedTables.states``. Empty for "sgd"."""
    return {
        f"{prefix}.{table.name}.{name}": state
        for table, states in zip(configs, tables.states, strict=True)
        for name, state in states.items()
    }


def copy_optimizer_state(own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Copy ``state`` into the tensors of ``own``: all of it, or nothing."""
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


def check_stays(
    configs: Sequence[EmbeddingConfig], tables: AnyFusedTables, fn: Callable[[Tensor], Tensor]
) -> None:
    """Refuse what ``nn.Module._apply`` would do to the tables, if it moves or casts them."""
    for table, weight in zip(configs, tables.weights, strict=True):
        moved = fn(weight[:1])
        if moved.data_ptr() != weight.data_ptr() or moved.dtype != weight.dtype:
            raise InputError(
                f"fused table {table.name!r}: expected to stay {weight.dtype} on "
                f"{weight.device}, got moved to {moved.dtype} on {moved.device}; "
                "build the collection with device=... instead"
            )


def reduced(module: Any, *arguments: object) -> tuple[Any, ...]:
    """For ``__reduce__``: copies and pickles are built anew by ``_build(*arguments)``, so that
    their parameters are views again."""
    state = (module.state_dict(), module.optimizer_state())
    return _rebuild, (type(module), arguments, state, module.training)


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
