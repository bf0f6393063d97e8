"""``Topology``: the ranks of a plan. ``ParameterConstraints``: the allowed cuts of a table."""

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral, Real
from typing import Any, cast

import torch
from torch import Tensor

from embershard.errors import InputError
from embershard.planner.cost import HOST_KERNELS
from embershard.planner.machine import Machine, default_machine
from embershard.sharding import EmbeddingComputeKernel, ShardingType
from embershard.sharding.shard_memory import FLOAT_BYTES

GOT_MAX = 80


def check_number(where: str, value: object, low: float, high: float, expected: str = "") -> float:
    """Refuse other types and numbers outside ``low .. high``. The result is Python's: NumPy's may
    overflow."""
    _check(where, value, Real, low, high, expected or f"a number of {low:g} .. {high:g}")
    return int(value) if isinstance(value, Integral) else float(cast("Real", value))


def check_integer(where: str, value: object, low: int, high: int) -> int:
    _check(where, value, Integral, low, high, f"an integer of {low:,} .. {high:,}")
    return int(cast("Integral", value))


def check_kind(where: str, value: object, kind: Any, expected: str) -> None:
    """Refuse objects of other types. A string is not a sequence here."""
    if isinstance(value, str) or not isinstance(value, kind):
        got = repr(value)
        raise InputError(f"{where}: expected {expected}, got {got[:GOT_MAX]}")


def check_counts(counts: object) -> None:
    where = "constraints: access_counts: expected a dense tensor of one real number a row, got"
    if not isinstance(counts, Tensor):
        raise InputError(f"{where} {type(counts).__name__}")
    if counts.layout != torch.strided or counts.is_complex() or counts.is_meta:
        kind = f"{counts.dtype}, {counts.layout}, device {counts.device}"
        raise InputError(f"{where} {kind}")


def _check(where: str, value: Any, kind: Any, low: float, high: float, expected: str) -> None:
    is_kind = isinstance(value, kind) and not isinstance(value, bool)
    if not (is_kind and low <= value <= high):
        raise InputError(f"{where}: expected {expected}, got {value!r}")


GIB = 1 << 30
COMPUTE_DEVICES = ("cpu", "cuda")
HBM_BYTES = 80 * 10**9
RANKS_MAX = 1 << 20
BYTES_MAX = 1e18
COLUMNS_MAX = 1 << 31
POOLING_MAX = 1e9
SPEEDS = (1e-6, 1e6)
PLANNED_KERNELS = (EmbeddingComputeKernel.FUSED.value, *HOST_KERNELS)
RATES = (1.0, 1e15)
"""Range in bytes a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Memory and speed of one rank."""

    memory_bytes: int
    speed: float = 1.0
    """Speed of its lookups and updates, relative to the calibrated machine."""

    host_memory_bytes: int = 0
    """For "cuda", bytes of host memory for tables in unified memory. 0: no tables there."""


