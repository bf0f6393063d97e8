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
    needs: str = ""
    """Another option, without which this one does nothing: it is refused then."""
    kind: type = int
    """If the default, None, does not tell: int, or str."""


def option(default: Any, about: str, **described: Any) -> Any:
    """A field of a dataclass of options, described by `_Option`. Its type is that of the default:
    bool, int, float or str. None: of a value that need not be given."""
    return field(default=default, metadata={"option": _Option(about=about, **described)})


def path_option(about: str, **described: Any) -> Any:
    """Of the path of a file. None: what needs the file is off. The empty text is refused: it is
    what an unset variable gives, and must not switch off what was asked for."""
    return option(None, about, kind=str, **described)


def _options(of: Any) -> Iterator[tuple[Field[Any], _Option]]:
    for each in fields(of):
        if "option" in each.metadata:
            yield each, each.metadata["option"]


def check_options(options: Any) -> None:
    """Refuse an option of another type, out of its range, none of its choices, or without the one
    that it needs."""
    default = {each.name: each.default for each, _ in _options(options)}
    for each, described in _options(options):
        value = getattr(options, each.name)
        if described.choices and value not in described.choices:
            known = " or ".join(described.choices)
            raise ConfigError(f"{each.name}: expected {known}, got {value!r}")
        kind = _kind(each, described)
        if kind in (int, float) and (value, each.default) != (None, None):
            _check_number(each.name, value, kind, described)
        if value == "" and each.default != "":
            raise ConfigError(f"{each.name}: expected {_expected(each.default)}, got ''")
        needs = described.needs
        if needs and value != each.default and getattr(options, needs) == default[needs]:
            raise ConfigError(f"{each.name}: expected {needs} with it, got {value!r} alone")


def _kind(of: Field[Any], described: _Option) -> type:
    return described.kind if of.default is None else type(of.default)


def _expected(default: Any) -> str:
    """Of an option that is the empty text."""
    return "a path, or None for none" if default is None else "a text that is not empty"


def _check_number(name: str, value: Any, kind: type, described: _Option) -> None:
    is_number = isinstance(value, numbers.Integral if kind is int else numbers.Real)
    if is_number and described.least <= value <= described.most:
        return
    what = "" if is_number else "a whole number, " if kind is int else "a number, "
    expected = f"{what}{described.least}..{described.most}"
    raise ConfigError(f"{name}: expected {expected}, got {value!r}")


def native_options(options: Any) -> dict[str, Any]:
    """Those that the extension takes, by name. A path that is not given is the empty text there."""
    return {
        each.name: "" if value is None and described.kind is str else value
        for each, described in _options(options)
        if described.is_native
        for value in [getattr(options, each.name)]
    }


class Once(argparse.Action):
    """Stores the value of a flag. Refuses an empty text: an unset variable of a script gives that,
    and what the flag asks for would be off. Refuses the flag a second time: one value would be
    dropped."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if values == "":
            raise argparse.ArgumentError(self, "expected a value, got ''")
        before = vars(namespace).setdefault("given_once", {})
        if self.dest in before:
            words = f"expected once, got {before[self.dest]} and {values}"
            raise argparse.ArgumentError(self, words)
        before[self.dest] = values
        setattr(namespace, self.dest, values)


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
            given |= {"type": _kind(each, described), "default": each.default, "action": Once}
            given |= {"choices": described.choices} if described.choices else {}
            given |= {"metavar": described.unit} if described.unit else {}
        groups[title].add_argument(flag, **given)


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
    """Whether it is an option whose ``zero`` is what happens without it."""
    return default == "" or (default is None and described.kind is str)


def given_options(options: type[Options], given: argparse.Namespace, **other: Any) -> Options:
    """The options that the flags of `add_flags` got; ``other``: fields that are no options."""
    flags = {each.name: getattr(given, each.name) for each, _ in _options(options)}
    return options(**other, **flags)
