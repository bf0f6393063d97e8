"""docs/cli.md, from the parser of the command line."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from embershard.cli import parser

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
HEAD = """# Command line

Generated from the parser by `make docs`. Every command also has `--help`.

Exit codes: 0; 1 after an error, which is one line on standard error; 2 if the command line cannot
be parsed; 3 if `bench --slo` met its objective at no rate, or if `skew --fail-above` found a larger
drift; 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP. The parser refuses an unknown command
or option, a missing argument, two options that exclude each other in the usage line, text in place
of a number, an empty value, what is none of the choices, and an option of `serve` that is given
twice: its line names `--help`. Any other value that is refused, such as a number out of range, ends
with 1.
[Deployment](deployment.md#kubernetes) lists those of `serve`.
"""


def cli_page() -> str:
    """The page: a section for each command, a table for each group of its arguments."""
    commands = dict(commands_of(parser()))
    parts = [HEAD, "| command | what it does |\n|---|---|"]
    for name, (_, summary) in commands.items():
        parts.append(f"| [`{name}`](#embershard-{name.replace(' ', '-')}) | {summary} |")
    for name, (command, summary) in commands.items():
        parts.append(f"\n## embershard {name}\n\n{_sentence(command.description or summary)}")
        for group in command._action_groups:
            parts += _group(command, group)
    return "\n".join(parts) + "\n"


def commands_of(
    program: argparse.ArgumentParser, prefix: str = ""
) -> Iterator[tuple[str, tuple[argparse.ArgumentParser, str]]]:
    """Every command that does something, such as ``train`` and ``data init``, with its summary."""
    (found,) = (a for a in program._actions if isinstance(a, argparse._SubParsersAction))
    summary = {choice.dest: choice.help or "" for choice in found._choices_actions}
    for name, command in found.choices.items():
        if command._subparsers is None:
            yield prefix + name, (command, summary[name])
        else:
            yield from commands_of(command, f"{prefix}{name} ")


def _group(command: argparse.ArgumentParser, group: argparse._ArgumentGroup) -> Iterator[str]:
    shown = [action for action in group._group_actions if action.dest != "help"]
    if shown:
        yield f"\n| {(group.title or '').removeprefix('positional ')} | meaning |\n|---|---|"
        for action in shown:
            text = command._get_formatter()._expand_help(action).replace("|", "\\|")
            yield f"| `{_spelled(action)}` | {' '.join(text.split())} |"


def _spelled(action: argparse.Action) -> str:
    """Flags and the value, as a user types them; `\\|` is a `|` inside a table."""
    value = action.metavar or (action.choices and "{" + ",".join(map(str, action.choices)) + "}")
    if not action.option_strings:
        return str(value or action.dest)
    flags = ", ".join(action.option_strings)
    return (flags if action.nargs == 0 else f"{flags} {value or action.dest.upper()}").replace(
        "|", "\\|"
    )


def _sentence(text: str | None) -> str:
    said = " ".join((text or "").split())
    return said[:1].upper() + said[1:] + ("" if said.endswith(".") else ".")
