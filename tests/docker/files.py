"""The files of docker/ as the tests read them."""

import argparse
import fnmatch
import json
import shlex
from dataclasses import dataclass
from pathlib import Path

import yaml

from embershard.commands.fetch import add_fetch
from embershard.commands.serve import add_serve
from tests.repository.sources import ROOT

DOCKER = ROOT / "docker"
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))


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


def scripts_run(file: Path) -> list[list[str]]:
    """Every call of a script of ours in a Dockerfile: its name below scripts/, and arguments."""
    calls = []
    for step in (step for stage in stages(file) for step in stage):
        if step.name != "RUN":
            continue
        words = [word for word in shlex.split(step.rest) if not word.startswith("--mount=")]
        for command in split(words, "&&"):
            if "scripts/" in command[0]:
                calls.append([command[0].rpartition("scripts/")[2], *command[1:]])
    return calls


def split(words: list[str], at: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == at:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def parse(arguments: list[str]) -> argparse.Namespace:
    """What `embershard` makes of the arguments of an image; exits where it would."""
    parser = argparse.ArgumentParser(prog="embershard")
    commands = parser.add_subparsers(dest="command", required=True)
    add_serve(commands)
    add_fetch(commands)
    return parser.parse_args(arguments)


def documents(file: Path) -> list[dict]:
    """Those of a YAML file."""
    return list(yaml.safe_load_all(file.read_text()))


def context_files() -> set[str]:
    """What `docker build` sends of the files that git knows, as .dockerignore says.

    A pattern holds for a path and what is below it; `**/` stands for any folders; the last one that
    holds decides, and with `!` it takes the path in.
    """
    patterns = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    return {path for path in known_files() if not ignored(path, patterns)}


def ignored(path: str, patterns: list[str]) -> bool:
    parts = path.split("/")
    above = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    verdict = False
    for pattern in patterns:
        bare = pattern.removeprefix("!")
        if any(holds(step, bare) for step in above):
            verdict = not pattern.startswith("!")
    return verdict


def holds(path: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatch.fnmatchcase(path.rpartition("/")[2], pattern[3:])
    return path.count("/") == pattern.count("/") and fnmatch.fnmatchcase(path, pattern)


def known_files() -> list[str]:
    """All files of the checkout but those of hidden folders and of builds."""
    skipped = {"build", "dist", "runs", "repository", "checkpoints", "__pycache__"}
    return [
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*")
        if path.is_file()
        and not skipped & set(path.relative_to(ROOT).parts)
        and not any(part.startswith(".") for part in path.relative_to(ROOT).parts[:-1])
    ]
