"""``MeasuredRun``: what lookups and updates of a training run cost each rank, beside its plan.

A run with ``sharding.plan = "auto"`` leaves it in its checkpoint folder.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from embershard.errors import InputError, PackageError
from embershard.formatting import table_lines
from embershard.package.manifest_inputs import Part
from embershard.package.validation import parse_model
from embershard.planner.machine import Kernel, Machine, Positive, Seconds

FORMAT_VERSION = 0
FILE = "sharding.json"
FACTOR_FAR = 1.5
"""Measured over estimated seconds of a step, or the other way round, that call for other costs."""


class RankSeconds(Part):
    """Of one rank, a step: CPU seconds."""

    lookup: Seconds
    update: Seconds


class StepSeconds(Part):
    """Of the busiest rank, a step: CPU seconds of all that it does."""

    estimated: Positive
    measured: Seconds


class MeasuredRun(Part):
    """Estimate and measurement of each rank."""

    format_version: Annotated[int, Field(ge=FORMAT_VERSION, le=FORMAT_VERSION)] = FORMAT_VERSION
    optimizer: str
    """Of the tables."""

    steps: Annotated[int, Field(ge=1)]
    """That were measured."""

    estimated: tuple[RankSeconds, ...]
    measured: tuple[RankSeconds, ...]
    step: StepSeconds
    costs: str | None = None
    """`Machine.digest` of those that it was planned by. None: an earlier version wrote this."""

    @property
    def lookup_factor(self) -> float:
        """Measured seconds of lookups over estimated ones, of all ranks together."""
        return _factor([e.lookup for e in self.estimated], [m.lookup for m in self.measured])

    @property
    def update_factor(self) -> float:
        """Likewise of updates."""
        return _factor([e.update for e in self.estimated], [m.update for m in self.measured])

    def to_text(self) -> str:
        """As a table of ranks."""
        rows = list[tuple[object, ...]]()
        for said, found in zip(self.estimated, self.measured, strict=True):
            times = (found.lookup, said.lookup, found.update, said.update)
            rows.append((len(rows), *(f"{each * 1e3:.3f}" for each in times)))
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
        if not 1 / FACTOR_FAR < self.step.measured / self.step.estimated < FACTOR_FAR:
            lines.append(
                "costs of another machine, or a busy one: `embershard calibrate` measures this "
                "one, `embershard plan --compare FOLDER --recalibrate NEW` learns from this run"
            )
        return "\n".join(lines) + "\n"

    def save(self, folder: Path) -> None:
        """Write it into a run's checkpoint folder."""
        text = self.model_dump_json(indent=1) + "\n"
        (folder / FILE).write_text(text, encoding="utf-8")


def compare(run: str | Path) -> MeasuredRun:
    """Read what a run measured.

    Args:
        run: its checkpoint folder.

    Raises:
        InputError: there is none, or it cannot be read; with file and field.
    """
    path = Path(run) / FILE
    try:
        found, _ = parse_model(MeasuredRun, path.read_bytes(), str(path))
    except OSError as error:
        raise InputError(
            f"{path}: expected the measurements of a run with sharding.plan = 'auto', got "
            f"{error.strerror}"
        ) from error
    except PackageError as error:
        raise InputError(str(error)) from error
    if len(found.estimated) != len(found.measured):
        raise InputError(
            f"{path}: measured: expected {len(found.estimated)} ranks, got {len(found.measured)}"
        )
    return found


def recalibrate(run: str | Path, machine: Machine) -> Machine:
    """The machine with the costs of the run's optimizer scaled to what the run measured.

    Args:
        run: its checkpoint folder.
        machine: by whose costs the run was planned.

    Raises:
        InputError: as ``compare``; or the run was planned by other costs, or the machine has none
            of the run's optimizer.
    """
    found = compare(run)
    if found.costs not in (None, machine.digest):
        raise InputError(
            f"recalibrate: expected the costs that {run} was planned by (its sharding.machine, or "
            f"those that ship), got {machine.origin}"
        )
    kernel = machine.kernel(found.optimizer)
    scaled = Kernel(
        forward=kernel.forward.scaled(found.lookup_factor),
        backward=kernel.backward.scaled(found.update_factor),
    )
    return machine.model_copy(update={"kernels": {**machine.kernels, found.optimizer: scaled}})


def _factor(estimated: list[float], measured: list[float]) -> float:
    total = float(np.sum(estimated))
    return float(np.sum(measured)) / total if total else 1.0
