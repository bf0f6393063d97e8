"""``Machine``: what lookups, updates and messages cost on one kind of machine, in seconds.

``calibrate`` measures it; ``default_machine`` is one that ships. Costs are linear in the ids, bags
and bytes of a shard, and in the rows that do not lie in each of a few caches.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from embershard.errors import InputError, PackageError
from embershard.package.manifest_inputs import Part
from embershard.package.sealing import replace_file
from embershard.package.validation import parse_model

FORMAT_VERSION = 1
LINE_BYTES = 64
"""That memory moves at once, of CPUs and GPUs."""

Seconds = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
Bytes = Annotated[float, Field(ge=1, le=1e18, allow_inf_nan=False)]
"""Of memory, or of a second."""

Amount: TypeAlias = float | NDArray[np.float64]


def _ascending(sizes: tuple[float, ...]) -> tuple[float, ...]:
    if list(sizes) != sorted(sizes):
        raise ValueError("expected the smallest first")
    return sizes


class MissCost(Part):
    """Seconds that a row which is not in one cache takes more: ``row + line_bytes * row_byte``."""

    row: Seconds
    row_byte: Seconds


class RowCost(Part):
    """Seconds of one pass over a batch: ``ids * (id + line_bytes * id_byte) + bags * (bag +
    row_bytes * bag_byte) + rows * (row + line_bytes * row_byte)``, ``start`` for the call, and
    ``misses`` for each row that is not in one of the caches of the machine. ``line_bytes`` are
    those of the cache lines that a row lies in."""

    start: Seconds
    id: Seconds
    id_byte: Seconds
    bag: Seconds
    bag_byte: Seconds
    row: Seconds = 0.0
    """Of each distinct row of a batch: an update writes it once, however often it is looked up."""

    row_byte: Seconds = 0.0
    misses: tuple[MissCost, ...] = ()
    """One each of ``Machine.caches``, or none."""

    def seconds(
        self,
        *,
        ids: Amount,
        bags: Amount,
        row_bytes: Amount,
        rows: Amount | None = None,
        missed: Sequence[Amount] = (),
    ) -> NDArray[np.float64]:
        """Of passes, without the start.

        Args:
            row_bytes: of the shard's columns.
            rows: distinct rows among the ids, of a pass that reaches each once. None: it reaches
                the row of every id.
            missed: share of the ids whose row is not in each cache. Left out: none. As many
                distinct rows are missed, at most all: ids that are found are of few rows.
        """
        lines, reached = line_bytes(row_bytes), ids if rows is None else rows
        found = ids * (self.id + lines * self.id_byte) + bags * (
            self.bag + row_bytes * self.bag_byte
        )
        if rows is not None:
            found = found + rows * (self.row + lines * self.row_byte)
        for cost, share in zip(self.misses, missed, strict=False):
            missing = np.minimum(ids * share, reached)
            found = found + missing * (cost.row + lines * cost.row_byte)
        return np.asarray(found)


class Kernel(Part):
    """A fused kernel with one optimizer: the lookup, and the update in backward."""

    forward: RowCost
    backward: RowCost


class Link(Part):
    """A path between two ranks."""

    latency_seconds: Seconds
    """Of a collective that moves nothing."""

    bytes_per_second: Bytes
    """Of one rank, sent and received together."""


class Machine(Part):
    """Costs of one kind of machine."""

    format_version: Annotated[int, Field(ge=FORMAT_VERSION, le=FORMAT_VERSION)] = FORMAT_VERSION
    processor: str
    """As the system names it: a calibration of another one is warned about."""

    versions: dict[str, str]
    """Of the libraries that were measured."""

    caches: Annotated[tuple[Bytes, ...], Field(min_length=1), AfterValidator(_ascending)]
    """Bytes that each cache holds for one rank, the smallest first. Where access times rise, not
    what the system says: a virtual machine has a part of the processor's last cache."""

    kernels: dict[str, Kernel]
    """By the optimizer's name."""

    lookups: dict[str, RowCost] = Field(default_factory=dict)
    """Of a server, by how rows are stored: int8, int4, fp16, fp32. ``row_bytes`` are those of the
    stored row. Empty: not measured."""

    exchange: RowCost = RowCost(start=0, id=0, id_byte=0, bag=0, bag_byte=0)
    """Of the rank that holds a shard, beside its kernels: ids received, vectors sent, gradients
    received; of two ranks. Zeros: not measured."""

    socket_byte: Seconds = 0.0
    """CPU seconds of a byte of a vector between two ranks, in the threads of both that send and
    receive, there and back. 0: not measured."""

    batch: RowCost = RowCost(start=0, id=0, id_byte=0, bag=0, bag_byte=0)
    """Of every rank, for its own batch, whatever the plan: ids sorted and sent, vectors received
    and put side by side, gradients sent. ``row_bytes`` are those of a bag's vector. Zeros: not
    measured."""

    host: Link
    """Between ranks of one host."""

    network: Link
    """Between hosts."""

    host_memory_rate: Bytes | Literal[0] = 0
    """Bytes a second between a GPU and its host's memory, each way. 0: not known."""

    repeat_error: Seconds = 0.0
    """Median relative difference between two measurements of one operation."""

    fit_error: Seconds = 0.0
    """Mean relative difference between a measured operation and what these costs say of it."""

    calibration_seconds: Seconds = 0.0
    """That ``calibrate`` took. 0: not known."""

    sources: dict[str, str] = Field(default_factory=dict)
    """Of figures that were not measured by ``calibrate`` on this processor: where each is from."""

    def exchange_of(self, ranks: int) -> RowCost:
        """``exchange`` of so many ranks: of two, half of the vectors stay on their rank, of more
        fewer."""
        byte = self.exchange.bag_byte + self.socket_byte * (1 / 2 - 1 / ranks)
        return self.exchange.model_copy(update={"bag_byte": max(byte, 0.0)})

    def mismatch(self, device: str = "cpu") -> str | None:
        """Whose costs these are, if they were not measured on this machine's processor, or on one
        of its GPUs if the device is cuda; otherwise None."""
        here = [processor_name()] if device == "cpu" else gpu_names()
        if self.processor in here:
            return None
        names = " and ".join(map(repr, here)) or "no GPU"
        return f"costs of {self.processor!r}, this machine has {names}"

    @property
    def origin(self) -> str:
        """Whose costs these are; of those that ship, also how to replace them."""
        if any("embershard calibrate" in each for each in self.sources.values()):
            hint = "`embershard calibrate` measures this machine"
            return f"costs that ship, of {self.processor}; {hint}"
        return f"costs of {self.processor}"

    def kernel(self, optimizer: str) -> Kernel:
        """Of one optimizer.

        Raises:
            InputError: it was not measured.
        """
        if optimizer not in self.kernels:
            known = ", ".join(self.kernels)
            raise InputError(f"machine: optimizer: expected one of {known}, got {optimizer!r}")
        return self.kernels[optimizer]

    def lookup(self, weights: str) -> RowCost:
        """Of a server, in rows stored one way.

        Raises:
            InputError: it was not measured.
        """
        if weights not in self.lookups:
            known = ", ".join(self.lookups) or "none"
            raise InputError(
                f"machine: lookups: expected costs of {weights} rows, got {known}; "
                "`embershard calibrate` measures them"
            )
        return self.lookups[weights]

    def save(self, path: str | Path) -> None:
        """Write it as JSON. A file that is there is replaced once all is written."""
        data, path = (self.model_dump_json(indent=1) + "\n").encode(), Path(path)
        if path.exists() and not path.is_file():  # A pipe, say.
            path.write_bytes(data)
        else:
            replace_file(path.resolve(), data)


def line_bytes(row_bytes: Amount) -> NDArray[np.float64]:
    """Of the cache lines that a row lies in, in the mean over the rows of a table, which lie end
    to end from the start of a line.
    """
    step = np.gcd(np.maximum(np.rint(row_bytes), 1).astype(np.int64), LINE_BYTES)
    return np.asarray(row_bytes + LINE_BYTES - step, float)


def read_machine(path: str | Path) -> Machine:
    """Read what ``Machine.save`` wrote.

    Raises:
        InputError: it cannot be read, or is no calibration; with file and field.
    """
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
    """As the system names the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def gpu_names() -> list[str]:
    """As torch names the GPUs that it sees, each once."""
    if not torch.cuda.is_available():
        return []
    names = (torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count()))
    return list(dict.fromkeys(names))
