"""Data sets by name, as a configuration file asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from embershard.data.base import Dataset
from embershard.data.fetch import fetch_movielens
from embershard.data.movielens import load_movielens
from embershard.data.synthetic import SyntheticConfig, planted_click_log
from embershard.errors import InputError

__all__ = ["DATASETS", "DEFAULT_CACHE", "DataConfig", "load_dataset", "movielens_folder"]

DEFAULT_CACHE = Path("~/.cache/embershard")
DEFAULT_ROWS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """Which data set, and where it comes from."""

    name: str
    """One of `DATASETS`."""

    path: Path | None = None
    """movielens: the folder that holds it. None fetches it into ``cache``."""

    cache: Path = DEFAULT_CACHE
    """Where fetched data is kept, in a folder of its own name. ``~`` is the home folder."""

    rows: int | None = None
    """synthetic: examples to make; None makes a million."""

    seed: int | None = None
    """synthetic: None is 0."""


def load_dataset(config: DataConfig) -> Dataset:
    """Load the data set that ``config`` names.

    Raises:
        InputError: an unknown name, or a setting that this data set does not have.
        DataError: its files cannot be had or read.
    """
    if config.name not in DATASETS:
        raise InputError(f"data set: expected one of {sorted(DATASETS)}, got {config.name!r}")
    return DATASETS[config.name](config)


def movielens_folder(path: Path | None, cache: Path = DEFAULT_CACHE) -> Path:
    """Where MovieLens-100K lies: ``path``, or the cache, into which it is fetched if needed."""
    if path is not None:
        return path.expanduser()
    return fetch_movielens(cache.expanduser() / "movielens-100k")


def _movielens(config: DataConfig) -> Dataset:
    _refuse(config, rows=config.rows, seed=config.seed)
    return load_movielens(movielens_folder(config.path, config.cache)).dataset


def _synthetic(config: DataConfig) -> Dataset:
    _refuse(config, path=config.path)
    rows = DEFAULT_ROWS if config.rows is None else config.rows
    return planted_click_log(SyntheticConfig(rows=rows, seed=config.seed or 0)).dataset


def _refuse(config: DataConfig, **settings: object) -> None:
    for name, value in settings.items():
        if value is not None:
            raise InputError(f"data set {config.name!r}: expected no {name!r}, got {value!r}")


DATASETS: Mapping[str, Callable[[DataConfig], Dataset]] = MappingProxyType(
    {"movielens": _movielens, "synthetic": _synthetic}
)
