"""What a server says of loading and letting go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict

__all__ = ["IndexEntry", "LoadCost", "LoadEvent"]


class LoadCost(TypedDict):
    """What an order took."""

    seconds: float
    unserved_seconds: float
    """Of these, without any version of the model that answered."""


class IndexEntry(TypedDict):
    """A version in the repository."""

    model: str
    version: int
    labels: list[str]
    """As served: a label that was given to a version that could not be loaded is still where it
    was."""
    is_default: bool
    """Whether it answers requests that name no version."""
    state: Literal["unloaded", "loading", "ready", "failed"]
    reason: str
    """Why it is not ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadEvent:
    """Something that became of a version."""

    what: str
    """``loaded``, ``load_failed``, ``replaced`` or ``unloaded``."""
    model: str
    version: int
    """0: all of the model."""
    seconds: float
    """That it took. ``replaced``: in which nothing of the model answered."""
    message: str
    """Why it failed."""
