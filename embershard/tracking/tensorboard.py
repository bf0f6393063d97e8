"""Event files for TensorBoard. Its package is imported when a file is opened."""

from collections.abc import Sequence
from pathlib import Path

from embershard.tracking.thread import Point


class TensorBoardFolder:
    """Writes scalars. TensorBoard hides points of earlier runs with a step above ``first_step``."""

    def __init__(self, folder: Path, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=first_step + 1)

    def log(self, points: Sequence[Point]) -> None:
        for step, unix_seconds, scalars in points:
            for name, value in scalars.items():
                self._writer.add_scalar(name, value, step, unix_seconds)
        self._writer.flush()

    def close(self, *, finished: bool) -> None:
        self._writer.close()
