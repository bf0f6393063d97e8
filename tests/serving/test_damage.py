"""Whatever happens to whatever file of a package, it is refused by that file's name, and serves no
score."""

import random
import shutil

import pytest

from embershard.errors import PackageError
from embershard.package.reader import verify_package
from embershard.serving import LocalPredictor
from embershard.serving._native import load_extension
from tests.serving.serve import serve

FLIPS = 6
"""Bits changed in each file, one at a time, at random places."""


def flipped(data, bit):
    place, mask = bit // 8, 1 << bit % 8
    return data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :]


def damaged(data, chance):
    """Other bytes for a file."""
    size = len(data)
    yield from (flipped(data, chance.randrange(8 * size)) for _ in range(FLIPS))
    yield data[: chance.randrange(size)]  # Cut, as by a full disk.
    yield b""
    yield data + b"\0"
    begin = chance.randrange(size)
    page = data[begin : begin + 4096]
    if any(page):
        yield data[:begin] + bytes(len(page)) + data[begin + len(page) :]  # Never written.
    if data != data[::-1]:
        yield data[::-1]


READERS = {
    "python": verify_package,
    "cpp": lambda folder: load_extension().verify_package(str(folder)),
    "predictor": lambda folder: LocalPredictor(folder, threads=1),
}


@pytest.fixture
def copy(package, tmp_path):
    return shutil.copytree(package, tmp_path / "ranker" / "1")


def blamed(file):
    """Files that a refusal may name: a digest and its manifest vouch for each other."""
    return (f"{file}: ", "manifest.json: ") if file == "manifest.sha256" else f"{file}: "


def files_of(package):
    return sorted(path for path in package.rglob("*") if path.is_file())


@pytest.mark.parametrize("reader", READERS)
def test_no_changed_file_passes(copy, reader):
    read, chance = READERS[reader], random.Random(reader)
    read(copy)  # The unchanged package is valid.
    for path in files_of(copy):
        file, whole = path.relative_to(copy).as_posix(), path.read_bytes()
        for data in damaged(whole, chance):
            path.write_bytes(data)
            with pytest.raises(PackageError) as refused:
                read(copy)
            assert str(refused.value).startswith(blamed(file)), refused.value
            assert "expected " in str(refused.value)
        path.write_bytes(whole)
    read(copy)


@pytest.mark.parametrize("reader", READERS)
def test_no_bit_of_the_digest_may_change(copy, reader):
    """Only the digest vouches for the manifest, and only its form vouches for the digest."""
    path = copy / "manifest.sha256"
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        path.write_bytes(flipped(whole, bit))
        with pytest.raises(PackageError, match=r"^manifest\.(sha256|json): "):
            READERS[reader](copy)


def test_no_missing_file_passes(copy):
    for path in files_of(copy):
        whole = path.read_bytes()
        path.unlink()
        for read in READERS.values():
            with pytest.raises(PackageError) as refused:
                read(copy)
            assert path.relative_to(copy).as_posix() in str(refused.value)
        path.write_bytes(whole)


def test_a_server_does_not_start_and_names_the_damaged_file(copy):
    chance = random.Random(7)
    for path in files_of(copy):
        whole = path.read_bytes()
        path.write_bytes(flipped(whole, chance.randrange(8 * len(whole))))
        with pytest.raises(PackageError) as refused:
            serve(copy.parents[1])
        file = path.relative_to(copy).as_posix()
        where, _, words = str(refused.value).partition("model 'ranker' version 1: ")
        assert not where
        assert words.startswith(blamed(file)), words
        path.write_bytes(whole)
