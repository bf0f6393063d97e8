"""Writes the public surface as text, one file a part, into tests/surface.

python -m scripts.write_surface

    names.txt     what each package exports: ``package.Name``
    commands.txt  every command's arguments: flags, metavar or choices, default
    metrics.txt   every metric: name, kind, labels
    options.txt   fields and defaults of ServerOptions
    wire.txt      our messages: field numbers, types, names; enum values; methods

It also writes docs/cli.md. A test compares the files with the code: the surface changes only in a
commit that shows it.
"""

import argparse
import dataclasses
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor, FileDescriptor

from embershard._proto import predictor_pb2, recording_pb2
from embershard.cli import parser
from embershard.serving import ServerOptions
from embershard.serving.metric import example_metrics
from scripts.write_cli import PAGE, cli_page

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "surface"


def names() -> Iterator[str]:
    """``package.Name`` of every package below ``embershard``."""
    for init in sorted((ROOT / "embershard").rglob("__init__.py")):
        parts = init.parent.relative_to(ROOT).parts
        if "_proto" not in parts and "predictor" not in parts:
            package = ".".join(parts)
            yield from (f"{package}.{name}" for name in importlib.import_module(package).__all__)


def commands() -> Iterator[str]:
    """``command argument (values) = default``, as the parser has them."""
    actions = parser()._actions
    subparsers = next(a for a in actions if isinstance(a, argparse._SubParsersAction))
    for name, command in subparsers.choices.items():
        for action in command._actions:
            flags = ", ".join(action.option_strings) or action.dest
            values = action.choices or action.metavar or ""
            takes = f" ({values})" if values and action.nargs != 0 else ""
            yield f"{name} {flags}{takes} = {action.default!r}"


def metrics() -> Iterator[str]:
    """``name kind {labels}``."""
    yield from dict.fromkeys(
        f"{each.name} {each.kind} {{{', '.join(each.labels)}}}" for each in example_metrics()
    )


def options() -> Iterator[str]:
    """``name = default``."""
    for field in dataclasses.fields(ServerOptions):
        yield f"{field.name} = {field.default!r}"


def wire() -> Iterator[str]:
    """Messages, enums and methods of our protocol and of recordings."""
    for file in (predictor_pb2.DESCRIPTOR, recording_pb2.DESCRIPTOR):
        yield from _file(file)


def _file(file: FileDescriptor) -> Iterator[str]:
    for name, message in sorted(file.message_types_by_name.items()):
        for field in message.fields:
            yield f"{name} {field.number} {_type(field)} {field.name}"
        for each in message.enum_types:
            yield from _enum(f"{name}.{each.name}", each)
    for name, enum in sorted(file.enum_types_by_name.items()):
        yield from _enum(name, enum)
    for service in file.services_by_name.values():
        for method in service.methods:
            arguments = f"{method.input_type.name} -> {method.output_type.name}"
            yield f"{service.full_name}/{method.name} {arguments}"


def _enum(name: str, enum: EnumDescriptor) -> Iterator[str]:
    for value in enum.values:
        yield f"{name} {value.number} {value.name}"


def _type(field: Any) -> str:
    kinds = {
        number: name.removeprefix("TYPE_").lower()
        for name, number in vars(FieldDescriptor).items()
        if name.startswith("TYPE_")
    }
    named = field.message_type or field.enum_type
    kind: str = named.name if named else kinds[field.type]
    return f"repeated {kind}" if field.is_repeated else kind


SURFACE = {
    "names.txt": names,
    "commands.txt": commands,
    "metrics.txt": metrics,
    "options.txt": options,
    "wire.txt": wire,
}
"""File in `FOLDER` -> its lines."""

if __name__ == "__main__":
    for file_name, lines in SURFACE.items():
        (FOLDER / file_name).write_text("".join(f"{line}\n" for line in lines()))
    PAGE.write_text(cli_page())
