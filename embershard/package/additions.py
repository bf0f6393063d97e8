"""Adds a plan to a published package.

    <repository>/<model>/.<version>.<random>.partial/    1. hard links to all files of the package,
                                                         the plan, and a manifest that lists it
    <repository>/<model>/<version>/                      2. one system call exchanges both folders

A reader sees the package either with the plan or without it.
"""

import json
from pathlib import Path

from embershard.errors import InputError
from embershard.package.files import locked_folder
from embershard.package.plan import Plan
from embershard.package.reader import Package
from embershard.package.validation import MANIFEST
from embershard.package.writer import PackageWriter


def add_plan(package: str | Path, plan: Plan, *, default: bool = False) -> Package:
    """Add a plan to the package in a folder, maybe as the default, and return the package. Servers
    that have the package open keep the files that they opened. Concurrent calls wait for each
    other. Raises PackageError if the package is damaged, or the plan does not fit its tables;
    InputError if it has a plan of that name, or its file system cannot exchange two folders."""
    folder = Path(package).resolve()
    with locked_folder(folder):
        before = Package.open(folder).manifest
        if plan.name in before.plans:
            raise InputError(
                f"expected a plan with a new name, got {plan.name!r}, which the package has "
                "already; choose another name, since plans are never replaced"
            )
        document = json.loads((folder / MANIFEST).read_bytes())
        with PackageWriter(folder, replace=True) as writer:
            for file, spec in before.files.items():
                writer.link_file(file, folder / file, spec)
            writer.add_plan(plan)
            document["plans"].append(plan.name)
            if default:
                document["default_plan"] = plan.name
            document["files"] = {file: spec.model_dump() for file, spec in writer.files().items()}
            writer.publish_document(document)
    return Package.open(folder)
