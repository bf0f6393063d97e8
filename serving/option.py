"""Options: each is declared once, as a field of a dataclass. Its check and its flag follow."""

import argparse
import numbers
from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields
from itertools import chain
from typing import Any, Final, TypeVar

from embershard.errors import ConfigError

NUMBER_MAX: Final = (1 << 31) - 1

Options = TypeVar("Options")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    about: str
    """What it is, for ``--help`` and the generated pages."""
    unit: str = ""
    """Placeholder of the flag."""
    zero: str = ""
    """What 0, or the empty text, means."""
    change: str = ""
    """When to change it, a sentence or more."""
    least: float = 0
    most: float = NUMBER_MAX
    """Range of a number; both ends belong to it."""
    choices: tuple[str, ...] = ()
    """Of a text. Empty: any."""
    group: str = ""
    """Of flags."""
    flag: str = ""
    """If its name is not the option's, with ``-`` for ``_``."""
    is_native: bool = True
    """Whether the extension takes it."""


def option(default: Any, about: str, **described: Any) -> Any:
    """A field of a dataclass of options, described by `_Option`. Its type is that of the default:
    bool, int, float or str. None: of a whole number that need not be given."""
    return field(default=default, metadata={"option": _Option(about=about, **described)})


def _options(of: Any) -> Iterator[tuple[Field[Any], _Option]]:
    for each in fields(of):
        if "option" in each.metadata:
            yield each, each.metadata["option"]


def check_options(options: Any) -> None:
    """Refuse an option of another type, out of its range, or none of its choices."""
    for each, described in _options(options):
        value = getattr(options, each.name)
        if described.choices and value not in described.choices:
            known = " or ".join(described.choices)
            raise ConfigError(f"{each.name}: expected {known}, got {value!r}")
        kind = _kind(each)
        if kind in (int, float) and (value, each.default) != (None, None):
            _check_number(each.name, value, kind, described)


def _kind(of: Field[Any]) -> type:
    return int if of.default is None else type(of.default)


def _check_number(name: str, value: Any, kind: type, described: _Option) -> None:
    is_number = isinstance(value, numbers.Integral if kind is int else numbers.Real)
    if is_number and described.least <= value <= described.most:
        return
    what = "" if is_number else "a whole number, " if kind is int else "a number, "
    expected = f"{what}{described.least}..{described.most}"
    raise ConfigError(f"{name}: expected {expected}, got {value!r}")


def native_options(options: Any) -> dict[str, Any]:
    """Those that the extension takes, by name."""
    return {
        each.name: getattr(options, each.name)
        for each, described in _options(options)
        if described.is_native
    }


def add_flags(command: argparse.ArgumentParser, *options: type) -> None:
    """Adds a flag for each option of these dataclasses, in the groups that the options name."""
    groups: dict[str, Any] = {"": command}
    for each, described in chain.from_iterable(map(_options, options)):
        title = described.group
        if title not in groups:
            groups[title] = command.add_argument_group(title)
        flag = f"--{described.flag or each.name.replace('_', '-')}"
        given: dict[str, Any] = {"dest": each.name, "help": _help(each.default, described)}
        if isinstance(each.default, bool):
            given["action"] = "store_true"
        else:
            given |= {"type": _kind(each), "default": each.default}
            given |= {"choices": described.choices} if described.choices else {}
            given |= {"metavar": described.unit} if described.unit else {}
        groups[title].add_argument(flag, **given)


def _help(default: Any, described: _Option) -> str:
    text = described.about
    if described.zero and default != "":
        text += f"; 0: {described.zero}"
    if described.change:
        text += f". {described.change}"
    if isinstance(default, bool):
        return text.replace("%", "%%")
    shown = f"{default:.16g}" if isinstance(default, float) else default
    if default in ("", None):
        shown = described.zero if default == "" else ""
    return f"{text} (default: {'none' if shown == '' else shown})".replace("%", "%%")


def given_options(options: type[Options], given: argparse.Namespace, **other: Any) -> Options:
    """The options that the flags of `add_flags` got; ``other``: fields that are no options."""
    flags = {each.name: getattr(given, each.name) for each, _ in _options(options)}
    return options(**other, **flags)
