"""Generates docs/cli.md from the parser of the command line."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from embershard.cli import parser

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
HEAD = """# Command line

Generated from the parser by `make docs`. Every command also has `--help`.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | an error, with one line on standard error; also a value that is out of range |
| 2 | the command line cannot be parsed; the line names `--help` |
| 3 | `bench --slo`: no rate met the objective; `skew --fail-above`: a drift was larger |
| 129, 130, 143 | ended by SIGHUP, Ctrl-C or SIGTERM |

[Deployment](deployment.md#kubernetes) lists the exit codes of `serve`.
"""


def cli_page() -> str:
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
    """Yield commands such as ``train`` and ``data init``, each with its parser and summary."""
    (commands,) = (a for a in program._actions if isinstance(a, argparse._SubParsersAction))
    summary = {choice.dest: choice.help or "" for choice in commands._choices_actions}
    for name, command in commands.choices.items():
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
            yield f"| `{_usage(action)}` | {' '.join(text.split())} |"


def _usage(action: argparse.Action) -> str:
    """The flags and the value of an argument as a user types them, with ``|`` escaped."""
    value = action.metavar or (action.choices and "{" + ",".join(map(str, action.choices)) + "}")
    if not action.option_strings:
        return str(value or action.dest)
    flags = ", ".join(action.option_strings)
    return (flags if action.nargs == 0 else f"{flags} {value or action.dest.upper()}").replace(
        "|", "\\|"
    )


def _sentence(text: str | None) -> str:
    words = " ".join((text or "").split())
    return words[:1].upper() + words[1:] + ("" if words.endswith(".") else ".")
