"""Parts of a ``PlanReport``: costs of a rank, a table's cut and its other cuts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePart:
    """Costs that one table adds to a rank."""

    table: str
    seconds: float
    memory_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCosts:
    """Parts of the seconds and the memory of a rank in a step of training."""

    forward_seconds: float
    """Lookups."""

    backward_seconds: float
    """Updates."""

    message_seconds: float
    """Ids, vectors and gradients between ranks."""

    bytes_in: float
    bytes_out: float
    """Bytes of these messages, from and to other ranks."""

    weight_bytes: float
    """Bytes in both kinds of memory together, as the state's are."""

    state_bytes: float
    buffer_bytes: float
    """Ids, vectors, access counts and caches of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLoad:
    """Costs of one rank or device, table by table."""

    name: str
    """"rank 0", or "cpu:0"."""

    seconds: float
    """Seconds of lookups, updates and messages in a step, or of lookups in a batch."""

    memory_bytes: float
    memory_bytes_max: int | None
    """Usable bytes; None without a cap."""

    host_memory_bytes: float = 0.0
    """Bytes of tables in unified memory."""

    costs: RankCosts | None = None
    """None for plans of serving."""

    parts: Sequence[TablePart]
    """Each table that lies there, the heaviest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another cut of a table, with all other tables where they are."""

    sharding_type: str
    shards: int
    seconds: float
    """Seconds of all shards."""

    placement_seconds: float
    """``PlanReport.placement_seconds`` then. Infinity: it does not fit the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChoice:
    """How a plan cuts one table."""

    path: str
    """Path of the table's collection in the model. Empty for tables of a package."""

    table: str
    sharding_type: str
    shards: int
    ranks: tuple[int, ...]
    seconds: float
    """Seconds of all its shards."""

    find_alternatives: Callable[[], Sequence[Alternative]] = field(repr=False, compare=False)
    """Makes ``alternatives`` when they are first asked for, in milliseconds a table."""

    @property
    def alternatives(self) -> Sequence[Alternative]:
        """All other cuts that were considered, the best first."""
        return self.find_alternatives()

    @property
    def name(self) -> str:
        """Path and table."""
        return f"{self.path}.{self.table}" if self.path else self.table


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeLoad:
    """Batches of one size."""

    examples: float
    """Mean number of examples of a batch."""

    seconds: float
    """Seconds of the busiest device, the mean over batches."""

    work_seconds: float
    """Seconds of all devices together."""

    alone: float
    """Share of the batches that one thread does, as waking others would take longer."""
