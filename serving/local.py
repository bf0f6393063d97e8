"""A package in this process, without a port: for tests, checks and offline scoring."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from embershard.errors import EmbershardError
from embershard.serving._native import fbgemm_folder, load_extension
from embershard.serving.options import TableResidency
from embershard.serving.repository import DenseProgram


class LocalPredictor:
    """Runs serialized requests through the validation, the batching and the model of the server.

    Any thread may call; calls run one at a time. Not for children that were forked after it was
    made: they have none of its threads.
    """

    def __init__(
        self,
        package: str | Path,
        *,
        plan: str = "",
        dense_program: str = "",
        tables: TableResidency = "mmap",
        threads: int = 0,
        slots: int = 0,
    ) -> None:
        """
        Args:
            package: folder of one version.
            plan, dense_program, tables, threads, slots: as in :class:`ServerOptions`.

        Raises:
            PackageError: the package is damaged, or its samples give other scores.
            PlanError: the plan is for devices that are not served here.
        """
        self._native = load_extension().LocalPredictor(
            folder=str(package),
            fbgemm_folder=fbgemm_folder(),
            plan=plan,
            dense_program=dense_program,
            tables=tables,
            threads=threads,
            slots=slots,
        )

    def get_model(self) -> bytes:
        """A serialized ``GetModelResponse``."""
        return bytes(self._native.get_model())

    @property
    def program(self) -> DenseProgram:
        """Which dense program it runs, and why."""
        return DenseProgram(**self._native.program())

    def predict_merged(self, requests: Sequence[bytes]) -> list[bytes | EmbershardError]:
        """Run requests merged: in shares, one for each slot, up to 16 examples in one.

        Args:
            requests: serialized ``PredictRequest`` messages. A share runs in batches of at most 256
                examples (one slot: 1024).

        Returns:
            For each request a serialized ``PredictResponse``, or why it was refused.
        """
        # Copies of what might change meanwhile.
        copies = [each if isinstance(each, bytes) else bytes(memoryview(each)) for each in requests]
        return list(self._native.predict_merged(copies))
