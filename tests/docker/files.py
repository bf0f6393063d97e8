"""Parsers of the files in docker/."""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import yaml

from embershard.cli import parser
from tests.repository.sources import ROOT

DOCKER = ROOT / "docker"


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction of a Dockerfile: its name and its arguments."""

    name: str
    arguments: str

    def words(self) -> list[str]:
        """The words of CMD or ENTRYPOINT in exec form, or of the CMD of a HEALTHCHECK."""
        words = json.loads(self.arguments[self.arguments.index("[") :])
        assert isinstance(words, list)
        return words


def stages(file: Path) -> list[list[Step]]:
    """The stages of a Dockerfile. Each begins with its FROM."""
    text = "\n".join(line for line in file.read_text().splitlines() if not line.startswith("#"))
    results: list[list[Step]] = []
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip():
            continue
        name, _, arguments = line.strip().partition(" ")
        if name == "FROM":
            results.append([])
        results[-1].append(Step(name, arguments.strip()))
    return results


def only_step(stage: list[Step], name: str) -> Step:
    """The only instruction with this name."""
    (step,) = [step for step in stage if step.name == name]
    return step


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parses the arguments of an image with the parser of `embershard`."""
    return parser().parse_args(arguments)


def documents(file: Path) -> list[dict]:
    """The documents of a YAML file."""
    return list(yaml.safe_load_all(file.read_text()))
