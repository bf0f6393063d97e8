"""Fetches packages from object stores, web servers and other folders. Does not need torch."""

from embershard.fetch.fetch_version import Fetched, FetchProgress
from embershard.fetch.models import FetchedModel, Selection, fetch_models, fetch_package
from embershard.fetch.source import Source
from embershard.fetch.watch import Watch, WatchOptions, follow

__all__ = [
    "FetchProgress",
    "Fetched",
    "FetchedModel",
    "Selection",
    "Source",
    "Watch",
    "WatchOptions",
    "fetch_models",
    "fetch_package",
    "follow",
]
