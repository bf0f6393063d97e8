"""`embershard triton-config`, and `embershard export --triton`."""

import shutil
from pathlib import Path

import pytest
import torch

from embershard.cli import main
from embershard.package import Package
from embershard.serving.triton import TritonOptions, model_config
from tests.serving.models import export_ranker, ranker


@pytest.fixture
def package(repository, tmp_path):
    return shutil.copytree(repository / "ranker" / "1", tmp_path / "ranker" / "1")


@pytest.fixture
def config(package):
    return package.parent / "config.pbtxt"


def test_it_writes_the_configuration_beside_the_versions(package, config, capsys):
    assert main(["triton-config", str(package)]) == 0
    assert capsys.readouterr().out == f"wrote {config}\n"
    assert config.read_text() == model_config(Package.open(package))
    assert sorted(path.name for path in package.parent.iterdir()) == ["1", "config.pbtxt"]


def test_flags_are_options(package, config):
    flags = ["--plan", "2xcpu", "--threads", "2", "--tables", "resident", "--max-batch-ids", "900"]
    assert main(["triton-config", str(package), *flags]) == 0
    options = TritonOptions(plan="2xcpu", threads=2, tables="resident", max_batch_ids=900)
    assert config.read_text() == model_config(Package.open(package), options)


def test_a_second_time_there_is_nothing_to_do(package, config, capsys):
    assert main(["triton-config", str(package)]) == 0
    before = config.stat()
    capsys.readouterr()
    assert main(["triton-config", str(package)]) == 0
    assert capsys.readouterr().out == f"{config} is unchanged\n"
    assert config.stat() == before


def test_another_configuration_is_kept_unless_forced(package, config, capsys):
    theirs = 'name: "ranker"\n# Mine.\n'
    config.write_text(theirs)
    assert main(["triton-config", str(package)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(
        f"embershard triton-config: InputError: {config}: line 1: expected '# For NVIDIA Triton"
    )
    assert told.err.endswith(", got 'name: \"ranker\"'; --force overwrites it\n")
    assert config.read_text() == theirs
    assert main(["triton-config", str(package), "--force"]) == 0
    assert config.read_text() == model_config(Package.open(package))


def test_a_version_with_the_same_tensors_needs_no_other(package, config, capsys):
    assert main(["triton-config", str(package)]) == 0
    second = export_ranker(package.parents[1], version=2, weights="int4")
    capsys.readouterr()
    assert main(["triton-config", str(second)]) == 0
    assert capsys.readouterr().out == f"{config} is unchanged\n"


def test_a_damaged_package_gets_none(package, config, capsys):
    (package / "manifest.json").write_text("{}")
    assert main(["triton-config", str(package)]) == 1
    assert "PackageError: manifest" in capsys.readouterr().err
    assert not config.exists()


def test_the_folder_of_a_model_is_no_package(package, capsys):
    assert main(["triton-config", str(package.parent)]) == 1
    assert "expected a package (REPOSITORY/MODEL/VERSION)" in capsys.readouterr().err


def test_a_package_is_needed(capsys):
    assert main(["triton-config"]) == 1
    words = "embershard triton-config: InputError: expected PACKAGE, or --backend-directory\n"
    assert capsys.readouterr().err == words


def test_it_says_where_the_backend_lies(capsys):
    assert main(["triton-config", "--backend-directory"]) == 0
    (line,) = capsys.readouterr().out.splitlines()

    assert (Path(line) / "embershard" / "libtriton_embershard.so").is_file()


def test_export_writes_it_too(tmp_path, capsys):
    state = tmp_path / "state.pt"
    torch.save(ranker().state_dict(), state)
    out = tmp_path / "repository" / "ranker" / "1"
    model = ["--model", "tests.serving.models:make_ranker"]
    assert main(["export", str(state), *model, "--out", str(out), "--triton"]) == 0
    config = out.parent / "config.pbtxt"
    assert capsys.readouterr().out.splitlines()[-1] == f"wrote {config}"
    assert config.read_text() == model_config(Package.open(out))
