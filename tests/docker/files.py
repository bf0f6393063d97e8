"""The files of docker/ as the tests read them."""

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
    """One instruction of a Dockerfile: its name, and the rest of the line."""

    name: str
    rest: str

    def listed(self) -> list[str]:
        """The words of CMD or ENTRYPOINT in their exec form; of HEALTHCHECK those of its CMD."""
        words = json.loads(self.rest[self.rest.index("[") :])
        assert isinstance(words, list)
        return words


def stages(file: Path) -> list[list[Step]]:
    """The stages of a Dockerfile, each from its FROM on."""
    text = "\n".join(line for line in file.read_text().splitlines() if not line.startswith("#"))
    results: list[list[Step]] = []
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip():
            continue
        name, _, rest = line.strip().partition(" ")
        if name == "FROM":
            results.append([])
        results[-1].append(Step(name, rest.strip()))
    return results


def one(stage: list[Step], name: str) -> Step:
    """The only instruction of a name."""
    (step,) = [step for step in stage if step.name == name]
    return step


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parses the arguments of an image with the parser of `embershard`."""
    return parser().parse_args(arguments)


def documents(file: Path) -> list[dict]:
    """The documents of a YAML file."""
    return list(yaml.safe_load_all(file.read_text()))
