"""A package that is opened while plans are added counts as intact, and real damage is reported."""

import shutil

import pytest

from embershard.errors import InputError, PackageError
from embershard.package import Package, add_plan, place_tables, reader, verify_package
from embershard.package.files import exchange
from embershard.package.folder_checks import TRIES, read_settled
from tests.cases import cases, refused
from tests.package.building import publish


@pytest.fixture
def package(tmp_path):
    return publish(tmp_path / "small" / "1")


@pytest.fixture
def plans_to_add(package, monkeypatch):
    """Names of plans that are added while the package is opened. Each attempt to read it adds the
    last one, after the manifest is read and before the files are compared with it."""
    names = []
    compare = reader.check_files

    def add_one(folder, manifest):
        if names:
            name = names.pop()
            with monkeypatch.context() as undisturbed:
                undisturbed.setattr(reader, "check_files", compare)
                tables = Package.open(package).manifest.tables
                add_plan(package, place_tables(tables, ["cpu:0"], name=name))
        compare(folder, manifest)

    monkeypatch.setattr(reader, "check_files", add_one)
    return names


@pytest.mark.parametrize("opens", [Package.open, verify_package])
def test_a_plan_added_in_the_middle_is_there(package, plans_to_add, opens):
    plans_to_add += ["second", "first"]
    assert list(opens(package).plans) == ["default", "first", "second"]


def test_it_gives_up_where_plans_never_end(package, plans_to_add):
    plans_to_add += [f"p{number}" for number in range(TRIES + 1)]
    with refused(PackageError, "plans/p1.json: unexpected file"):
        Package.open(package)
    assert plans_to_add == ["p0"]


def test_damage_is_said_at_once(package):
    reads = []

    def read():
        reads.append(1)
        raise PackageError("damaged")

    with pytest.raises(PackageError, match="damaged"):
        read_settled(package, read)
    assert len(reads) == 1


def test_a_folder_that_goes_away_is_said_at_once(package):
    def read():
        shutil.rmtree(package)
        raise FileNotFoundError("gone")

    with pytest.raises(FileNotFoundError, match="gone"):
        read_settled(package, read)


@cases(
    ("other", "error", "part"),
    {
        # EINVAL is also the error of a file system that cannot exchange folders.
        "below": ("one/below", InputError, "a file system"),
        "missing": ("two", FileNotFoundError, "/two"),
    },
)
def test_an_exchange_that_fails_leaves_both_folders(tmp_path, other, error, part):
    (tmp_path / "one" / "below").mkdir(parents=True)
    with refused(error, part):
        exchange(tmp_path / "one", tmp_path / other)
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "one", tmp_path / "one" / "below"]
