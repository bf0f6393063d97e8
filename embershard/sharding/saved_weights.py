"""Weights in a folder: under which names they are saved, and whether they are a module's."""

from collections.abc import Container, Mapping
from pathlib import Path

from embershard.errors import DataError
from embershard.sharding.block_files import SavedTensor

NO_WEIGHTS = ("optimizer.", "training.")
"""Begin of keys that are no weights, unless the module has some of that name."""
MODEL = "model."
"""Before the names of weights that were saved as ``{"model": model.state_dict(), ...}``."""


def saved_weights(
    saved: Mapping[str, SavedTensor | None], expected: Container[str]
) -> dict[str, tuple[str, tuple[int, ...] | None]]:
    """The weights in a folder, beside which optimizer state and more may lie.

    Returns:
        By name, of which ``expected`` may be saved under ``model.<name>``: key in the folder, and
        shape. None: it is no tensor.
    """
    found = dict[str, tuple[str, tuple[int, ...] | None]]()
    for key, each in saved.items():
        name = key.removeprefix(MODEL) if key not in expected else key
        if key in expected or not key.startswith(NO_WEIGHTS):
            named = name if name in expected else key
            found[named] = (key, each.size if each else None)
    return found


def check_shapes(
    expected: Mapping[str, tuple[int, ...]],
    given: Mapping[str, tuple[int, ...] | None],
    *,
    kind: str,
    where: Path,
) -> None:
    """Refuse weights that are not those of a module. Shapes are by name; None: it is no tensor."""
    missing, unexpected = expected.keys() - given.keys(), given.keys() - expected.keys()
    if missing or unexpected:
        problems = [
            f"{word} {_few(names)}"
            for word, names in (("no", sorted(missing)), ("unknown", sorted(unexpected)))
            if names
        ]
        raise DataError(
            f"{where}: expected the {len(expected)} weights of {kind}, got {' and '.join(problems)}"
        )
    for name, shape in given.items():
        if expected[name] != shape:
            got = "no tensor" if shape is None else str(shape)
            raise DataError(f"{where}: {name}: expected shape {expected[name]}, got {got}")


NAMES_SHOWN = 3
"""Of weights that do not fit, in a message."""


def _few(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:NAMES_SHOWN]))
    more = len(names) - NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
