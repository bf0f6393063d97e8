"""The plan of a run: its ``[sharding]`` section, and the model's tables."""

import fnmatch
from collections.abc import Mapping
from pathlib import Path

from torch import nn

from embershard.errors import EmbershardError
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
    """How the tables of each collection, by path in the model, are cut.

    Tables that lie on one rank or host go, the largest first, to the one with the fewest values.
    ``local_size``: ranks of a host. None: as torchrun says.
    """
    for name in ("machine", "memory_bytes"):
        if value := getattr(config.sharding, name):
            problem = f"expected none without plan = {AUTO!r}, got {value!r}"
            raise config.refusal("sharding", name, problem=problem)
    if (plan := read_plan(config)) is not None:
        return plan
    local_size = local_size or local_world_size(world_size)
    placer = _Placer(config, world_size, local_size)
    tables = [(path, table) for path, module in collections.items() for table in tables_of(module)]
    placer.check([table.name for _, table in tables])
    chosen: dict[str, dict[str, ParameterShardingGenerator]] = {path: {} for path in collections}
    for path, table in sorted(tables, key=lambda item: -_values(item[1])):
        chosen[path][table.name] = placer.place(table)
    return ShardingPlan(
        {
            path: construct_module_sharding_plan(
                module, chosen[path], local_size=local_size, world_size=world_size
            )
            for path, module in collections.items()
        }
    )


def read_plan(config: RunConfig) -> ShardingPlan | None:
    """The plan in the file of a run's configuration. None: it has no file, or says ``auto``."""
    given = config.sharding.plan
    if given is None:
        return None
    if "tables" in config.sharding.model_fields_set:
        problem = f"expected no 'tables' beside a plan, got {list(config.sharding.tables)}"
        raise config.refusal("sharding", "plan", problem=problem)
    if given == AUTO:
        return None
    try:
        return ShardingPlan.load(Path(given).expanduser())
    except FileNotFoundError as error:
        problem = f"expected a file that ShardingPlan.save wrote, found none: {given}"
        raise config.refusal("sharding", "plan", problem=problem) from error
    except (EmbershardError, OSError) as error:
        raise config.refusal("sharding", "plan", problem=str(error)) from error


class _Placer:
    def __init__(self, config: RunConfig, world_size: int, local_size: int) -> None:
        self._config = config
        self._ranks = [0] * world_size
        self._hosts = [0] * (world_size // local_size)

    def check(self, names: list[str]) -> None:
        for pattern in self._config.sharding.tables:
            if not fnmatch.filter(names, pattern):
                raise self._config.refusal(
                    "sharding",
                    "tables",
                    pattern,
                    problem=f"expected a pattern that fits a table, the tables are {names}",
                )

    def place(self, table: EmbeddingConfig) -> ParameterShardingGenerator:
        patterns = self._config.sharding.tables
        pattern = next((each for each in patterns if fnmatch.fnmatchcase(table.name, each)), None)
        if pattern is None:
            raise self._config.refusal(
                "sharding",
                "tables",
                problem=f"expected a pattern that fits table {table.name!r}, got {list(patterns)}",
            )
        match patterns[pattern]:
            case "data_parallel":
                return data_parallel()
            case "row_wise":
                return row_wise()
            case "column_wise":
                return column_wise()
            case "grid_shard":
                return grid_shard(host_indexes=list(range(len(self._hosts))))
            case "table_wise":
                return table_wise(rank=_emptiest(self._ranks, _values(table)))
            case "table_row_wise":
                return table_row_wise(host_index=_emptiest(self._hosts, _values(table)))
            case "table_column_wise":
                return table_column_wise(host_index=_emptiest(self._hosts, _values(table)))


def _emptiest(held: list[int], values: int) -> int:
    place = held.index(min(held))
    held[place] += values
    return place


def _values(table: EmbeddingConfig) -> int:
    return table.num_embeddings * table.embedding_dim
