"""Triton with the backend, for tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.tritonserver import Triton, tritonserver
from embershard.serving.triton import backend_directory


@contextmanager
def serving(repository: Path, *models: str) -> Iterator[Triton]:
    """Some models of a repository, until the block ends."""
    with tritonserver(repository, models, backends=backend_directory()) as running:
        yield running
