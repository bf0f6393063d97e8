"""``PlanReport``: costs of a plan on each rank or device, its bound, and other cuts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from embershard.errors import InputError
from embershard.formatting import megabytes_text, ms_text, names_text, table_lines
from embershard.planner.report_html import report_html


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePart:
    table: str
    seconds: float
    memory_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCosts:
    """Parts of a rank's seconds and memory in a step of training."""

    forward_seconds: float
    """Seconds of lookups."""

    backward_seconds: float
    """Seconds of updates."""

    message_seconds: float
    """Seconds of ids, vectors and gradients between ranks."""

    bytes_in: float
    bytes_out: float
    """Bytes of messages to other ranks; ``bytes_in`` from them."""

    weight_bytes: float
    state_bytes: float
    buffer_bytes: float
    """Bytes of a step's ids, vectors, access counts and caches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLoad:
    name: str
    seconds: float
    """Seconds of lookups, updates and messages in a step, or of lookups in a batch."""

    memory_bytes: float
    memory_bytes_max: int | None
    """Usable bytes. None: no cap."""

    host_memory_bytes: float = 0.0
    costs: RankCosts | None = None
    """None for plans of serving."""

    parts: Sequence[TablePart]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another cut of one table, with the other tables unchanged."""

    sharding_type: str
    shards: int
    seconds: float
    placement_seconds: float
    """``PlanReport.placement_seconds`` with this cut. Infinity: it does not fit the memory."""


