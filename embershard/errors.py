"""Every error this library raises on purpose, sorted by what the caller can do about it:
docs/protocols.md, "Errors", has them as a tree.
"""

from embershard.formatting import printable


class EmbershardError(Exception):
    """Base of every error raised on purpose."""

    def __init__(self, message: str = "") -> None:
        """
        Args:
            message: what, where, expected and got. It may quote names that somebody else chose, and
                ends on terminals: but for line feeds and tabs, control characters are escaped.
        """
        super().__init__(printable(message, keep="\n\t"))


class InputError(EmbershardError, ValueError):
    """The caller passed something that contradicts itself or what is known."""


class MissingKeyError(InputError, KeyError):
    """A jagged or keyed tensor has no such key."""

    def __str__(self) -> str:
        # KeyError's would quote the message.
        return str(self.args[0])


class ConfigError(InputError):
    """A configuration file says something that cannot be used."""


class DataError(InputError):
    """A data file holds something that cannot be read."""


class ExportError(InputError):
    """A module cannot be exported as it is written."""


class NotFoundError(InputError):
    """The model, version, label or output asked for is not there."""


class RequestError(InputError):
    """A predict request contradicts the model's schema."""


class UnauthenticatedError(InputError):
    """The server asks for a token, and none or another came."""


class PackageError(EmbershardError, ValueError):
    """A package on disk is damaged, incomplete or of a version that cannot be read."""


class PlanError(PackageError):
    """A package's plan puts tables on devices that are not served here: take another plan."""


class RetryError(EmbershardError):
    """Nothing is wrong with the request; trying again later can succeed."""


class DeadlineError(RetryError):
    """The deadline passed before the answer came."""


class OverloadedError(RetryError):
    """Refused at once, to protect the requests already accepted."""

    def __init__(self, message: str = "", *, retry_after_seconds: float | None = None) -> None:
        """
        Args:
            message: what was refused, and why.
            retry_after_seconds: after how long the server asks to be tried again. None: it does
                not say.
        """
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class UnavailableError(RetryError):
    """No server answers there, or the one that does is shutting down."""


class LostRankError(EmbershardError, RuntimeError):
    """A collective failed, most likely because another rank has ended or never entered it."""

    def __init__(self, message: str = "", *, cause: str = "") -> None:
        """
        Args:
            message: this rank, those that are missing, and the cause.
            cause: what torch.distributed says.
        """
        super().__init__(message)
        self.cause = cause


class InternalError(EmbershardError):
    """A bug in embershard. Please report it with the message."""
