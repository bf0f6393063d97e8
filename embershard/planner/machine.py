"""``Machine``: seconds of lookups, updates and messages on one kind of machine.

``calibrate`` measures them. ``default_machine`` ships with the package, in files that name the
source of each figure. Costs are linear in the ids, bags and bytes of a shard, and in the rows
outside each of a few caches.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from embershard.errors import InputError, PackageError
from embershard.package.files import replace_file
from embershard.package.manifest_inputs import Part
from embershard.package.row_format import RowFormat, WeightType
from embershard.package.validation import parse_model
from embershard.sharding.shard_memory import FLOAT_BYTES, ID_BYTES

FORMAT_VERSION = 1
WEIGHTS: Final[tuple[WeightType, ...]] = get_args(WeightType)
LINE_BYTES = 64
"""Bytes that memory moves at once, on CPUs and GPUs."""

Seconds = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
Bytes = Annotated[float, Field(ge=1, le=1e18, allow_inf_nan=False)]
"""Bytes of memory, or bytes a second."""

Floats: TypeAlias = NDArray[np.float64]
Amount: TypeAlias = float | Floats


def _ascending(sizes: tuple[float, ...]) -> tuple[float, ...]:
    if list(sizes) != sorted(sizes):
        raise ValueError("expected the smallest first")
    return sizes


class MissCost(Part):
    """Additional seconds of a row outside one cache: ``row + line_bytes * row_byte``."""

    row: Seconds
    row_byte: Seconds


class RowCost(Part):
    """Seconds of one pass over a batch, with ``line_bytes`` those of the cache lines of a row:

    start + ids * (id + line_bytes * id_byte) + bags * (bag + row_bytes * bag_byte)
          + rows * (row + line_bytes * row_byte) + misses for rows outside each cache
    """

    start: Seconds
    id: Seconds
    id_byte: Seconds
    bag: Seconds
    bag_byte: Seconds
    row: Seconds = 0.0
    """Seconds of a distinct row of a batch, which an update writes once."""

    row_byte: Seconds = 0.0
    misses: tuple[MissCost, ...] = ()
    """One for each of ``Machine.caches``, or none."""

    def seconds(
        self,
        *,
        ids: Amount,
        bags: Amount,
        row_bytes: Amount,
        rows: Amount | None = None,
        missed: Sequence[Amount] = (),
    ) -> Floats:
        """Seconds of passes without the start. ``row_bytes`` are those of the shard's columns.
        ``rows`` are the distinct rows among the ids, for a pass that visits each once; None if it
        visits the row of every id. ``missed`` has, for each cache, the share of ids whose row is
        outside it. Each such id counts as a further row, up to all distinct rows, since ids in the
        cache are of few rows."""
        lines, reached = line_bytes(row_bytes), ids if rows is None else rows
        seconds = ids * (self.id + lines * self.id_byte) + bags * (
            self.bag + row_bytes * self.bag_byte
        )
        if rows is not None:
            seconds = seconds + rows * (self.row + lines * self.row_byte)
        for cost, share in zip(self.misses, missed, strict=False):
            missing = np.minimum(ids * share, reached)
            seconds = seconds + missing * (cost.row + lines * cost.row_byte)
        return np.asarray(seconds)


class Kernel(Part):
    """A fused kernel with one optimizer: the lookup, and the update in backward."""

    forward: RowCost
    backward: RowCost


class Link(Part):
    """A path between two ranks."""

    latency_seconds: Seconds
    """Seconds of a collective that moves nothing."""

    bytes_per_second: Bytes
    """Bytes a second of one rank, sent and received together."""


class Machine(Part):
    """Costs of one kind of machine."""

    format_version: Annotated[int, Field(ge=FORMAT_VERSION, le=FORMAT_VERSION)] = FORMAT_VERSION
    processor: str
    """The system's name of the processor. On another processor a warning is shown."""

    versions: dict[str, str]
    caches: Annotated[tuple[Bytes, ...], Field(min_length=1), AfterValidator(_ascending)]
    """Bytes that each cache holds for one rank, smallest first: the sizes at which access times
    rise. The system reports other sizes, since a virtual machine has only a part of the last
    cache."""

    kernels: dict[str, Kernel]
    lookups: dict[str, RowCost] = Field(default_factory=dict)
    """Costs of a server's lookups by type of the stored rows: int8, int4, fp16, fp32. ``row_bytes``
    are those of the stored row. Empty: not measured."""

    exchange: RowCost = RowCost(start=0, id=0, id_byte=0, bag=0, bag_byte=0)
    """Seconds that the rank with a shard spends on messages, measured between two ranks. Zeros: not
    measured."""

    socket_byte: Seconds = 0.0
    """CPU seconds of a vector's byte, there and back, in the sending and receiving threads of both
    ranks. 0: not measured."""

    batch: RowCost = RowCost(start=0, id=0, id_byte=0, bag=0, bag_byte=0)
    """Seconds that every rank spends on its own batch under any plan: it sorts and sends ids,
    receives and joins vectors, and sends gradients. ``row_bytes`` are those of a bag's vector.
    Zeros: not measured."""

    host: Link
    """Link between ranks of one host."""

    network: Link
    """Link between hosts."""

    host_memory_rate: Bytes | Literal[0] = 0
    """Bytes a second between a GPU and its host's memory, each way. 0: unknown."""

    repeat_error: Seconds = 0.0
    fit_error: Seconds = 0.0
    """Mean relative difference between a measured operation and its fitted cost."""

    calibration_seconds: Seconds = 0.0
    """Duration of ``calibrate``. 0: unknown."""

    sources: dict[str, str] = Field(default_factory=dict)
    """Sources of figures that ``calibrate`` did not measure on this processor."""

    def exchange_of(self, ranks: int) -> RowCost:
        """``exchange`` among this number of ranks. Of two ranks, half of the vectors stay where
        they are; of more ranks, fewer."""
        byte = self.exchange.bag_byte + self.socket_byte * (1 / 2 - 1 / ranks)
        return self.exchange.model_copy(update={"bag_byte": max(byte, 0.0)})

    def mismatch(self, device: str = "cpu") -> str | None:
        """Names the processor of these costs and this machine's processor, or GPUs for "cuda", if
        they differ, else None."""
        here = gpu_names() if device == "cuda" else [processor_name()]
        if self.processor in here:
            return None
        names = " and ".join(map(repr, here)) or "no GPU"
        return f"costs of {self.processor!r}, this machine has {names}"

    @property
    def origin(self) -> str:
        """The processor of these costs, and for default costs the command that replaces them."""
        if any("embershard calibrate" in source for source in self.sources.values()):
            hint = "`embershard calibrate` measures this machine"
            return f"default costs, of {self.processor}; {hint}"
        return f"costs of {self.processor}"

    def kernel(self, optimizer: str) -> Kernel:
        """The kernel of one optimizer. Raises InputError if it was not measured."""
        if optimizer not in self.kernels:
            known = ", ".join(self.kernels)
            raise InputError(f"machine: optimizer: expected one of {known}, got {optimizer!r}")
        return self.kernels[optimizer]

    def lookup(self, weights: str) -> RowCost:
        """Costs of a server's lookups of rows of one type. Raises InputError if not measured."""
        if weights not in self.lookups:
            known = ", ".join(self.lookups) or "none"
            raise InputError(
                f"machine: lookups: expected costs of {weights} rows, got {known}; "
                "`embershard calibrate` measures them"
            )
        return self.lookups[weights]

    def save(self, path: str | Path) -> None:
        """Write the machine as JSON. An existing file is replaced in one step."""
        data, path = (self.model_dump_json(indent=1) + "\n").encode(), Path(path)
        if path.exists() and not path.is_file():  # Such as a pipe.
            path.write_bytes(data)
        else:
            replace_file(path.resolve(), data)


