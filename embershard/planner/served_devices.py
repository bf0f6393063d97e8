"""Lookup time of each device as a server measured it, beside the estimate of its plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from embershard.errors import InputError
from embershard.formatting import table_lines
from embershard.package import Plan
from embershard.package.manifest import TableSpec
from embershard.planner.inference_cost import device_seconds, served_tables
from embershard.planner.lookup_load import LookupLoad
from embershard.planner.machine import Machine

COUNT_MAX = 1e15

FACTOR_FAR = 2.0
"""Measured over estimated seconds, or the other way round, that call for other costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBatches:
    """What a server measured since it started."""

    examples: float
    """Of a batch, in the mean."""

    batches: float
    seconds: Mapping[str, float]
    """Of lookups on each device, all batches together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceComparison:
    """One device, in the mean batch."""

    device: str
    measured_seconds: float
    estimated_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Of a plan."""

    plan: str
    examples: float
    batches: float
    devices: Sequence[DeviceComparison]

    @property
    def factor(self) -> float:
        """Measured time of all devices, relative to the estimate. 1: nothing is estimated."""
        estimated = sum(each.estimated_seconds for each in self.devices)
        return sum(each.measured_seconds for each in self.devices) / estimated if estimated else 1.0

    def to_text(self) -> str:
        """As a table."""
        head = ("device", "measured, us a batch", "estimated", "measured / estimated")
        rows = list[tuple[str, ...]]()
        for each in self.devices:
            measured, estimated = each.measured_seconds, each.estimated_seconds
            ratio = f"{measured / estimated:.2f}" if estimated else "none"
            rows.append((each.device, f"{measured * 1e6:.1f}", f"{estimated * 1e6:.1f}", ratio))
        plan = f"plan {self.plan}: {self.batches:,.0f} batches of {self.examples:,.1f} examples"
        lines = [plan, "", *table_lines(head, rows)]
        if not 1 / FACTOR_FAR <= self.factor <= FACTOR_FAR:
            lines += [
                "",
                f"in all measured / estimated {self.factor:.2f}: costs of other tables or another "
                "machine. `--recalibrate FILE` writes costs that fit, `embershard calibrate` "
                "measures this machine",
            ]
        return "\n".join(lines) + "\n"

    def recalibrated(self, machine: Machine) -> Machine:
        """The machine with costs of lookups that explain what was measured in sum."""
        lookups = {name: cost.scaled(self.factor) for name, cost in machine.lookups.items()}
        return machine.model_copy(update={"lookups": lookups})


def read_batches(text: str, *, model: str, version: int, source: str) -> ServedBatches:
    """Read what a server's ``/metrics`` says of one version.

    Args:
        text: in Prometheus' format.
        source: where the text comes from, for messages.

    Raises:
        InputError: it is no such text, has no lookups of the version, or no batch has run.
    """
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
    if not all(0 <= each <= COUNT_MAX for each in numbers):
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
    """The estimate of a plan beside what a server measured that serves it.

    Args:
        machine: whose ``lookups`` are used.

    Raises:
        InputError: the server has other devices than the plan has tables on.
    """
    used = sorted({plan.devices[each] for shard in plan.shards for each in shard.devices})
    if used != sorted(measured.seconds):
        raise InputError(
            f"compare: expected lookups on {', '.join(used)}, the devices of plan {plan.name}, got "
            f"{', '.join(sorted(measured.seconds))}: --name says which plan is served"
        )
    named = {
        each.spec.name: each for each in served_tables(tables, load, machine, len(plan.devices))
    }
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
