"""``ShardingPlan``: which rank holds which rectangles of which table. A sharding type only names a
way of cutting; training reads the shards. They tile their table, and their devices are ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated

from pydantic import Field
from torch import nn

from embershard.errors import DataError, InputError, PackageError
from embershard.modules import EmbeddingConfig
from embershard.package.manifest_inputs import Part
from embershard.package.rectangles import Shard, shard_fault, tiling_fault
from embershard.package.validation import InputErrorMeta, parse_model

FORMAT_VERSION = 0


class ShardingType(Enum):
    """How a table is cut.

    | type | shards |
    |---|---|
    | data_parallel | the whole table, on every rank; gradients are averaged over the ranks |
    | table_wise | the whole table, on one rank |
    | column_wise | column ranges, each on one rank |
    | row_wise | row ranges, over all ranks |
    | table_row_wise | row ranges, over the ranks of one host |
    | table_column_wise | column ranges, over the ranks of one host |
    | grid_shard | column ranges, one a host, each cut by rows over the ranks of its host |
    """

    DATA_PARALLEL = "data_parallel"
    TABLE_WISE = "table_wise"
    COLUMN_WISE = "column_wise"
    ROW_WISE = "row_wise"
    TABLE_ROW_WISE = "table_row_wise"
    TABLE_COLUMN_WISE = "table_column_wise"
    GRID_SHARD = "grid_shard"


class EmbeddingComputeKernel(Enum):
    """Implementation of a table's lookups and training."""

    DENSE = "dense"
    """Plain torch, trained by the caller's optimizer. The only kernel of ``data_parallel``."""

    FUSED = "fused"
    """FBGEMM's lookups, with the optimizer in the backward pass."""

    FUSED_UVM = "fused_uvm"
    """``FUSED`` with weights in unified memory, on CUDA."""

    FUSED_UVM_CACHING = "fused_uvm_caching"
    """``FUSED_UVM`` with a cache on the device, on CUDA."""


CPU_KERNELS = EmbeddingComputeKernel.DENSE, EmbeddingComputeKernel.FUSED


class ParameterSharding(Part, metaclass=InputErrorMeta):
    """How one table is cut.

    Raises:
        InputError: a missing or unknown argument, or one of another type.
    """

    sharding_type: Annotated[str, Field(description="a value of ShardingType, such as 'row_wise'")]
    """Name of the cut: a value of ``ShardingType``."""

    compute_kernel: Annotated[
        str, Field(description="a value of EmbeddingComputeKernel, such as 'fused'")
    ]
    sharding_spec: Annotated[
        tuple[Shard, ...],
        Field(
            description="a tuple of Shard(table=, rows=, columns=, devices=), as row_wise() and "
            "the other helpers make"
        ),
    ]
    """Rectangles that tile the table; their devices are ranks."""

    @property
    def ranks(self) -> list[int]:
        """Ranks that hold a part of the table, in order."""
        return sorted({rank for shard in self.sharding_spec for rank in shard.devices})


class EmbeddingModuleShardingPlan(dict[str, ParameterSharding]):
    """Table name -> its sharding, for one collection."""

    world_size: int | None = None
    """Number of ranks that the plan was made for. None: unknown, for a plan made by hand."""


class _PlanFile(Part):
    format_version: Annotated[int, Field(ge=FORMAT_VERSION, le=FORMAT_VERSION)]
    world_size: Annotated[int, Field(ge=1)] | None = None
    plan: dict[str, dict[str, ParameterSharding]]


@dataclass(slots=True)
class ShardingPlan:
    plan: dict[str, EmbeddingModuleShardingPlan] = field(default_factory=dict)
    """Path of the collection in the model -> its plan."""

    def get_plan_for_module(self, module_path: str) -> EmbeddingModuleShardingPlan | None:
        """The plan of the collection at ``module_path``, or None if it is not sharded."""
        return self.plan.get(module_path)

    def to_json(self) -> str:
        """Convert to text for ``from_json``. Equal plans for the same number of ranks have equal
        text.

        If the world size is known of one collection, it is written for all.

        Raises:
            InputError: collections that are cut for different numbers of ranks.
        """
        sizes = dict[int, str]()
        for path, module_plan in sorted(self.plan.items()):
            if (size := getattr(module_plan, "world_size", None)) is not None:
                sizes.setdefault(size, path)
        if len(sizes) > 1:
            got = ", ".join(f"{size} of module {path!r}" for size, path in sizes.items())
            raise InputError(f"plan: expected collections cut for one world size, got {got}")
        file = _PlanFile(
            format_version=FORMAT_VERSION,
            world_size=next(iter(sizes), None),
            plan={path: dict(sorted(self.plan[path].items())) for path in sorted(self.plan)},
        )
        return file.model_dump_json(indent=1) + "\n"

    @staticmethod
    def from_json(text: str | bytes, *, name: str = "plan") -> ShardingPlan:
        """Parse the result of ``to_json``.

        Args:
            text: JSON.
            name: name of the file in messages.

        Raises:
            DataError: "<name>: <field>: expected ..., got ...".
        """
        data = text.encode() if isinstance(text, str) else text
        try:
            file, _ = parse_model(_PlanFile, data, name)
        except PackageError as error:
            raise DataError(f"{error}; expected a file that ShardingPlan.save wrote") from error
        plan = {path: EmbeddingModuleShardingPlan(tables) for path, tables in file.plan.items()}
        for module_plan in plan.values():
            module_plan.world_size = file.world_size
        return ShardingPlan(plan)

    def save(self, path: str | Path) -> None:
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @staticmethod
    def load(path: str | Path) -> ShardingPlan:
        """Read a plan that ``save`` wrote.

        Raises:
            OSError: the file cannot be read.
            DataError: the file is not a plan; names file and field.
        """
        return ShardingPlan.from_json(Path(path).read_bytes(), name=str(path))


