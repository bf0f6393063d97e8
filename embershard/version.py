"""The version of this distribution, as pyproject.toml says it too."""

__version__ = "0.1.0"