class Topology:
    """Ranks, their memory, and the machine they run on. Names follow TorchRec.

    Args:
        world_size: number of ranks.
        compute_device: "cpu" or "cuda".
        hbm_cap: for "cuda", bytes of memory for the tables of one rank. None: 80 GB.
        ddr_cap: for "cpu", bytes of memory for the tables of one rank. None: 128 GiB divided by the
            ranks of a host. For "cuda", bytes of host memory for tables in unified memory. None: no
            tables there.
        local_world_size: ranks of a host. None: all ranks are on one host.
        devices: memory and speed of each rank, if they differ; instead of ``ddr_cap`` and
            ``hbm_cap``.
        machine: costs. None: default costs of this kind of processor, or of the smallest GPU with
            enough memory.
        inter_host_bw: bytes a millisecond between a rank and other hosts, sent and received
            together, as in TorchRec. None: ``machine.network``.
        intra_host_bw: always refused, because ``machine.exchange`` has measured costs.

    Raises:
        InputError: no rank, no memory, a speed or bandwidth that is not positive, or an unknown
            device.
    """

    def __init__(
        self,
        world_size: int,
        compute_device: str = "cpu",
        hbm_cap: int | None = None,
        ddr_cap: int | None = None,
        *,
        local_world_size: int | None = None,
        devices: Sequence[Device] | None = None,
        machine: Machine | None = None,
        inter_host_bw: float | None = None,
        intra_host_bw: float | None = None,
    ) -> None:
        world_size = check_integer("topology: world_size", world_size, 1, RANKS_MAX)
        if compute_device not in COMPUTE_DEVICES:
            raise InputError(
                f"topology: compute_device: expected {' or '.join(COMPUTE_DEVICES)}, "
                f"got {compute_device!r}"
            )
        is_cpu = compute_device == "cpu"
        if is_cpu and hbm_cap is not None:
            raise InputError("topology: cpu: expected ddr_cap, got hbm_cap")
        device_cap, host = (ddr_cap, 0) if is_cpu else (hbm_cap, 0 if ddr_cap is None else ddr_cap)
        local = world_size if local_world_size is None else local_world_size
        local = check_integer("topology: local_world_size", local, 1, RANKS_MAX)
        if world_size % local:
            raise InputError(
                f"topology: local_world_size: expected a divisor of {world_size}, got {local}"
            )
        if devices is None:
            default = 128 * GIB // local if is_cpu else HBM_BYTES
            cap = default if device_cap is None else device_cap
            devices = [Device(memory_bytes=cap, host_memory_bytes=host)] * world_size
        elif device_cap is not None or host:
            raise InputError("topology: expected devices, or ddr_cap and hbm_cap, got both")
        check_kind("topology: devices", devices, Sequence, "a list of Device")
        if len(devices) != world_size:
            raise InputError(f"topology: expected {world_size} devices, got {len(devices)}")
        if machine is not None:
            check_kind("topology: machine", machine, Machine, "a Machine: read_machine(FILE)")
        for rank, device in enumerate(devices):
            check_kind(f"topology: devices: rank {rank}", device, Device, "a Device")
        checked = [_checked(rank, device, is_cpu) for rank, device in enumerate(devices)]
        if intra_host_bw is not None:
            raise InputError(
                "topology: intra_host_bw: expected machine=read_machine(FILE), whose costs of "
                "messages inside a host `embershard calibrate --out FILE` measures, "
                f"got {intra_host_bw}"
            )
        if inter_host_bw is not None:
            where = "topology: inter_host_bw, bytes a millisecond"
            inter_host_bw = check_number(where, inter_host_bw, *RATES)
        self.world_size, self.local_world_size = world_size, local
        self.compute_device = compute_device
        self.devices = tuple(checked)
        self._machine, self._inter_host_bw = machine, inter_host_bw

    @cached_property
    def machine(self) -> Machine:
        largest = max(device.memory_bytes for device in self.devices)
        machine = self._machine or default_machine(self.compute_device, largest)
        if self._inter_host_bw is None:
            return machine
        rate = {"bytes_per_second": self._inter_host_bw * 1e3}
        return machine.model_copy(update={"network": machine.network.model_copy(update=rate)})

    @property
    def host_memory_rate(self) -> float:
        """Bytes a second between a rank and tables in its host's memory. 0: no tables there. Raises
        InputError if there is such memory, but the machine has no rate for it."""
        if not any(device.host_memory_bytes for device in self.devices):
            return 0.0
        if not self.machine.host_memory_rate:
            raise InputError(
                "topology: host memory: expected a machine with host_memory_rate, got "
                f"{self.machine.processor!r} without"
            )
        return self.machine.host_memory_rate

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt the costs: they are of a processor or GPU that this machine does not
        have."""
        mismatch = None if self._machine is None else self.machine.mismatch(self.compute_device)
        return () if mismatch is None else (f"machine: {mismatch}",)

    def all_reduce_seconds(self, values: float) -> float:
        """Seconds to sum this number of float32 values over all ranks. Each rank sends and receives
        all values twice, except its own part."""
        link = self.machine.host if self.hosts == 1 else self.machine.network
        return 4 * FLOAT_BYTES * values * (1 - 1 / self.world_size) / link.bytes_per_second

    @property
    def hosts(self) -> int:
        return self.world_size // self.local_world_size


def _checked(rank: int, device: Device, is_cpu: bool) -> Device:
    where, span = f"topology: rank {rank}", f"1 .. {BYTES_MAX:g} bytes"
    memory, host = device.memory_bytes, device.host_memory_bytes
    most = 0 if is_cpu else BYTES_MAX
    return Device(
        memory_bytes=int(check_number(f"{where}: memory", memory, 1, BYTES_MAX, span)),
        speed=check_number(f"{where}: speed", device.speed, *SPEEDS),
        host_memory_bytes=int(check_number(f"{where}: host memory", host, 0, most)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterConstraints:
    """Constraints on the plan of one table. Most names follow TorchRec.

    Raises:
        InputError: an unknown name, or a value of another type or out of range.
    """

    sharding_types: Collection[str] | None = None
    """Values of ``ShardingType`` to choose from. None: table_wise, column_wise, and row_wise on any
    number of ranks. data_parallel must be the only one, and replicates the table on every rank;
    otherwise it is ignored with a warning."""

    compute_kernels: Collection[str] | None = None
    """Values of ``EmbeddingComputeKernel`` to choose from: fused and, if the topology has host
    memory, fused_uvm_caching and fused_uvm; for data_parallel only dense. None: all of these."""

    min_partition: int | None = None
    """Least columns of a shard. None: 32."""

    pooling_factors: Sequence[float] | None = None
    """Mean ids a bag: one number, or one for each of the table's features in order. An array is
    converted to a list. None: 1."""

    cached_share: float | None = None
    """Share of lookups whose row is in the cache, 0 .. 1. None: computed from the sizes of all
    tables and of the caches."""

    access_counts: Tensor | None = field(default=None, compare=False, repr=False)
    """Lookups of each row, ``(num_embeddings,)``, from ``DistributedModelParallel.access_counts``
    or a sample of the data. They tell which rows are in the cache and the lookups of a row range.
    None: all rows are looked up equally often."""

    def __post_init__(self) -> None:
        self._check_names("sharding_types", [kind.value for kind in ShardingType])
        self._check_names("compute_kernels", [kernel.value for kernel in EmbeddingComputeKernel])
        is_replica = self.sharding_types == [ShardingType.DATA_PARALLEL.value]
        kernels = (EmbeddingComputeKernel.DENSE.value,) if is_replica else PLANNED_KERNELS
        if self.compute_kernels is not None and not set(kernels) & set(self.compute_kernels):
            raise InputError(
                f"constraints: compute_kernels: expected {' or '.join(map(repr, kernels))} among "
                f"them, got {list(self.compute_kernels)}"
            )
        if self.min_partition is not None:
            least = check_integer("constraints: min_partition", self.min_partition, 1, COLUMNS_MAX)
            object.__setattr__(self, "min_partition", least)
        if self.cached_share is not None:
            share = check_number("constraints: cached_share", self.cached_share, 0, 1)
            object.__setattr__(self, "cached_share", share)
        if to_list := getattr(self.pooling_factors, "tolist", None):
            object.__setattr__(self, "pooling_factors", to_list())
        factors = [] if self.pooling_factors is None else self.pooling_factors
        if not isinstance(factors, Sequence):
            raise InputError(
                f"constraints: pooling_factors: expected a list of numbers, got {factors!r}"
            )
        if self.pooling_factors is not None:
            where = "constraints: pooling_factors"
            checked = [check_number(where, factor, 0, POOLING_MAX) for factor in factors]
            object.__setattr__(self, "pooling_factors", checked)
        counts = self.access_counts
        if counts is None:
            return
        check_counts(counts)
        counts = counts.detach().cpu()
        object.__setattr__(self, "access_counts", counts)
        if not (bool((counts >= 0).all()) and bool(counts.double().sum().isfinite())):
            raise InputError(
                "constraints: access_counts: expected numbers of at least 0 with a finite sum, "
                "got others"
            )

    def _check_names(self, field: str, known: list[str]) -> None:
        """Refuse a field that is not a list of known names. A set becomes a list."""
        names = getattr(self, field)
        if names is None:
            return
        if isinstance(names, Set):
            names = sorted(names, key=str)
            object.__setattr__(self, field, names)
        is_list = isinstance(names, Sequence) and not isinstance(names, str) and len(names)
        if not (is_list and all(name in known for name in names)):
            raise InputError(
                f"constraints: {field}: expected a list of some of {sorted(known)}, got {names!r}"
            )
        object.__setattr__(self, field, list(dict.fromkeys(names)))
