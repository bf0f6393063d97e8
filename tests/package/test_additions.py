"""A plan is added to a published package completely or not at all."""

import errno
import json
import os
import threading

import pytest

from embershard.errors import InputError, PackageError
from embershard.package import Package, add_plan, place_tables, verify_package
from embershard.package.plan import Plan
from embershard.package.rectangles import Shard
from tests.cases import refused
from tests.package.building import publish
from tests.package.killed import numbers_before_death


@pytest.fixture
def package(tmp_path):
    return publish(tmp_path / "small" / "1")


def plan_for(package, name):
    return place_tables(Package.open(package).manifest.tables, ["cpu:0", "cpu:1"], name=name)


def names_beside(package):
    return sorted(os.listdir(package.parent))


def test_the_package_has_the_plan_and_is_good_in_every_byte(package):
    before = Package.open(package)
    plan = plan_for(package, "more")
    added = add_plan(package, plan)
    assert verify_package(package).plans == {**before.plans, "more": plan} == added.plans
    assert added.manifest.default_plan == "default"
    assert names_beside(package) == ["1"]


def test_all_else_in_the_manifest_stays(package):
    def without_plans():
        document = json.loads((package / "manifest.json").read_bytes())
        files = {k: v for k, v in document.pop("files").items() if not k.startswith("plans/")}
        return {k: v for k, v in document.items() if k != "plans"}, files

    before = without_plans()
    add_plan(package, plan_for(package, "more"))
    assert without_plans() == before


def test_tables_are_the_same_files_as_before(package):
    chunk = package / "tables/user/00000.safetensors"
    before = chunk.stat().st_ino
    add_plan(package, plan_for(package, "more"))
    assert chunk.stat().st_ino == before


def test_it_becomes_the_default_where_that_is_asked_for(package):
    assert add_plan(package, plan_for(package, "more"), default=True).plan().name == "more"


def test_a_symbolic_link_leads_to_the_package(package, tmp_path):
    (tmp_path / "latest").symlink_to(package)
    add_plan(tmp_path / "latest", plan_for(package, "more"))
    assert Package.open(package).manifest.plans == ("default", "more")
    assert (tmp_path / "latest").is_symlink()


def refuses_and_leaves_everything(package, plan, error, *parts):
    before = {file: file.read_bytes() for file in package.rglob("*") if file.is_file()}
    with refused(error, *parts):
        add_plan(package, plan)
    assert {file: file.read_bytes() for file in package.rglob("*") if file.is_file()} == before
    assert names_beside(package) == ["1"]


def test_a_plan_is_never_replaced(package):
    refuses_and_leaves_everything(package, plan_for(package, "default"), InputError, "'default'")


def test_a_plan_that_leaves_a_hole_is_refused(package):
    shard = Shard(table="user", rows=(0, 2999), columns=(0, 4), devices=(0,))
    plan = Plan(format_version=0, name="holed", devices=("cpu:0",), shards=(shard,))
    refuses_and_leaves_everything(package, plan, PackageError, "plans/holed.json: shards")


def test_a_damaged_package_is_refused(package):
    plan = plan_for(package, "more")
    with (package / "manifest.json").open("ab") as stream:
        stream.write(b" ")
    refuses_and_leaves_everything(package, plan, PackageError, "manifest.json: sha256")


def test_a_full_disk_leaves_the_package_as_it_was(package, file_limit):
    plan = plan_for(package, "more")
    with file_limit(100):
        refuses_and_leaves_everything(package, plan, InputError, "File too large")


def failing_links(monkeypatch, number):
    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", fail)


def test_files_that_cannot_be_linked_are_copied(package, monkeypatch):
    chunk = package / "tables/user/00000.safetensors"
    inode, data = chunk.stat().st_ino, chunk.read_bytes()
    failing_links(monkeypatch, errno.EMLINK)
    assert verify_package(add_plan(package, plan_for(package, "more")).path)
    assert chunk.stat().st_ino != inode
    assert chunk.read_bytes() == data


def test_another_error_of_a_link_is_no_reason_to_copy(package, monkeypatch):
    plan = plan_for(package, "more")
    failing_links(monkeypatch, errno.ENOSPC)
    refuses_and_leaves_everything(package, plan, InputError, "No space left on device")


def test_plans_added_at_once_are_all_there(package):
    names = [f"plan{number}" for number in range(8)]
    plans = [plan_for(package, name) for name in names]
    threads = [threading.Thread(target=add_plan, args=(package, plan)) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(verify_package(package).plans) == ["default", *names]
    assert names_beside(package) == ["1"]


CHILD = """
import sys
from tests.package.test_additions import add_plan, plan_for

print("ready", flush=True)
for number in range(1000):
    add_plan(sys.argv[1], plan_for(sys.argv[1], f"plan{number}"))
    print(number, flush=True)
"""


@pytest.mark.parametrize("seed", range(4))
def test_killed_at_any_moment_the_package_has_the_plan_or_not(package, seed):
    printed = numbers_before_death(CHILD, package, seed=seed)
    plans = list(verify_package(package).plans)[1:]
    assert plans[: len(printed)] == [f"plan{number}" for number in printed]
    assert len(plans) <= len(printed) + 1
