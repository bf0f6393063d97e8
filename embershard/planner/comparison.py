"""Compares estimates with measurements: of a training run, and of a server's devices.

A run with ``sharding.plan = "auto"`` leaves a ``MeasuredRun`` in its checkpoint folder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import numpy as np
from prometheus_client.parser import text_string_to_metric_families
from pydantic import Field

from embershard.errors import InputError, PackageError
from embershard.formatting import table_lines
from embershard.package import Plan
from embershard.package.manifest import TableSpec
from embershard.package.manifest_inputs import Part
from embershard.package.validation import parse_model
from embershard.planner.lookup_load import LookupLoad
from embershard.planner.machine import Machine, Positive, Seconds
from embershard.planner.serving_cost import device_seconds, served_tables

FORMAT_VERSION = 1
FILE: Final = "sharding.json"
COUNT_MAX = 1e15
STEP_FAR, LOOKUPS_FAR = 1.5, 2.0
"""Ratios of measured to estimated seconds, of a step and of a server's lookups. Beyond them or
their inverse, other costs are suggested."""

CALIBRATE = "`embershard calibrate` measures this machine"


class RankSeconds(Part):
    lookup: Seconds
    update: Seconds


class StepSeconds(Part):
    """All CPU seconds of the busiest rank in a step."""

    estimated: Positive
    measured: Seconds


class MeasuredRun(Part):
    """Estimate and measurement of each rank."""

    format_version: Annotated[int, Field(ge=FORMAT_VERSION, le=FORMAT_VERSION)] = FORMAT_VERSION
    optimizer: str
    """Class of the tables' optimizer."""

    steps: Annotated[int, Field(ge=1)]
    estimated: tuple[RankSeconds, ...]
    measured: tuple[RankSeconds, ...]
    step: StepSeconds

    @property
    def lookup_factor(self) -> float:
        """Measured over estimated seconds of lookups, of all ranks together."""
        return _factor([e.lookup for e in self.estimated], [m.lookup for m in self.measured])

    @property
    def update_factor(self) -> float:
        """Measured over estimated seconds of updates, of all ranks together."""
        return _factor([e.update for e in self.estimated], [m.update for m in self.measured])

    def to_text(self) -> str:
        rows = list[tuple[object, ...]]()
        for estimated, measured in zip(self.estimated, self.measured, strict=True):
            times = (measured.lookup, estimated.lookup, measured.update, estimated.update)
            rows.append((len(rows), *(f"{seconds * 1e3:.3f}" for seconds in times)))
        lines = [
            f"CPU ms of a step, mean of {self.steps} steps; measured / estimated: lookups "
            f"{self.lookup_factor:.2f}, updates {self.update_factor:.2f}",
            "",
            *table_lines(("rank", "lookups", "estimate", "updates", "estimate"), rows),
            "",
            f"the whole step of the busiest rank: {self.step.measured * 1e3:.3f} CPU ms, "
            f"estimate {self.step.estimated * 1e3:.3f}: measured / estimated "
            f"{self.step.measured / self.step.estimated:.2f}",
        ]
        if not 1 / STEP_FAR < self.step.measured / self.step.estimated < STEP_FAR:
            lines.append(f"the costs are of another machine, or this one is busy: {CALIBRATE}")
        return "\n".join(lines) + "\n"

    def save(self, folder: Path) -> None:
        text = self.model_dump_json(indent=1) + "\n"
        (folder / FILE).write_text(text, encoding="utf-8")


def compare(run: str | Path) -> MeasuredRun:
    """Read the measurements of a run, from its checkpoint folder. Raises InputError if there are
    none, or they cannot be read; names file and field."""
    path = Path(run) / FILE
    try:
        run_seconds, _ = parse_model(MeasuredRun, path.read_bytes(), str(path))
    except OSError as error:
        raise InputError(
            f"{path}: expected the measurements of a run with sharding.plan = 'auto', got "
            f"{error.strerror}"
        ) from error
    except PackageError as error:
        raise InputError(str(error)) from error
    estimated, measured = len(run_seconds.estimated), len(run_seconds.measured)
    if estimated != measured:
        raise InputError(f"{path}: measured: expected {estimated} ranks, got {measured}")
    return run_seconds


