"""A package is published again with a compiled program."""

import errno
import json
import os

import pytest

from embershard.errors import InputError, PackageError
from embershard.package import Package, add_plan, add_program, place_tables, verify_package
from embershard.package.manifest import CompiledProgramSpec
from tests.cases import cases
from tests.package.building import publish

CHUNK = "tables/user/00000.safetensors"


def spec(target="x86_64-avx2", torch="2.13.0"):
    return CompiledProgramSpec(
        kind="aotinductor",
        target=target,
        dtype="bfloat16",
        torch=torch,
        instructions=("avx2", "fma"),
        file=f"programs/dense.{target}.pt2",
    )


@pytest.fixture
def package(tmp_path):
    return Package.open(publish(tmp_path / "small" / "1"))


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "made.pt2"
    file.write_bytes(b"a program")
    return file


def good(folder):
    assert verify_package(folder)


def test_the_new_version_has_the_program_and_is_good_in_every_byte(package, program, tmp_path):
    out = tmp_path / "other" / "7"
    assert add_program(package, out, spec(), program, check=good) == 0
    found = verify_package(out).manifest
    assert (found.model, found.version) == ("other", 7)
    assert found.compiled == [spec()]
    assert found.torchscript == package.manifest.torchscript
    assert (out / "programs/dense.x86_64-avx2.pt2").read_bytes() == b"a program"


def test_all_else_in_the_manifest_stays(package, program, tmp_path):
    def rest(folder):
        document = json.loads((folder / "manifest.json").read_bytes())
        del document["programs"], document["version"]
        document["files"].pop("programs/dense.x86_64-avx2.pt2", None)
        return document

    out = tmp_path / "small" / "2"
    add_program(package, out, spec(), program, check=good)
    assert rest(out) == rest(package.path)


def test_tables_are_the_same_files(package, program, tmp_path):
    out = tmp_path / "small" / "2"
    add_program(package, out, spec(), program, check=good)
    assert (out / CHUNK).samefile(package.path / CHUNK)


def test_a_plan_that_was_added_while_the_program_was_compiled_is_there(package, program, tmp_path):
    plan = place_tables(package.manifest.tables, ["cpu:0", "cpu:1"], name="more")
    add_plan(package.path, plan, default=True)
    out = tmp_path / "small" / "2"
    add_program(package, out, spec(), program, check=good)
    found = verify_package(out)
    assert found.plan() == plan
    assert found.manifest.compiled == [spec()]


def test_where_no_second_name_can_be_given_files_are_copied(
    package, program, tmp_path, monkeypatch
):
    def two_file_systems(*_, **__):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", two_file_systems)
    out = tmp_path / "small" / "2"
    copied = add_program(package, out, spec(), program, check=good)
    assert copied == len(package.manifest.files)
    assert not (out / CHUNK).samefile(package.path / CHUNK)
    assert (out / CHUNK).read_bytes() == (package.path / CHUNK).read_bytes()


def test_another_error_of_the_file_system_is_no_reason_to_copy(
    package, program, tmp_path, monkeypatch
):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(InputError, match="no room: No space left on device; make room"):
        add_program(package, tmp_path / "small" / "2", spec(), program, check=good)
    assert sorted(os.listdir(tmp_path / "small")) == ["1"]


def test_a_program_takes_the_place_of_the_one_of_its_target(package, program, tmp_path):
    first, second, third = (tmp_path / "small" / str(number) for number in (2, 3, 4))
    add_program(package, first, spec(), program, check=good)
    add_program(Package.open(first), second, spec("x86_64-avx512"), program, check=good)
    program.write_bytes(b"a newer program")
    add_program(Package.open(second), third, spec(torch="2.14.0"), program, check=good)
    found = Package.open(third).manifest.compiled
    assert found == [spec("x86_64-avx512"), spec(torch="2.14.0")]
    assert (third / "programs/dense.x86_64-avx2.pt2").read_bytes() == b"a newer program"


def test_what_the_check_refuses_is_not_published(package, program, tmp_path):
    def bad(folder):
        raise PackageError(f"{Package.open(folder).manifest.version}: other scores")

    with pytest.raises(PackageError, match="2: other scores"):
        add_program(package, tmp_path / "small" / "2", spec(), program, check=bad)
    assert sorted(os.listdir(tmp_path / "small")) == ["1"]


@cases(
    ("out", "words"),
    {
        "taken": ("small/1", "expected no such version yet"),
        "no-version": ("small/new", "the version a number from 1"),
        "no-model": (".small/1", "out: model: expected letters"),
    },
)
def test_a_place_that_is_none_is_refused(package, program, tmp_path, out, words):
    with pytest.raises(InputError, match=words):
        add_program(package, tmp_path / out, spec(), program, check=good)


def test_a_file_of_the_package_is_not_replaced(package, program, tmp_path):
    taken = spec().model_copy(update={"file": "programs/dense.pt"})
    with pytest.raises(InputError, match=r"programs/dense\.pt: expected a path that is free"):
        add_program(package, tmp_path / "small" / "2", taken, program, check=good)
