"""``TableChoice``: how a plan cuts one table, and its other cuts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another cut of a table, with all other tables where they are."""

    sharding_type: str
    shards: int
    seconds: float
    """Of all shards."""

    placement_seconds: float
    """``PlanReport.placement_seconds`` then. Infinity: it does not fit the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChoice:
    """How one table is cut."""

    path: str
    """Of its collection in the model. Empty: of a package."""

    table: str
    sharding_type: str
    shards: int
    ranks: tuple[int, ...]
    seconds: float
    """Of all its shards."""

    find_alternatives: Callable[[], Sequence[Alternative]] = field(repr=False, compare=False)
    """What ``alternatives`` calls: it takes milliseconds a table."""

    @property
    def alternatives(self) -> Sequence[Alternative]:
        """All other cuts that were considered, the best first."""
        return self.find_alternatives()

    @property
    def name(self) -> str:
        """Path and table."""
        return f"{self.path}.{self.table}" if self.path else self.table