def table_name(path: str, table: str) -> str:
    return f"{path}.{table}" if path else table


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChoice:
    path: str
    """Path of the table's collection in the model. Empty for tables of a package."""

    table: str
    sharding_type: str
    shards: int
    ranks: tuple[int, ...]
    seconds: float
    find_alternatives: Callable[[], Sequence[Alternative]] = field(repr=False, compare=False)
    """Computes ``alternatives`` on demand, in milliseconds a table."""

    @property
    def alternatives(self) -> Sequence[Alternative]:
        """All other cuts that were considered, best first."""
        return self.find_alternatives()

    @property
    def name(self) -> str:
        return table_name(self.path, self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeLoad:
    """Costs of batches of one size."""

    examples: float
    """Mean number of examples of a batch."""

    seconds: float
    """Seconds of the busiest device, averaged over batches."""

    work_seconds: float
    alone: float
    """Share of batches that one thread looks up, because waking others would take longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """Costs of one plan."""

    ranks: Sequence[RankLoad]
    tables: Sequence[TableChoice]
    """Tables, heaviest first."""

    bound_seconds: float
    """Lower bound on ``placement_seconds`` of every plan made of the considered cuts."""

    planning_seconds: float
    warnings: Sequence[str] = ()
    """Reasons to doubt the costs."""

    limit: str = ""
    """Reason for the bound."""

    costs: str = ""
    """Source of the costs in words."""

    unit: str = "step"
    """Unit of work that the seconds are for: a step or a batch."""

    common_seconds: float = 0.0
    """Seconds of every rank under any plan: for its own batch and, in training, for the dense
    part."""

    dense_seconds: float = 0.0
    """The dense part's share of ``common_seconds``."""

    phase_seconds: Sequence[float] = ()
    """In training, seconds of the busiest rank before the exchange of vectors, and of the busiest
    one after the exchange of gradients. All ranks wait for them."""

    sizes: Sequence[SizeLoad] = ()

    @property
    def busiest_seconds(self) -> float:
        return max(rank.seconds for rank in self.ranks)

    @property
    def placement_seconds(self) -> float:
        """Seconds that plans are compared by. In training, the sum of ``phase_seconds``; in
        serving, the busiest device's seconds of a batch."""
        return sum(self.phase_seconds) or self.busiest_seconds

    @property
    def step_seconds(self) -> float:
        """``placement_seconds`` and ``common_seconds`` together."""
        return self.placement_seconds + self.common_seconds

    @property
    def gap(self) -> float:
        """Relative distance of ``placement_seconds`` from the bound: 0.02 is 2 %."""
        return self.placement_seconds / self.bound_seconds - 1 if self.bound_seconds else 0.0

    @property
    def _compared(self) -> str:
        """Name of ``placement_seconds`` in the report."""
        return "step" if self.phase_seconds else "busiest"

    def summary(self) -> list[str]:
        """A few sentences: the step or the busiest device, the bound, and its reason."""
        busiest = max(self.ranks, key=lambda rank: rank.seconds)
        of_busiest = f"busiest {busiest.name}: {ms_text(busiest.seconds)} ms a {self.unit}"
        planned = (
            f"step: {ms_text(self.placement_seconds)} ms" if self.phase_seconds else of_busiest
        )
        lines = [
            *(f"warning: {warning}" for warning in self.warnings),
            f"{planned}, bound {ms_text(self.bound_seconds)} ms, gap {self.gap:.1%}; planned in "
            f"{self.planning_seconds:.2f} s",
        ]
        if self.phase_seconds:
            lines.append(
                f"ranks wait for the busiest one after lookups and after updates: "
                f"{' + '.join(map(ms_text, self.phase_seconds))} ms; {of_busiest}"
            )
        if self.common_seconds:
            also = f"{ms_text(self.common_seconds - self.dense_seconds)} ms to send the ids of "
            also += "its batch and receive the vectors"
            if self.dense_seconds:
                also += f", {ms_text(self.dense_seconds)} ms of the dense part"
            lines.append(
                f"under any plan, every rank also takes {also}; "
                f"the whole step: {ms_text(self.step_seconds)} ms"
            )
        if self.limit:
            lines.append(f"limit: {self.limit}")
        if self.costs:
            lines.append(self.costs)
        alone = [size.examples for size in self.sizes if size.alone == 1]
        if alone:
            lines.append(
                f"batches of up to {max(alone):,.0f} examples are looked up by one thread: sharing "
                "them among devices would take longer"
            )
        return lines

    def to_text(self, *, tables_max: int = 10) -> str:
        """The report as tables of ranks and of the ``tables_max`` heaviest tables."""
        lines = self.summary()
        for head, rows in self.sections(tables_max=tables_max):
            lines += ["", *table_lines(head, rows)]
        return "\n".join(lines) + "\n"

    def sections(self, *, tables_max: int = 10) -> list[tuple[list[str], list[list[str]]]]:
        """Head and rows of each table of the report that is not empty."""
        head, number = f"ms a {self.unit}", len(self.tables)
        table = "table" if number <= tables_max else f"table ({tables_max} heaviest of {number:,})"
        host = ["host MB"] if any(rank.host_memory_bytes for rank in self.ranks) else []
        sections = [
            (
                ["device", head, "MB", "of MB", *host],
                [
                    [rank.name, ms_text(rank.seconds), *_memory(rank)][: 4 + len(host)]
                    for rank in self.ranks
                ],
            ),
            (RANK_COSTS, [_costs_row(rank.name, rank.costs) for rank in self.ranks if rank.costs]),
            (
                [table, "cut", "ms", "on", "second best", f"{self._compared} then, ms"],
                [self._table_row(choice) for choice in self.tables[:tables_max]],
            ),
            (
                ["examples a batch", "ms", "ms of all devices", "batches of one thread"],
                [
                    [f"{size.examples:,.0f}", ms_text(size.seconds), ms_text(size.work_seconds),
                     f"{size.alone:.0%}"]
                    for size in self.sizes
                ],
            ),
        ]  # fmt: skip
        return [(columns, rows) for columns, rows in sections if rows]

    def to_html(self, *, title: str = "Plan") -> str:
        """One HTML page without other files: tables, and bars of load and memory by table."""
        return report_html(
            title,
            self.ranks,
            bound_seconds=self.bound_seconds,
            tables=[choice.name for choice in self.tables],
            lines=self.summary(),
            unit=self.unit,
            sections=self.sections(),
        )

    def explain(self, table: str) -> str:
        """Explain the place of a table, by name, or path and name: its cut, and every other one
        with its costs. Raises InputError if the plan has no such table."""
        choices = [choice for choice in self.tables if table in (choice.table, choice.name)]
        if not choices:
            known = names_text(choice.name for choice in self.tables)
            raise InputError(f"explain: expected a table of the plan ({known}), got {table!r}")
        return "\n".join(line for choice in choices for line in self._explanation(choice)) + "\n"

    def _explanation(self, choice: TableChoice) -> list[str]:
        total = sum(rank.seconds for rank in self.ranks)
        share, place = choice.seconds / total if total else 0, self.tables.index(choice) + 1
        lines = [
            f"{choice.name}: {choice.sharding_type} x {choice.shards} on {self._on(choice)}; "
            f"{ms_text(choice.seconds)} ms a {self.unit}, {share:.1%} of all, "
            f"number {place} of {len(self.tables)} tables by time",
            f"{self._compared} now: {ms_text(self.placement_seconds)} ms",
            "",
        ]
        if not choice.alternatives:
            return [*lines, "no other cut"]
        others = ((_cut(e), ms_text(e.seconds), _then(e)) for e in choice.alternatives)
        return lines + table_lines(("other cut", "ms", f"{self._compared} then, ms"), others)

    def _table_row(self, choice: TableChoice) -> list[str]:
        other = next(iter(choice.alternatives), None)
        return [
            choice.name,
            f"{choice.sharding_type} x {choice.shards}",
            ms_text(choice.seconds),
            self._on(choice),
            "none" if other is None else f"{_cut(other)}, {ms_text(other.seconds)} ms",
            "" if other is None else _then(other),
        ]

    def _on(self, choice: TableChoice) -> str:
        names = [self.ranks[rank].name for rank in choice.ranks]
        return ", ".join(names) if len(names) <= 8 else f"{len(names)} of {len(self.ranks)}"


RANK_COSTS = ["device", "forward, ms", "backward, ms", "messages, ms", "MB in", "MB out",
              "weights MB", "state MB", "buffers MB"]  # fmt: skip


def _costs_row(name: str, costs: RankCosts) -> list[str]:
    seconds = costs.forward_seconds, costs.backward_seconds, costs.message_seconds
    moved = costs.bytes_in, costs.bytes_out
    held = costs.weight_bytes, costs.state_bytes, costs.buffer_bytes
    return [name, *map(ms_text, seconds), *map(megabytes_text, (*moved, *held))]


def _memory(rank: RankLoad) -> list[str]:
    cap = rank.memory_bytes_max
    most = "no cap" if cap is None else megabytes_text(cap)
    return [megabytes_text(rank.memory_bytes), most, megabytes_text(rank.host_memory_bytes)]


def _cut(other: Alternative) -> str:
    return f"{other.sharding_type} x {other.shards}"


def _then(other: Alternative) -> str:
    return (
        "over the memory"
        if other.placement_seconds == float("inf")
        else ms_text(other.placement_seconds)
    )
