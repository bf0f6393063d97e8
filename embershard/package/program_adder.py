"""Publishes a package again as another version, with one more dense program.

Every file but that one is the other package's, under a second name, so that a version with
large tables takes neither space nor time.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from embershard.errors import InputError
from embershard.package.manifest import CompiledProgramSpec
from embershard.package.names import identity_of
from embershard.package.reader import Package
from embershard.package.refusal import MANIFEST
from embershard.package.sealing import file_spec, link_or_copy
from embershard.package.writer import PackageWriter


def add_program(
    package: Package,
    out: Path,
    program: CompiledProgramSpec,
    data: Path,
    *,
    check: Callable[[Path], None],
) -> int:
    """Publishes ``package`` at ``out`` with a further program.

    Args:
        package: left as it is. What counts is what it is now: a plan may have been added since it
            was opened.
        out: ``<repository>/<model>/<version>``; must not be there yet.
        program: what the manifest says of it. One of the same target is left out.
        data: the file that becomes ``program.file``.
        check: called with the finished folder before it is moved to ``out``; raises where it is
            not good.

    Returns:
        How many files were copied, as their file system could not give them a second name.

    Raises:
        InputError: something is at ``out``, or that is no place for a package; or ``program``
            would take the place of a file that is something else.
        PackageError: the manifest would contradict itself.
    """
    model, version = identity_of(out)
    package = Package.open(package.path)
    document = json.loads((package.path / MANIFEST).read_bytes())
    replaced = {each.file for each in package.manifest.compiled if each.target == program.target}
    kept = [file for file in document["files"] if file not in replaced]
    if program.file in kept:
        raise InputError(f"{program.file}: expected a path that is free, got one of the package's")
    with PackageWriter(out) as writer:
        linked = [link_or_copy(package.path / file, writer.new_file(file)) for file in kept]
        shutil.copyfile(data, writer.new_file(program.file))
        document["model"], document["version"] = model, version
        document["programs"] = [
            *(each for each in document["programs"] if each["target"] != program.target),
            program.model_dump(mode="json"),
        ]
        files = {file: document["files"][file] for file in kept}
        files[program.file] = file_spec(writer.path(program.file)).model_dump()
        document["files"] = dict(sorted(files.items()))
        writer.publish_document(document, check)
    return linked.count(False)