def line_bytes(row_bytes: Amount) -> Floats:
    """Mean bytes of the cache lines of a row, in a table whose rows are contiguous from the start
    of a line."""
    step = np.gcd(np.maximum(np.rint(row_bytes), 1).astype(np.int64), LINE_BYTES)
    return np.asarray(row_bytes + LINE_BYTES - step, float)


def read_machine(path: str | Path) -> Machine:
    """Read a file that ``Machine.save`` wrote. Raises InputError if it cannot be read, or is not a
    calibration; names file and field."""
    try:
        machine, _ = parse_model(Machine, Path(path).read_bytes(), str(path))
    except OSError as error:
        raise InputError(f"{path}: expected a calibration, got {error.strerror}") from error
    except PackageError as error:
        raise InputError(
            f"{error}; expected a file that `embershard calibrate` of this version wrote"
        ) from error
    return machine


def processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def gpu_names() -> list[str]:
    if not torch.cuda.is_available():
        return []
    names = (torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count()))
    return list(dict.fromkeys(names))


FORWARD_SHARE, CACHED_RATIO = 0.647, 2.0
HOST: Final = Link(latency_seconds=0, bytes_per_second=370e9)
NETWORK: Final = Link(latency_seconds=0, bytes_per_second=48e9)
EXCHANGE: Final = RowCost(start=0, id=0, id_byte=0, bag=0, bag_byte=2 / HOST.bytes_per_second)
DIM = 128
"""Columns of the row whose bytes are compared with those of its sum."""


