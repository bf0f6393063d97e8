"""Servers that rows declare. In a comparison, equal declarations share one process."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, Protocol

from benchmarks.checkout import Checkout
from benchmarks.harness import Session
from benchmarks.packages import SMALL, PackageSpec
from benchmarks.processes import Running, server_process
from embershard.package import Package
from embershard.package.files import link_or_copy, seal
from embershard.package.labels import write_label

RESIDENT: Final = ("--tables", "resident")
ONE_THREAD: Final = ("--threads", "1")


class Server(Protocol):
    @property
    def is_peer(self) -> bool:
        """True if it does not depend on embershard."""

    def start(self, session: Session, checkout: Checkout) -> AbstractContextManager[Running]:
        """Start it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serve:
    package: PackageSpec = SMALL
    flags: tuple[str, ...] = ()
    one_core: bool = False
    """Run only on the last core."""

    metrics: bool = False
    is_peer: bool = False

    def start(self, session: Session, checkout: Checkout) -> AbstractContextManager[Running]:
        folder = checkout.package(self.package)
        model = ("--model", folder.parent.name, "--model-version", folder.name)
        port = ("--metrics-port", "0") if self.metrics else ()
        command = checkout.serve(folder.parent.parent, *model, *self.flags, *port)
        cores = (max(os.sched_getaffinity(0)),) if self.one_core else ()
        return server_process(command, cores=cores, metrics=self.metrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeModels:
    """`embershard serve` with a control socket and versions 1, 2, ... of models. 1 is stable."""

    models: tuple[tuple[str, tuple[PackageSpec, ...]], ...]
    labels: tuple[tuple[str, str, int], ...] = ()
    """Further labels: model, label, version."""

    flags: tuple[str, ...] = ONE_THREAD
    name: str = ""
    """Distinguishes two servers with equal declarations, so that they share no process."""

    is_peer: bool = False

    @contextmanager
    def start(self, session: Session, checkout: Checkout) -> Iterator[Running]:
        folder = session.folder("repository")
        repository = folder / "repository"
        for model, packages in self.models:
            for version, spec in enumerate(packages, start=1):
                copy_package(checkout.package(spec), repository / model / str(version))
            write_label(repository, model, "stable", 1)
        for label in self.labels:
            write_label(repository, *label)
        command = checkout.serve(repository, "--control", folder / "control", *self.flags)
        with server_process(command) as running:
            yield replace(running, folder=folder)


def copy_package(package: Path, out: Path) -> None:
    """Files are linked."""

    def link(file: str, to: str) -> None:
        link_or_copy(Path(file), Path(to))

    shutil.copytree(package, out, copy_function=link, ignore=shutil.ignore_patterns("manifest.*"))
    document = json.loads((package / "manifest.json").read_text())
    seal(out, {**document, "model": out.parent.name, "version": int(out.name)})


@dataclass(frozen=True, slots=True, kw_only=True)
class NoModel:
    is_peer: bool = False

    def start(self, session: Session, checkout: Checkout) -> AbstractContextManager[Running]:
        return server_process(checkout.program("noop_server", checkout.package(SMALL)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo:
    """Parses requests of *small* and answers zeros, in C++ or with Python's grpc.aio."""

    language: Literal["C++", "Python"] = "C++"
    is_peer: bool = True

    def start(self, session: Session, checkout: Checkout) -> AbstractContextManager[Running]:
        manifest = Package.open(checkout.package(SMALL)).manifest
        names = (manifest.model, *(output.name for output in manifest.outputs))
        if self.language == "Python":
            return server_process(checkout.module("benchmarks.peers.aio_echo", *names))
        return server_process(checkout.program("echo_server", *names))


def one_model(*packages: PackageSpec) -> tuple[tuple[str, tuple[PackageSpec, ...]], ...]:
    return ((packages[0].workload, packages),)