def tables_of(module: nn.Module) -> list[EmbeddingConfig]:
    for name in ("embedding_bag_configs", "embedding_configs"):
        configs = getattr(module, name, None)
        if isinstance(module, nn.Module) and callable(configs):
            return list(configs())
    raise InputError(f"module: expected a collection of tables, got {type(module).__name__}")


def whole_shard(table: EmbeddingConfig, devices: tuple[int, ...] = (0,)) -> Shard:
    rows, columns = (0, table.num_embeddings), (0, table.embedding_dim)
    return Shard(table=table.name, rows=rows, columns=columns, devices=devices)


def shape_of(shard: Shard) -> tuple[int, int]:
    return shard.rows[1] - shard.rows[0], shard.columns[1] - shard.columns[0]


def offsets_of(shard: Shard) -> tuple[int, int]:
    return shard.rows[0], shard.columns[0]


def check_module_plan(
    plan: Mapping[str, ParameterSharding],
    tables: Sequence[EmbeddingConfig],
    *,
    world_size: int,
    where: str,
    device: str | None,
) -> None:
    """Refuse a plan that does not place exactly these tables on exactly these ranks. ``device`` is
    None if not known yet."""
    if not isinstance(plan, Mapping):
        raise InputError(
            f"{where}: expected a mapping of table names to ParameterSharding, got "
            f"{type(plan).__name__}"
        )
    made_for = getattr(plan, "world_size", None)
    if made_for not in (None, world_size):
        raise InputError(
            f"{where}: expected a plan for world size {world_size}, got one for world size "
            f"{made_for}"
        )
    names = [table.name for table in tables]
    for name in plan:
        if name not in names:
            raise InputError(f"{where}: table {name!r}: expected one of {names}")
    for table in tables:
        at = f"{where}: table {table.name!r}"
        if table.name not in plan:
            raise InputError(f"{at}: expected a sharding, got none")
        if not isinstance(plan[table.name], ParameterSharding):
            kind = type(plan[table.name]).__name__
            raise InputError(f"{at}: expected a ParameterSharding, got {kind}")
        _check_names(plan[table.name], at, device)
        _check_shards(plan[table.name], table, world_size, at)


def _check_names(sharding: ParameterSharding, at: str, device: str | None) -> None:
    kinds = [kind.value for kind in ShardingType]
    if sharding.sharding_type not in kinds:
        expected = ", ".join(kinds)
        raise InputError(
            f"{at}: sharding_type: expected one of {expected}, got {sharding.sharding_type!r}"
        )
    replicated = sharding.sharding_type == ShardingType.DATA_PARALLEL.value
    known = CPU_KERNELS if device == "cpu" else EmbeddingComputeKernel
    kernels = [
        kernel.value for kernel in ((EmbeddingComputeKernel.DENSE,) if replicated else known)
    ]
    if sharding.compute_kernel not in kernels:
        expected = " or ".join(map(repr, kernels))
        on = f" on {device}" if device else ""
        raise InputError(
            f"{at}: compute_kernel: expected {expected} with {sharding.sharding_type}{on}, "
            f"got {sharding.compute_kernel!r}"
        )


def _check_shards(
    sharding: ParameterSharding, table: EmbeddingConfig, world_size: int, at: str
) -> None:
    rows, dim = table.num_embeddings, table.embedding_dim
    for place, shard in enumerate(sharding.sharding_spec):
        if shard.table != table.name:
            raise InputError(
                f"{at}: shards.{place}.table: expected {table.name!r}, got {shard.table!r}"
            )
        if (most := max(shard.devices, default=0)) >= world_size:
            raise InputError(
                f"{at}: expected a plan for world size {world_size}, got a shard on rank {most}"
            )
        fault = shard_fault(shard, rows=rows, dim=dim, devices=world_size)
        if fault:
            field = fault.field.replace("devices", "ranks")
            raise InputError(
                f"{at}: shards.{place}.{field}: expected {fault.expected}, got {fault.got}"
            )
        replicated = sharding.sharding_type == ShardingType.DATA_PARALLEL.value
        if len(shard.devices) != (world_size if replicated else 1):
            expected = f"all {world_size} ranks" if replicated else "one rank"
            raise InputError(
                f"{at}: shards.{place}.ranks: expected {expected} with {sharding.sharding_type}, "
                f"got {list(shard.devices)}"
            )
    numbered = list(enumerate(sharding.sharding_spec))
    fault = tiling_fault(numbered, table.name, rows=rows, dim=dim)
    if fault:
        raise InputError(f"{at}: {fault.field}: expected {fault.expected}, got {fault.got}")
