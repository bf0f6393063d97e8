"""``chosen_sharders`` checks that a plan fits a model and its ranks, and chooses sharders."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from torch import nn

from embershard.errors import InputError
from embershard.sharding.environment import ShardingEnv, agree
from embershard.sharding.sharders import Sharder, is_within, shardable
from embershard.sharding.types import (
    EmbeddingModuleShardingPlan,
    ShardingPlan,
    check_module_plan,
    tables_of,
)


def chosen_sharders(
    module: nn.Module,
    plan: ShardingPlan,
    sharders: Sequence[Sharder],
    env: ShardingEnv,
    *,
    settings: str = "",
) -> dict[str, Sharder]:
    """The sharder of each collection in the plan, by path. Every rank calls this with the same
    ``settings``. Raises InputError, the same on every rank, if the plan does not fit the model or
    the ranks, or differs between ranks."""
    return agree(
        env.process_group,
        lambda: _check_plan(module, plan, sharders, env),
        lambda chosen: _lines(module, plan, chosen, settings, env.device.type),
    )


def _check_plan(
    module: nn.Module,
    plan: ShardingPlan,
    sharders: Sequence[Sharder],
    env: ShardingEnv,
) -> dict[str, Sharder]:
    if not isinstance(plan, ShardingPlan):  # For callers without a type checker.
        raise InputError(
            "plan: expected a ShardingPlan, such as EmbeddingShardingPlanner.collective_plan "
            f"returns, got {type(plan).__name__}"
        )
    if not isinstance(plan.plan, Mapping):
        raise InputError(
            "plan: expected ShardingPlan({path of a collection: plan of its tables}), got "
            f"{type(plan.plan).__name__}"
        )
    chosen = dict[str, Sharder]()
    for path, cut, collection, sharder in planned_collections(module, plan, sharders):
        where, device = f"plan: module {path!r}", env.device.type
        tables = tables_of(collection)
        check_module_plan(cut, tables, world_size=env.world_size, where=where, device=device)
        sharder.optimizers(collection, cut, where=where, device=device)
        chosen[path] = sharder
    for path, *_ in shardable(module, sharders):
        if not any(path == outer or is_within(path, outer) for outer in plan.plan):
            raise InputError(f"plan: module {path!r}: expected a plan of its tables, got none")
    return chosen


def planned_collections(
    module: nn.Module, plan: ShardingPlan, sharders: Sequence[Sharder]
) -> Iterator[tuple[str, EmbeddingModuleShardingPlan, nn.Module, Sharder]]:
    """Each collection of a plan: path, sharding of its tables, collection and sharder. Raises
    InputError if no sharder can shard the module at a path."""
    modules = dict(module.named_modules())
    for path, cut in plan.plan.items():
        where, collection = f"plan: module {path!r}", modules.get(path)
        if collection is None:
            raise InputError(f"{where}: expected a module of {type(module).__name__}, got none")
        sharder = next(
            (candidate for candidate in sharders if candidate.can_shard(collection)), None
        )
        if sharder is None:
            kind = type(collection).__name__
            raise InputError(f"{where}: expected a module that a sharder can shard, got {kind}")
        yield path, cut, collection, sharder


def _lines(
    module: nn.Module,
    plan: ShardingPlan,
    chosen: Mapping[str, Sharder],
    settings: str,
    device: str,
) -> list[str]:
    """Description of a plan and model, equal on ranks that can train together."""
    lines = [f"{settings}, device={device}"]
    for path, sharder in sorted(chosen.items()):
        collection: Any = module.get_submodule(path)
        where = f"module {path!r}: {type(collection).__name__}"
        lines.append(f"{where}: is_weighted={getattr(collection, 'is_weighted', bool)()}")
        for exchange, comms in sharder.comms.items():
            lines += _fields(f"{where}: {exchange}", comms)
        optimizers = sharder.optimizers(collection, plan.plan[path], where=path, device=device)
        for table in tables_of(collection):
            at = f"module {path!r}: table {table.name!r}"
            pooling = getattr(table, "pooling", None)
            lines.append(f"{at}: {table.num_embeddings} x {table.embedding_dim} {table.data_type}")
            lines.append(f"{at}: features {table.feature_names}, pooling {pooling}")
            cut = plan.plan[path][table.name]
            lines.append(f"{at}: {cut.sharding_type}, {cut.compute_kernel} kernel")
            lines += (f"{at}: {shard.model_dump_json()}" for shard in cut.sharding_spec)
            if table.name in optimizers:
                lines += _fields(f"{at}: optimizer", optimizers[table.name])
    lines += [
        f"{name}: {tensor.dtype} {tuple(tensor.shape)}, requires_grad={tensor.requires_grad}"
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]
    ]
    return lines


def _fields(where: str, settings: Any) -> Iterator[str]:
    """One line for each field of a dataclass. Messages show the first line that differs."""
    for field in fields(settings):
        yield f"{where}: {field.name} {getattr(settings, field.name)}"
