"""``FolderLock``: one run at a time in a folder of checkpoints."""

from __future__ import annotations

import os

from embershard.sharding.folder_claim import lock
from embershard.training.config import RunConfig
from embershard.training.run_folder import folder_of


class FolderLock:
    """flock(2) of the folder itself. It ends with the process, however that ends.

    Args:
        config: of the run.
    """

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._open: int | None = None
        self._is_new = False

    def take(self) -> None:
        """Make the folder, and lock it until ``release``.

        Raises:
            ConfigError: another run has it, or it cannot be made.
        """
        folder = folder_of(self._config)
        self._is_new = not folder.exists()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._open = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise self._config.refusal(
                "checkpoint",
                "folder",
                problem=f"expected a folder that can be made, got {folder}: {error.strerror}",
            ) from error
        if not lock(self._open):
            self.release()
            raise self._config.refusal(
                "checkpoint",
                "folder",
                problem=f"expected a folder that no other run writes to, {folder} is in use; "
                "choose another one, or end that run",
            )

    def release(self) -> None:
        """Unlock it, if it was locked. A folder that was made and stayed empty goes."""
        if self._open is None:
            return
        folder = folder_of(self._config)
        if self._is_new and not any(folder.iterdir()):
            folder.rmdir()
        os.close(self._open)
        self._open = None
