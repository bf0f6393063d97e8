"""Packages from elsewhere: object stores, web servers, other folders. Needs no torch."""

from embershard.fetch.fetching import Fetched, FetchProgress, fetch_package

__all__ = ["FetchProgress", "Fetched", "fetch_package"]
