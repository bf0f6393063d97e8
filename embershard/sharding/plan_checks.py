"""``chosen_sharders``: whether a plan fits a model and its ranks, and who shards what."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from embershard.errors import InputError
from embershard.sharding.environment import ShardingEnv, agree
from embershard.sharding.plan import tables_of
from embershard.sharding.sharders import Sharder
from embershard.sharding.types import ShardingPlan, check_module_plan


def chosen_sharders(
    module: nn.Module,
    plan: ShardingPlan,
    sharders: Sequence[Sharder],
    env: ShardingEnv,
    *,
    settings: str = "",
) -> dict[str, Sharder]:
    """The sharder of each collection in the plan, by path. Every rank calls this.

    Args:
        module: the model.
        plan: of its collections.
        sharders: that there are.
        env: the ranks.
        settings: of the caller, that must be the same on every rank.

    Raises:
        InputError: the plan does not fit the model or the ranks, or differs between ranks: the
            same message on every rank, with the rank named.
    """
    return agree(
        env.process_group,
        lambda: _checked(module, plan, sharders, env.world_size),
        lambda found: _digest(module, plan, found, settings),
    )


def _checked(
    module: nn.Module,
    plan: ShardingPlan,
    sharders: Sequence[Sharder],
    world_size: int,
) -> dict[str, Sharder]:
    """The sharder of each collection in the plan, by path."""
    modules = dict(module.named_modules())
    chosen = dict[str, Sharder]()
    for path, cut in plan.plan.items():
        where = f"plan: module {path!r}"
        if path not in modules:
            raise InputError(f"{where}: expected a module of {type(module).__name__}, got none")
        sharder = next((each for each in sharders if each.can_shard(modules[path])), None)
        if sharder is None:
            kind = type(modules[path]).__name__
            raise InputError(f"{where}: expected a module that a sharder shards, got {kind}")
        check_module_plan(cut, tables_of(modules[path]), world_size=world_size, where=where)
        sharder.optimizers(modules[path], cut, where=where)
        chosen[path] = sharder
    for path, each in modules.items():
        if any(path == outer or _is_within(path, outer) for outer in plan.plan):
            continue
        if any(sharder.can_shard(each) for sharder in sharders):
            raise InputError(f"plan: module {path!r}: expected a plan of its tables, got none")
    return chosen


def _is_within(path: str, outer: str) -> bool:
    return path.startswith(f"{outer}." if outer else "")


def _digest(
    module: nn.Module,
    plan: ShardingPlan,
    chosen: Mapping[str, Sharder],
    settings: str,
) -> str:
    """Equal on ranks that train together."""
    said = [plan.to_json(), settings]
    for path, sharder in sorted(chosen.items()):
        collection: Any = module.get_submodule(path)
        tables = tables_of(collection)
        for table in tables:
            said.append(f"{table.name} {table.num_embeddings} {table.embedding_dim}")
            said.append(f"{table.feature_names} {getattr(table, 'pooling', None)}")
        said.append(type(collection).__name__)
        said.append(f"weighted={getattr(collection, 'is_weighted', bool)()}")
        said.append(str(sharder.comms))
        said.append(str(sharder.optimizers(collection, plan.plan[path], where=path)))
    said += [
        f"{name} {tuple(each.shape)} {each.requires_grad}"
        for name, each in module.named_parameters()
    ]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:12]
