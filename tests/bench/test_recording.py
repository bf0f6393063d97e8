"""Recordings are read as they were written; torn, damaged and other files are told apart."""

import os
from pathlib import Path

import pytest

from embershard._proto import predictor_pb2 as pb
from embershard.bench import recording as reader
from embershard.bench.recording import read_recording
from embershard.errors import InputError
from tests.bench.recordings import answer, call, framed, header, write_recording
from tests.cases import cases


def test_a_recording_is_read_as_it_was_written(tmp_path):
    calls = [call(b"\x20\x01", 1_700_000_000_000_001), call(b"?", 5, code=3, message=b"no \xff")]
    path = write_recording(tmp_path / "calls", calls, share=0.25)
    recording = read_recording(path)
    assert read_recording(str(path)) == recording
    assert (recording.model, recording.version, recording.fingerprint) == ("ranker", 7, 0xABC)
    assert recording.share == 0.25
    assert recording.torn_bytes == 0
    good, bad = recording.calls
    assert (good.arrival_unix_us, good.request, good.code) == (
        1_700_000_000_000_001,
        b"\x20\x01",
        0,
    )
    assert pb.PredictResponse.FromString(good.response) == answer()
    assert (bad.request, bad.code, bad.message, bad.response) == (b"?", 3, b"no \xff", b"")


def test_a_file_that_ends_anywhere_is_whole_up_to_there(tmp_path):
    first, second = framed(call(b"first", 1)), framed(call(b"second", 2))
    begin = framed(header())
    whole = begin + first + second
    path = tmp_path / "calls"
    for end in range(len(begin), len(whole) + 1):
        path.write_bytes(whole[:end])
        recording = read_recording(path)
        expected = [b"first"] * (end >= len(begin + first)) + [b"second"] * (end == len(whole))
        assert [call.request for call in recording.calls] == expected
        kept = len(begin) + len(first) * (len(expected) > 0) + len(second) * (len(expected) > 1)
        assert recording.torn_bytes == end - kept


@cases(
    "contents",
    {
        "empty": b"",
        "one-byte": b"\x05",
        "within-the-header": framed(header())[:-1],
        "text": b"user,item,label\n1,2,0\n",
        "zeros": bytes(100),
        "no-message": framed(b"\xff\xff"),
        "another-kind": framed(header(magic="another")),
        "a-request": framed(pb.PredictRequest(model="m").SerializeToString()),
    },
)
def test_another_file_is_no_recording(tmp_path, contents):
    path = tmp_path / "other"
    path.write_bytes(contents)
    with pytest.raises(InputError, match="other: expected a recording of embershard serve"):
        read_recording(path)


def test_another_format_is_refused(tmp_path):
    with pytest.raises(InputError, match="expected a recording of format 2, got format 3"):
        read_recording(write_recording(tmp_path / "calls", [], format=3))


def test_a_flipped_bit_in_a_record_is_noticed(tmp_path):
    begin, first, second = framed(header()), framed(call(b"first", 1)), framed(call(b"2nd", 2))
    whole = bytearray(begin + first + second)
    path = tmp_path / "calls"
    for bit in range(8 * len(begin), 8 * len(whole), 7):  # One in almost every byte.
        whole[bit // 8] ^= 1 << bit % 8
        path.write_bytes(whole)
        place, at = (1, len(begin)) if bit < 8 * len(begin + first) else (2, len(begin + first))
        what = "size has" if bit // 8 - at < 8 else "bytes have"
        with pytest.raises(InputError, match=f"record {place} is damaged: its {what}"):
            read_recording(path)
        whole[bit // 8] ^= 1 << bit % 8


def test_a_damaged_record_is_named(tmp_path):
    path = write_recording(tmp_path / "calls", [call(b"good", 1), b"\xff\xff\xff"])
    with pytest.raises(InputError, match="calls: record 2 is damaged"):
        read_recording(path)


@pytest.mark.parametrize("arrival", [-(2**63), -1, 2**52 + 1, 2**63 - 1])
def test_an_arrival_at_no_such_time_is_refused(tmp_path, arrival):
    path = write_recording(tmp_path / "calls", [call(b"good", 2**52), call(b"bad", arrival)])
    with pytest.raises(InputError, match=rf"record 2: arrival: expected 0 \.\. .*, got {arrival}$"):
        read_recording(path)


def test_what_is_no_regular_file_is_refused_unread(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # Nobody ever writes to it.
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(InputError, match="expected a recording, got no regular file"):
            read_recording(path)
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_recording(tmp_path)


def test_a_file_larger_than_any_recording_is_refused(tmp_path, monkeypatch):
    path = write_recording(tmp_path / "calls", [call(b"good", 1)])
    monkeypatch.setattr(reader, "FILE_BYTES_MAX", path.stat().st_size)
    assert len(read_recording(path).calls) == 1
    monkeypatch.setattr(reader, "FILE_BYTES_MAX", path.stat().st_size - 1)
    with pytest.raises(InputError, match=r"expected a recording of at most .* bytes, got more"):
        read_recording(path)


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(InputError, match="calls: cannot be read: No such file"):
        read_recording(tmp_path / "calls")
