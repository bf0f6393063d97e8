"""A recording is replayed on streams as it is as calls: the same bytes, times and comparisons."""

import json

import grpc
import pytest

from embershard._proto import predictor_pb2 as pb
from embershard.bench.recording import read_recording
from tests.bench.fake_predictor import fake_predictor
from tests.bench.recordings import answer, call, write_recording
from tests.bench.test_replay import REQUESTS, bench, recorded, scores

TRIED = len(REQUESTS)
"""Each goes once before the load, as a call."""


def behind(message, request):
    """What a stream's message has behind the request."""
    assert message.startswith(request)
    return pb.PredictRequest.FromString(message[len(request) :])


def test_the_recorded_bytes_go_in_turn_with_an_id_and_a_timeout_behind_them(tmp_path, capsys):
    path = recorded(tmp_path / "calls")
    with fake_predictor(scores(), threads=2) as fake:
        arguments = ("--streams", "1", "--in-flight", "1", "--requests", "10")
        assert bench(fake, path, *arguments) == 0
    assert fake.requests[:TRIED] == REQUESTS
    sent = fake.requests[TRIED:]
    added = [behind(message, REQUESTS[n % TRIED]) for n, message in enumerate(sent)]
    assert len({each.request_id for each in added}) == len(added) == 10
    for each in added:
        assert 0 < each.timeout_ms <= 20_000
        assert {field.name for field, _ in each.ListFields()} == {"request_id", "timeout_ms"}
    words = "answers    4 compared with the recorded ones, none differs by more than 1e-05"
    assert words in capsys.readouterr().out


def test_what_was_recorded_from_a_stream_gets_an_id_of_its_own(tmp_path):
    """The last of a field's values counts."""
    message = pb.PredictRequest(num_examples=1, request_id="theirs", timeout_ms=5)
    calls = [call(message.SerializeToString(), 1)]
    with fake_predictor(scores(), threads=2) as fake:
        path = write_recording(tmp_path / "calls", calls)
        arguments = ("--streams", "1", "--in-flight", "1", "--requests", "2")
        assert bench(fake, path, *arguments) == 0
    for sent in map(pb.PredictRequest.FromString, fake.requests[1:]):
        assert sent.request_id != "theirs"
        assert 5 < sent.timeout_ms <= 20_000


@pytest.mark.parametrize("streams", ["1", "2"])
def test_answers_that_differ_are_told(tmp_path, capsys, streams):
    """To every second request another score than was recorded."""
    path = recorded(tmp_path / "calls", [b"\x20\x01", b"\x20\x02"])

    def other(number, context):
        asked = pb.PredictRequest.FromString(fake.requests[number])
        return answer(0.75 if asked.num_examples == 2 else 0.5)

    with fake_predictor(other, threads=3) as fake:
        arguments = ("--streams", streams, "--in-flight", "2", "--requests", "8")
        assert bench(fake, path, *arguments, "--json", str(tmp_path / "out")) == 0
    words = "1 differ, the first is that to request 2, values by up to 0.25"
    assert words in capsys.readouterr().out
    document = json.loads((tmp_path / "out").read_text())
    assert document["answers"]["compared"] == 2
    assert document["answers"]["different"] == 1


def test_failures_on_a_stream_are_counted_and_not_compared(tmp_path, capsys):
    refusal = pb.Failure(code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], message="full")

    def full_for_two(number, context):
        asked = pb.PredictRequest.FromString(fake.requests[number])
        if asked.num_examples == 2 and asked.request_id:  # On the stream.
            return pb.PredictResponse(failure=refusal)
        return answer()

    path = recorded(tmp_path / "calls", [b"\x20\x01", b"\x20\x02"])
    with fake_predictor(full_for_two, threads=2) as fake:
        arguments = ("--streams", "1", "--in-flight", "1", "--requests", "6")
        assert bench(fake, path, *arguments) == 0
    out = capsys.readouterr().out
    assert "errors     3 of 6: RESOURCE_EXHAUSTED 3" in out
    assert "answers    1 compared with the recorded ones, none differs" in out


def test_recorded_times_are_kept_on_streams(tmp_path, capsys):
    """Gaps of 0 and 30 ms, then their mean: a round takes 45 ms, and two of it are 6 requests."""
    calls = [call(b"\x20\x01", at) for at in (7_000_000, 7_000_000, 7_030_000)]
    path = write_recording(tmp_path / "calls", calls)
    assert len(read_recording(path).calls) == 3
    with fake_predictor(scores(), threads=3) as fake:
        arguments = ("--rate", "recorded", "--streams", "2", "--requests", "6")
        assert bench(fake, path, *arguments, "--json", str(tmp_path / "out")) == 0
    assert len(fake.requests) == 3 + 6
    assert "open loop, at the recorded times" in capsys.readouterr().out
    document = json.loads((tmp_path / "out").read_text())
    assert document["window_seconds"] == pytest.approx(0.045 + 0.03)
