"""The errors of this library, sorted by what the caller can do, see docs/protocols.md."""

from embershard.formatting import printable


class EmbershardError(Exception):
    """Base of all errors of this library."""

    def __init__(self, message: str = "") -> None:
        """``message`` says where the error is, what was expected and what was received. Its control
        characters except line feeds and tabs are escaped, because it may quote the name of
        somebody else and is printed on terminals."""
        super().__init__(printable(message, keep="\n\t"))


class InputError(EmbershardError, ValueError):
    """An argument is invalid, or contradicts another argument or existing data."""


class MissingKeyError(InputError, KeyError):
    """A jagged or keyed tensor has no such key."""

    def __str__(self) -> str:
        # KeyError would add quotes.
        return str(self.args[0])


class ConfigError(InputError):
    """A configuration file or an option has an invalid value."""


class DataError(InputError):
    """A data file is missing, damaged, or has values that cannot be used."""


class ExportError(InputError):
    """A module cannot be exported without a change of its code."""


class NotFoundError(InputError):
    """The requested model, version, label or output does not exist."""


class RequestError(InputError):
    """A predict request contradicts the model's schema."""


class UnauthenticatedError(InputError):
    """The server requires a token, and the call had none or a wrong one."""


class PackageError(EmbershardError, ValueError):
    """A package is damaged, incomplete or of a format version that cannot be read."""


class PlanError(PackageError):
    """A package's plan needs devices that this machine does not have. Choose another plan."""


class RetryError(EmbershardError):
    """The request is valid and may succeed later."""


class DeadlineError(RetryError):
    """The deadline passed before the answer arrived."""


class OverloadedError(RetryError):
    """The server refused the request because it has too many others."""

    def __init__(self, message: str = "", *, retry_after_seconds: float | None = None) -> None:
        """``retry_after_seconds``: when the server wants a retry. None if it does not say."""
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class UnavailableError(RetryError):
    """No server answers at the address, or the server is shutting down."""


class LostRankError(EmbershardError, RuntimeError):
    """A collective failed, probably because another rank has ended or did not enter it."""

    def __init__(self, message: str = "", *, cause: str = "") -> None:
        """``message`` names this and the missing ranks, and ``cause``, torch's message."""
        super().__init__(message)
        self.cause = cause


class InternalError(EmbershardError):
    """A bug in embershard. Please report it with the message."""
