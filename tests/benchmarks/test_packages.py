"""Packages in the cache of benchmarks."""

import os
import time

import pytest

from benchmarks import packages
from benchmarks.packages import SMALL, PackageSpec, export


@pytest.fixture
def package_folder(tmp_path, monkeypatch):
    """The folder for packages of `small`. An export only makes an empty folder."""
    monkeypatch.setattr(packages, "DEFAULT_CACHE", tmp_path)
    monkeypatch.setattr(packages, "_digest", lambda: "new")
    monkeypatch.setattr(packages, "_export", lambda spec, out: out.mkdir(parents=True))
    return tmp_path / "benchmarks" / "small_int8_fp32_1xcpu"


def test_a_package_is_exported_once_for_the_same_sources(package_folder, monkeypatch):
    assert export(SMALL) == package_folder / "new" / "small" / "1"
    monkeypatch.setattr(packages, "_export", lambda spec, out: pytest.fail("exported twice"))
    assert export(SMALL).is_dir()


def test_packages_of_int4_tables_have_a_folder_of_their_own(package_folder):
    out = export(PackageSpec(weights="int4"))
    assert out == package_folder.with_name("small_int4_fp32_1xcpu") / "new" / "small" / "1"


def test_packages_of_other_sources_are_deleted_a_day_after_use(package_folder):
    for digest, hours in (("recent", 23), ("old", 25), ("new", 25)):
        (package_folder / digest / "small" / "1").mkdir(parents=True)
        used = time.time() - hours * 3600
        os.utime(package_folder / digest, (used, used))
    export(SMALL)
    assert {path.name for path in package_folder.glob("*/")} == {"recent", "new"}
    assert (package_folder / "new").stat().st_mtime > time.time() - 3600
