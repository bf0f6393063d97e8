"""Options, declared once as fields of dataclasses, which also define checks and flags."""

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
    """Description for ``--help`` and the generated pages."""
    unit: str = ""
    zero: str = ""
    """Meaning of 0 or of the empty text."""
    change: str = ""
    """When to change the option, in one or more sentences."""
    least: float = 0
    most: float = NUMBER_MAX
    """Range of a number, with both ends."""
    choices: tuple[str, ...] = ()
    """Allowed texts. Empty: any text."""
    group: str = ""
    flag: str = ""
    """Name of the flag. Empty: the option's name with ``-`` for ``_``."""
    is_native: bool = True
    """True if the option is passed to the extension."""
    needs: str = ""
    """Another option that must be set if this one is."""
    kind: type = int
    """int or str, for options whose default is None."""


def option(default: Any, about: str, **described: Any) -> Any:
    """Declare an option as a field of a dataclass. ``described`` are the fields of `_Option`.

    The option has the type of its default: bool, int, float or str. None: the value is optional.
    """
    return field(default=default, metadata={"option": _Option(about=about, **described)})


def path_option(about: str, **described: Any) -> Any:
    """Declare an option that is the path of a file. None turns off the feature that needs the file.

    The empty text, often of an unset variable, is refused: it must not turn the feature off.
    """
    return option(None, about, kind=str, **described)


def _options(options: Any) -> Iterator[tuple[Field[Any], _Option]]:
    for declared in fields(options):
        if "option" in declared.metadata:
            yield declared, declared.metadata["option"]


def check_options(options: Any) -> None:
    """Refuse an option of the wrong type, outside its range or choices, or without the option that
    it needs."""
    default = {declared.name: declared.default for declared, _ in _options(options)}
    for declared, described in _options(options):
        value = getattr(options, declared.name)
        if described.choices and value not in described.choices:
            known = " or ".join(described.choices)
            raise ConfigError(f"{declared.name}: expected {known}, got {value!r}")
        kind = _kind(declared, described)
        if kind in (int, float) and (value, declared.default) != (None, None):
            _check_number(declared.name, value, kind, described)
        if value == "" and declared.default != "":
            raise ConfigError(f"{declared.name}: expected {_expected(declared.default)}, got ''")
        needs = described.needs
        if needs and value != declared.default and getattr(options, needs) == default[needs]:
            raise ConfigError(f"{declared.name}: expected {needs} as well, got only {value!r}")


def _kind(declared: Field[Any], described: _Option) -> type:
    return described.kind if declared.default is None else type(declared.default)


def _expected(default: Any) -> str:
    return "a path, or None for none" if default is None else "a text that is not empty"


def _check_number(name: str, value: Any, kind: type, described: _Option) -> None:
    is_number = isinstance(value, numbers.Integral if kind is int else numbers.Real)
    if is_number and described.least <= value <= described.most:
        return
    what = "" if is_number else "a whole number, " if kind is int else "a number, "
    expected = f"{what}{described.least}..{described.most}"
    raise ConfigError(f"{name}: expected {expected}, got {value!r}")


def native_options(options: Any) -> dict[str, Any]:
    """Options by name. A path that is not set is passed as the empty text."""
    return {
        declared.name: "" if value is None and described.kind is str else value
        for declared, described in _options(options)
        if described.is_native
        for value in [getattr(options, declared.name)]
    }


class Once(argparse.Action):
    """Stores the value of a flag. Refuses an empty text, because an unset variable would silently
    turn the option off, and a repeated flag, because one of the values would be lost."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if values == "":
            raise argparse.ArgumentError(self, "expected a value, got ''")
        before = vars(namespace).setdefault("set_flags", {})
        if self.dest in before:
            words = f"expected once, got {before[self.dest]} and {values}"
            raise argparse.ArgumentError(self, words)
        before[self.dest] = values
        setattr(namespace, self.dest, values)


def add_flags(command: argparse.ArgumentParser, *options: type) -> None:
    """Add a flag for each option of these dataclasses, in the groups that the options name."""
    groups: dict[str, Any] = {"": command}
    for declared, described in chain.from_iterable(map(_options, options)):
        title = described.group
        if title not in groups:
            groups[title] = command.add_argument_group(title)
        flag = f"--{described.flag or declared.name.replace('_', '-')}"
        keywords: dict[str, Any] = {
            "dest": declared.name,
            "help": _help(declared.default, described),
        }
        if isinstance(declared.default, bool):
            keywords["action"] = "store_true"
        else:
            kind = _kind(declared, described)
            keywords |= {"type": kind, "default": declared.default, "action": Once}
            keywords |= {"choices": described.choices} if described.choices else {}
            keywords |= {"metavar": described.unit} if described.unit else {}
        groups[title].add_argument(flag, **keywords)


def _help(default: Any, described: _Option) -> str:
    text = described.about
    if described.zero and not _is_text(default, described):
        text += f"; 0: {described.zero}"
    if described.change:
        text += f". {described.change}"
    if isinstance(default, bool):
        return text.replace("%", "%%")
    shown = f"{default:.16g}" if isinstance(default, float) else default
    if default in ("", None):
        shown = described.zero if _is_text(default, described) else ""
    return f"{text} (default: {'none' if shown == '' else shown})".replace("%", "%%")


def _is_text(default: Any, described: _Option) -> bool:
    """True if ``zero`` describes the default, which is the empty text or no path."""
    return default == "" or (default is None and described.kind is str)


def parsed_options(options: type[Options], args: argparse.Namespace, **other: Any) -> Options:
    """``other`` are fields that are not options."""
    flags = {declared.name: getattr(args, declared.name) for declared, _ in _options(options)}
    return options(**other, **flags)
