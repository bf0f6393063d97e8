"""The plan of a run: its ``[sharding]`` section, and the model's tables."""

import fnmatch
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import nn

from embershard.errors import EmbershardError
from embershard.models import DMTConfig
from embershard.modules import EmbeddingConfig
from embershard.sharding import (
    ParameterShardingGenerator,
    ShardingPlan,
    column_wise,
    construct_module_sharding_plan,
    data_parallel,
    grid_shard,
    row_wise,
    table_column_wise,
    table_row_wise,
    table_wise,
)
from embershard.sharding.environment import local_world_size
from embershard.sharding.types import tables_of
from embershard.training.config import AUTO, RunConfig


def plan_of(
    config: RunConfig,
    collections: Mapping[str, nn.Module],
    world_size: int,
    local_size: int | None = None,
) -> ShardingPlan:
    """The cut of each table of ``collections``, by path in the model. Tables that lie on one rank
    or host go, the largest first, to the one with the fewest values. Those of a tower of ``dmt`` go
    to one host. ``local_size``: ranks of a host; None: torchrun's."""
    for name in ("machine", "memory_bytes"):
        if value := getattr(config.sharding, name):
            problem = f"expected none without plan = {AUTO!r}, got {value!r}"
            raise config.refusal("sharding", name, problem=problem)
    if (plan := read_plan(config)) is not None:
        return plan
    local_size = local_size or local_world_size(world_size)
    tables = [(path, table) for path, module in collections.items() for table in tables_of(module)]
    names = [table.name for _, table in tables]
    for pattern in config.sharding.tables:
        if not fnmatch.filter(names, pattern):
            problem = f"expected a pattern that fits a table, the tables are {names}"
            raise config.refusal("sharding", "tables", pattern, problem=problem)
    ranks, hosts = [0] * world_size, [0] * (world_size // local_size)
    tower_hosts = _tower_hosts(config, [table for _, table in tables], len(hosts))
    cuts: dict[str, dict[str, ParameterShardingGenerator]] = {path: {} for path in collections}
    for path, table in sorted(tables, key=lambda item: -_values(item[1])):
        cuts[path][table.name] = _cut(config, table, ranks, hosts, tower_hosts.get(table.name))
    return ShardingPlan(
        {
            path: construct_module_sharding_plan(
                module, cuts[path], local_size=local_size, world_size=world_size
            )
            for path, module in collections.items()
        }
    )


def read_plan(config: RunConfig) -> ShardingPlan | None:
    """The plan in the file of a run's configuration; None if it has no file, or ``auto``."""
    plan = config.sharding.plan
    if plan is None:
        return None
    if "tables" in config.sharding.model_fields_set:
        problem = f"expected no 'tables' beside a plan, got {list(config.sharding.tables)}"
        raise config.refusal("sharding", "plan", problem=problem)
    if plan == AUTO:
        return None
    try:
        return ShardingPlan.load(Path(plan).expanduser())
    except FileNotFoundError as error:
        problem = f"expected a file that ShardingPlan.save wrote, found none: {plan}"
        raise config.refusal("sharding", "plan", problem=problem) from error
    except (EmbershardError, OSError) as error:
        raise config.refusal("sharding", "plan", problem=str(error)) from error


def _tower_hosts(
    config: RunConfig, tables: Sequence[EmbeddingConfig], hosts: int
) -> dict[str, int]:
    """The host of each table of a tower, by table name. The largest tower is placed first. Towers
    with a common table share a host."""
    values, host_of = [0] * hosts, dict[str, int]()
    if not isinstance(config.model, DMTConfig):
        return host_of
    features = [feature for table in tables for feature in table.feature_names]
    towers = [
        [table for table in tables if set(inputs).intersection(table.feature_names)]
        for inputs in config.model.tower_inputs(features)
    ]
    for tower in sorted(towers, key=lambda members: -sum(map(_values, members))):
        known = [host_of[table.name] for table in tower if table.name in host_of]
        host = _emptiest(values, sum(map(_values, tower)), known[:1])
        host_of |= {table.name: host for table in tower}
    return host_of


def _cut(
    config: RunConfig,
    table: EmbeddingConfig,
    ranks: list[int],
    hosts: list[int],
    tower_host: int | None,
) -> ParameterShardingGenerator:
    """The cut by the first pattern that fits a table. ``ranks`` and ``hosts`` count the values of
    tables that lie on one of them. A table of a tower goes to ``tower_host``."""
    own_ranks, own_hosts = range(len(ranks)), range(len(hosts))
    if tower_host is not None:
        own_hosts = own_hosts[tower_host : tower_host + 1]
        local_size = len(ranks) // len(hosts)
        own_ranks = own_ranks[tower_host * local_size : (tower_host + 1) * local_size]
    patterns = config.sharding.tables
    fitting = (cut for pattern, cut in patterns.items() if fnmatch.fnmatchcase(table.name, pattern))
    match next(fitting, None):
        case "data_parallel":
            return data_parallel()
        case "row_wise":
            return row_wise()
        case "column_wise":
            return column_wise()
        case "grid_shard":
            return grid_shard(host_indexes=list(range(len(hosts))))
        case "table_wise":
            return table_wise(rank=_emptiest(ranks, _values(table), own_ranks))
        case "table_row_wise":
            return table_row_wise(host_index=_emptiest(hosts, _values(table), own_hosts))
        case "table_column_wise":
            return table_column_wise(host_index=_emptiest(hosts, _values(table), own_hosts))
        case None:
            problem = f"expected a pattern that fits table {table.name!r}, got {list(patterns)}"
            raise config.refusal("sharding", "tables", problem=problem)


def _emptiest(values_held: list[int], values: int, places: Sequence[int]) -> int:
    """The place with the fewest values, among ``places`` if any. It gets ``values`` more."""
    place = min(places or range(len(values_held)), key=values_held.__getitem__)
    values_held[place] += values
    return place


def _values(table: EmbeddingConfig) -> int:
    return table.num_embeddings * table.embedding_dim
