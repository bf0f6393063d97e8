"""``chosen_sharders``: whether a plan fits a model and its ranks, and who shards what."""

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
    """The sharder of each collection in the plan, by path. Every rank calls this, with the same
    ``settings``.

    Raises:
        InputError: the plan does not fit the model or the ranks, or differs between ranks: the
            same message on every rank, with the rank named.
    """
    return agree(
        env.process_group,
        lambda: _checked(module, plan, sharders, env),
        lambda found: _lines(module, plan, found, settings, env.device.type),
    )


def _checked(
    module: nn.Module,
    plan: ShardingPlan,
    sharders: Sequence[Sharder],
    env: ShardingEnv,
) -> dict[str, Sharder]:
    """The sharder of each collection in the plan, by path."""
    if not isinstance(plan, ShardingPlan):  # For calls that no type checker saw.
        raise InputError(
            "plan: expected a ShardingPlan, as EmbeddingShardingPlanner.collective_plan makes one, "
            f"got {type(plan).__name__}"
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
    """The collections of a plan: path, cuts of its tables, the collection and its sharder.

    Raises:
        InputError: the model has none there that a sharder shards.
    """
    modules = dict(module.named_modules())
    for path, cut in plan.plan.items():
        where, found = f"plan: module {path!r}", modules.get(path)
        if found is None:
            raise InputError(f"{where}: expected a module of {type(module).__name__}, got none")
        sharder = next((each for each in sharders if each.can_shard(found)), None)
        if sharder is None:
            kind = type(found).__name__
            raise InputError(f"{where}: expected a module that a sharder shards, got {kind}")
        yield path, cut, found, sharder


def _lines(
    module: nn.Module,
    plan: ShardingPlan,
    chosen: Mapping[str, Sharder],
    settings: str,
    device: str,
) -> list[str]:
    """Equal on ranks that train together."""
    said = [f"{settings}, device={device}"]
    for path, sharder in sorted(chosen.items()):
        collection: Any = module.get_submodule(path)
        where = f"module {path!r}: {type(collection).__name__}"
        said.append(f"{where}: is_weighted={getattr(collection, 'is_weighted', bool)()}")
        for exchange, comms in sharder.comms.items():
            said += _fields(f"{where}: {exchange}", comms)
        optimizers = sharder.optimizers(collection, plan.plan[path], where=path, device=device)
        for table in tables_of(collection):
            at = f"module {path!r}: table {table.name!r}"
            pooling = getattr(table, "pooling", None)
            said.append(f"{at}: {table.num_embeddings} x {table.embedding_dim} {table.data_type}")
            said.append(f"{at}: features {table.feature_names}, pooling {pooling}")
            cut = plan.plan[path][table.name]
            said.append(f"{at}: {cut.sharding_type}, {cut.compute_kernel} kernel")
            said += (f"{at}: {shard.model_dump_json()}" for shard in cut.sharding_spec)
            if table.name in optimizers:
                said += _fields(f"{at}: optimizer", optimizers[table.name])
    said += [
        f"{name}: {each.dtype} {tuple(each.shape)}, requires_grad={each.requires_grad}"
        for name, each in [*module.named_parameters(), *module.named_buffers()]
    ]
    return said


def _fields(where: str, settings: Any) -> Iterator[str]:
    """Of a dataclass, a line each: the first that differs is what a message shows."""
    for each in fields(settings):
        yield f"{where}: {each.name} {getattr(settings, each.name)}"