def _factor(estimated: list[float], measured: list[float]) -> float:
    total = float(np.sum(estimated))
    return float(np.sum(measured)) / total if total else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBatches:
    """Totals that a server has measured since it started."""

    examples: float
    batches: float
    seconds: Mapping[str, float]
    """Device -> seconds of its lookups in all batches together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceComparison:
    """Seconds of one device in the mean batch."""

    device: str
    measured_seconds: float
    estimated_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    plan: str
    examples: float
    batches: float
    devices: Sequence[DeviceComparison]

    @property
    def factor(self) -> float:
        """Measured over estimated time of all devices together; 1 without an estimate."""
        estimated = sum(device.estimated_seconds for device in self.devices)
        measured = sum(device.measured_seconds for device in self.devices)
        return measured / estimated if estimated else 1.0

    def to_text(self) -> str:
        head = ("device", "measured, us a batch", "estimated", "measured / estimated")
        rows = list[tuple[str, ...]]()
        for device in self.devices:
            measured, estimated = device.measured_seconds, device.estimated_seconds
            ratio = f"{measured / estimated:.2f}" if estimated else "none"
            rows.append((device.device, f"{measured * 1e6:.1f}", f"{estimated * 1e6:.1f}", ratio))
        plan = f"plan {self.plan}: {self.batches:,.0f} batches of {self.examples:,.1f} examples"
        lines = [plan, "", *table_lines(head, rows)]
        if not 1 / LOOKUPS_FAR <= self.factor <= LOOKUPS_FAR:
            factor = f"all devices: measured / estimated {self.factor:.2f}"
            lines += [
                "",
                f"{factor}: the costs are of other tables or another machine; {CALIBRATE}",
            ]
        return "\n".join(lines) + "\n"


def read_batches(text: str, *, model: str, version: int, source: str) -> ServedBatches:
    """Read the figures of one version from a server's ``/metrics``, in Prometheus' format.
    ``source`` names their origin in messages. Raises InputError if the text has another format, or
    no lookups or no batches of the version."""
    labels = {"model": model, "version": str(version)}
    seconds, sums = dict[str, float](), dict[str, float]()
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if any(sample.labels.get(name) != value for name, value in labels.items()):
                    continue
                if sample.name == "embershard_device_lookup_seconds_total":
                    seconds[sample.labels["device"]] = sample.value
                elif sample.name.startswith("embershard_batch_examples_"):
                    sums.setdefault(sample.name, sample.value)
    except (ValueError, KeyError) as error:
        raise InputError(f"{source}: expected metrics of a server, got other text") from error
    numbers = [*seconds.values(), *sums.values()]
    if not all(0 <= number <= COUNT_MAX for number in numbers):
        raise InputError(f"{source}: expected sums of 0 .. {COUNT_MAX:g}, got {numbers}")
    batches = sums.get("embershard_batch_examples_count", 0.0)
    if not seconds or not batches:
        what = "batches that ran" if seconds else "lookup time of devices"
        raise InputError(f"{source}: expected {what} of {model} {version}, got none")
    examples = sums.get("embershard_batch_examples_sum", 0.0) / batches
    return ServedBatches(examples=examples, batches=batches, seconds=seconds)


def compare_devices(
    plan: Plan,
    tables: Sequence[TableSpec],
    load: LookupLoad,
    machine: Machine,
    measured: ServedBatches,
) -> Comparison:
    used = sorted({plan.devices[place] for shard in plan.shards for place in shard.devices})
    if used != sorted(measured.seconds):
        raise InputError(
            f"compare: expected lookups on {', '.join(used)}, the devices of plan {plan.name}, got "
            f"{', '.join(sorted(measured.seconds))}: --name says which plan is served"
        )
    named = {table.spec.name: table for table in served_tables(tables, load, machine, plan.devices)}
    batches = load.batches(max(1, round(measured.examples)))
    seconds, _ = device_seconds(plan.shards, named, batches, len(plan.devices))
    estimated = np.asarray(seconds.mean(0))
    return Comparison(
        plan=plan.name,
        examples=measured.examples,
        batches=measured.batches,
        devices=[
            DeviceComparison(
                device=device,
                measured_seconds=measured.seconds[device] / measured.batches,
                estimated_seconds=float(estimated[place]),
            )
            for place, device in enumerate(plan.devices)
            if device in measured.seconds
        ],
    )