class Gpu(NamedTuple):
    """Figures of a GPU's data sheet. Its GB of memory are GiB: nvidia-smi shows 81,559 MiB for an
    H100."""

    name: str
    memory_bytes: int
    bytes_per_second: float
    source: str

    @property
    def sources(self) -> dict[str, str]:
        """Sources of ``published_lookups``, ``HOST``, ``NETWORK`` and ``EXCHANGE``."""
        peak = f"{self.bytes_per_second / 1e12:g} TB/s of memory: {self.source}"
        return {
            "lookups": f"{peak}; 64.7 % of it, FBGEMM: meta-pytorch/torchrec pull request 4757",
            "lookups in the cache": "twice the peak bandwidth of memory: NVIDIA, Accelerating "
            "Embedding Lookups with cuEmbed",
            "host, exchange": "370 GB/s each way, NCCL, of 450 GB/s of NVLink 4: NVIDIA/nccl-tests "
            "issue 212",
            "network": "48 GB/s of a ConnectX-7 of 400 Gb/s a GPU: NVIDIA/nccl-tests issue 267",
        }


GPUS: Final = (
    Gpu("NVIDIA H100 SXM", 80 << 30, 3.35e12, "NVIDIA H100 Tensor Core GPU data sheet: 80 GB"),
    Gpu("NVIDIA H200 SXM", 141 << 30, 4.8e12, "NVIDIA H200 Tensor Core GPU data sheet: 141 GB"),
)
"""Smallest memory first."""


def gpu_for(memory_bytes: float) -> Gpu:
    """The smallest GPU with this much memory, or the largest of all."""
    return next((gpu for gpu in GPUS if memory_bytes <= gpu.memory_bytes), GPUS[-1])


def published_lookups(gpu: Gpu) -> dict[str, RowCost]:
    """Costs of a server's lookups with one cache, by type of the stored rows."""
    cached = 1 / (CACHED_RATIO * gpu.bytes_per_second)
    memory = 1 / (FORWARD_SHARE * gpu.bytes_per_second)
    return {
        weights: RowCost(
            start=0,
            id=ID_BYTES * memory,
            id_byte=cached,
            bag=0,
            bag_byte=_sum_ratio(weights) * memory,
            misses=(MissCost(row=0, row_byte=memory - cached),),
        )
        for weights in WEIGHTS
    }


def _sum_ratio(weights: WeightType) -> float:
    """Bytes of a sum, which is fp32, over those of a stored row."""
    return FLOAT_BYTES * DIM / RowFormat(weights, DIM).row_bytes


FOLDER = Path(__file__).parent
PROCESSOR: Final = "xeon_amx.json"
MEASURED: Final = dict(zip(GPUS, ("h100.json", "h200.json"), strict=True))


def default_machine(kind: str = "cpu", memory_bytes: float = 0) -> Machine:
    """Default costs of any processor, or of the smallest GPU with ``memory_bytes`` of memory."""
    return _read(MEASURED[gpu_for(memory_bytes)] if kind == "cuda" else PROCESSOR)


@cache
def _read(name: str) -> Machine:
    return read_machine(FOLDER / name)
