"""`embershard inspect` and `embershard verify`."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from embershard.cli import main
from embershard.package import Package, describe_package, read_samples, write_samples
from tests.cases import cases
from tests.serving.models import seal


def test_inspect_says_which_program_runs_here(repository, capsys):
    package = repository / "ranker" / "1"
    assert main(["inspect", "--program", str(package)]) == 0
    out = capsys.readouterr().out
    assert out == describe_package(Package.open(package)) + "here       cpu: no other fits\n"


def test_verify_says_that_every_byte_is_good(repository, capsys):
    assert main(["verify", str(repository / "ranker" / "1")]) == 0
    assert capsys.readouterr().out.startswith("ranker 1: 13 files, ")


def test_verify_names_a_folder_with_another_versions_number(repository, tmp_path, capsys):
    package = shutil.copytree(repository / "ranker" / "1", tmp_path / "ranker" / "7")
    assert main(["verify", str(package)]) == 0
    words = "good; to be served, its folder must be named 1, not 7\n"
    assert capsys.readouterr().out.endswith(words)
    assert main(["verify", str(package.rename(tmp_path / "ranker" / "copy"))]) == 0
    assert capsys.readouterr().out.endswith("bytes, good\n")


def test_verify_runs_the_samples_where_it_is_asked_to(repository, capsys):
    assert main(["verify", "--samples", str(repository / "ranker" / "1")]) == 0
    assert capsys.readouterr().out.endswith(" bytes, good, samples with the right scores: 3\n")


def test_verify_with_samples_finds_scores_that_no_byte_shows(repository, tmp_path, capsys):
    package = shutil.copytree(repository / "ranker" / "1", tmp_path / "ranker" / "1")
    file = package / "samples.safetensors"
    samples = read_samples(file)
    wrong = {**samples[1].outputs, "score": samples[1].outputs["score"] + np.float32(0.01)}
    write_samples(file, [samples[0], replace(samples[1], outputs=wrong), *samples[2:]])
    seal(package, json.loads((package / "manifest.json").read_text()))
    assert main(["verify", str(package)]) == 0
    capsys.readouterr()
    assert main(["verify", "--samples", str(package)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert "PackageError: samples.safetensors: sample 1: output 'score' at example 0" in told.err


@pytest.mark.parametrize("command", ["inspect", "verify"])
@pytest.mark.parametrize(
    ("value", "kind"), [("", "a repository"), ("ranker", "the folder of one model")]
)
def test_a_folder_above_packages_is_refused_and_lists_them(
    repository, capsys, command, value, kind
):
    assert main([command, str(repository / value)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    words = f"expected a package (REPOSITORY/MODEL/VERSION), got {kind}; "
    assert told.err.endswith(f"{words}it holds {repository}/ranker/1\n")
    assert told.err.count("\n") == 1


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_folder_that_is_no_package_is_refused(tmp_path, capsys, command):
    assert main([command, str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.endswith(
        f"{tmp_path}: expected a package (REPOSITORY/MODEL/VERSION), got a folder without "
        "manifest.json\n"
    )


@cases(
    ("file", "hint"),
    {
        "configuration": (
            "run.toml",
            "; `embershard train FILE --dry-run` prints the plan of a training run",
        ),
        "other": ("manifest.json", ""),
    },
)
def test_a_file_in_place_of_a_package_is_refused(tmp_path, capsys, file, hint):
    path = tmp_path / file
    path.touch()
    assert main(["plan", str(path), "--devices", "2xcpu"]) == 1
    said = f"{path}: expected the folder of a package, got a file{hint}\n"
    assert capsys.readouterr().err.endswith(said)
