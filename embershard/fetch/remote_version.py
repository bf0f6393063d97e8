"""A version on the remote, with its files and their recorded damage."""

from collections.abc import Callable, Iterator
from typing import Final

from embershard.errors import PackageError
from embershard.fetch.source import Damage, Source
from embershard.package.validation import MANIFEST_DIGEST

DIGEST_BYTES_MAX: Final = 1024


class RemoteVersion:
    """Reads files of ``<model>/<version>`` at a source."""

    def __init__(self, source: Source, version: str) -> None:
        """Read the digest of ``<model>/<version>``, see `Source.read` for errors."""
        self._source, self._version = source, version
        self.where = f"{source.url}/{version}"
        self.digest_line = self.read(MANIFEST_DIGEST, bytes_max=DIGEST_BYTES_MAX)

    def read(self, file: str, *, bytes_max: int) -> bytes:
        return self._source.read(f"{self._version}/{file}", bytes_max=bytes_max)

    def blocks(self, file: str, offset: Callable[[], int]) -> Iterator[bytes]:
        return self._source.blocks(f"{self._version}/{file}", offset)

    def stamp(self, file: str) -> str:
        return self._source.stamp(f"{self._version}/{file}")

    def record_damage(self, file: str, stamp: str, message: str) -> PackageError:
        """Record a damaged file and return the error, which `check` raises until the file changes.

        ``stamp`` must be older than the read. Otherwise a change during the read would be missed.
        """
        damage = Damage(self.digest_line, file, stamp, f"{self.where}/{message}")
        self._source.damaged[self._version] = damage
        return PackageError(damage.message)

    def check(self) -> None:
        """Raise PackageError if the version was damaged before and has not changed since."""
        damage = self._source.damaged.get(self._version)
        if damage is None or damage.digest_line != self.digest_line or not damage.stamp:
            return
        if self.stamp(damage.file) == damage.stamp:
            raise PackageError(damage.message)
