"""The safetensors library reads our files, and we read its files."""

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from embershard.package.safetensors_file import SafetensorsFile, encode_header, write_safetensors

ARRAYS = {
    "bytes": np.arange(7, dtype=np.uint8),
    "ids": np.array([[-1, 2**62]], np.int64),
    "empty": np.zeros((2, 0), np.float32),
    "weights": np.array([0.5, -2.0, 3.0], np.float32),
    "lengths": np.array([3], np.int32),
}


@pytest.mark.parametrize("align", [8, 4096])
def test_the_library_reads_what_we_write(tmp_path, align):
    write_safetensors(tmp_path / "a", ARRAYS, align=align)

    loaded = load((tmp_path / "a").read_bytes())

    assert loaded.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(loaded[name], array)
        assert loaded[name].dtype == array.dtype


def test_we_read_what_the_library_writes(tmp_path):
    (tmp_path / "a").write_bytes(save(ARRAYS))

    opened = SafetensorsFile.open(tmp_path / "a", "a", align=8)

    dtypes = {"u1": "U8", "i8": "I64", "f4": "F32", "i4": "I32"}
    for name, array in ARRAYS.items():
        tensor = opened.tensor(name, dtypes[array.dtype.str[1:]], array.shape)
        np.testing.assert_array_equal(tensor, array)


def test_data_and_numbers_are_aligned(tmp_path):
    write_safetensors(tmp_path / "a", ARRAYS, align=4096)

    data = (tmp_path / "a").read_bytes()

    (header_bytes,) = struct.unpack_from("<Q", data)
    assert 8 + header_bytes == 4096
    for entry in json.loads(data[8:4096]).values():
        size = {"U8": 1, "I32": 4, "F32": 4, "I64": 8}[entry["dtype"]]
        assert entry["data_offsets"][0] % size == 0


def test_strided_and_big_endian_arrays_are_written_right(tmp_path):
    arrays = {"t": np.arange(6, dtype=np.int64).reshape(2, 3).T, "b": np.array([1, 2], ">i4")}
    write_safetensors(tmp_path / "a", arrays)

    loaded = load((tmp_path / "a").read_bytes())

    assert loaded["t"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert loaded["b"].tolist() == [1, 2]


def test_what_is_mapped_cannot_be_written(tmp_path):
    write_safetensors(tmp_path / "a", ARRAYS)
    ids = SafetensorsFile.open(tmp_path / "a", "a", align=8).tensor("ids", "I64", (None, 2))
    with pytest.raises(ValueError, match="read-only"):
        ids[0, 0] = 1


@given(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=300), st.sampled_from([8, 64, 4096])
)
def test_headers_have_the_length_asked_for(name, align):
    encoded = encode_header({name: ("U8", (1, 2)), name + "b": ("I64", (3,))}, align=align)

    assert len(encoded) % align == 0
    header = json.loads(encoded[8:])
    assert header[name]["data_offsets"] == [0, 2]
    assert header[name + "b"]["data_offsets"] == [2, 26]
