"""Which version of which model to fetch."""

from __future__ import annotations

from embershard.errors import NotFoundError
from embershard.fetch.source import Source

__all__ = ["choose_version"]


def choose_version(source: Source, *, model: str = "", version: int = 0) -> tuple[str, int]:
    """Model and version. The far side is asked for a list only where one is left out.

    Args:
        model: empty: the only one there.
        version: 0: the highest one there.

    Raises:
        NotFoundError: none there, or several models where one must be named.
        UnavailableError: no answer.
    """
    if not model:
        models = [name for name in source.names("") if not name.startswith(".")]
        if len(models) != 1:
            found = ", ".join(models) or "nothing"
            raise NotFoundError(
                f"{source.url}: expected one model, or a name (--model), got {found}"
            )
        model = models[0]
    if not version:
        names = source.names(model)
        versions = [int(each) for each in names if each.isascii() and each.isdigit()]
        version = max(versions, default=0)
        if not version:
            raise NotFoundError(
                f"{source.url}/{model}: expected versions, folders named by numbers, found none; "
                "where the far side cannot list its folders, name one (--version)"
            )
    return model, version
