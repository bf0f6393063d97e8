"""Recorded requests are sent byte for byte; answers that differ from the recorded ones are told."""

import json

import grpc
import pytest

from embershard._proto import predictor_pb2 as pb
from embershard.bench.replay import check_answers, read_replay
from embershard.cli import main
from embershard.errors import InputError
from tests.bench.fake_predictor import fake_predictor
from tests.bench.recordings import answer, call, write_recording
from tests.cases import cases
from tests.serving.asking import named, packed, random_request

UNKNOWN_FIELD = b"\xfa\x3e\x03abc"
"""Number 1007, three bytes: what a newer client may send."""

REQUESTS = [
    named(random_request(3, seed=1)).SerializeToString(),
    packed(random_request(2, seed=2), 0xABC).SerializeToString() + UNKNOWN_FIELD,
    b"\x20\x01" + b"\x20\x02",  # A field twice: nobody would serialize it so.
    b"",
]


def recorded(path, requests=REQUESTS, **fields):
    """A millisecond apart."""
    calls = [call(request, 1_000_000 + 1000 * n) for n, request in enumerate(requests)]
    return write_recording(path, calls, **fields)


def scores(score=0.5, **fields):
    return lambda number, context: answer(score, **fields)


def bench(server, path, *arguments):
    quick = ("--timeout", "20", "--warmup", "0")
    return main(["bench", "--target", server.address, "--replay", str(path), *quick, *arguments])


def test_a_server_receives_the_recorded_bytes_in_turn(tmp_path, capsys):
    with fake_predictor(scores()) as fake:
        assert bench(fake, recorded(tmp_path / "calls"), "--requests", "10") == 0
    # Each request is sent once before the load.
    assert fake.requests[:4] == REQUESTS
    assert fake.requests[4:] == [REQUESTS[number % 4] for number in range(10)]
    out = capsys.readouterr().out
    assert f"requests   4 recorded requests, sent in turn, from {tmp_path / 'calls'}" in out
    assert "recorded from ranker 7, 100 % of its calls, 4 answered OK" in out
    assert "answers    4 compared with the recorded ones, none differs by more than 1e-05" in out


def test_requests_leave_in_the_order_in_which_they_arrived(tmp_path):
    calls = [call(b"\x20\x02", 200), call(b"\x20\x01", 100), call(b"\x20\x03", 200)]
    replay = read_replay(write_recording(tmp_path / "calls", calls))
    assert [request.message for request in replay.requests] == [
        b"\x20\x01",
        b"\x20\x02",
        b"\x20\x03",
    ]
    assert [request.due_seconds for request in replay.requests] == pytest.approx([0, 1e-4, 1e-4])


def test_examples_and_ids_are_counted_in_both_forms(tmp_path):
    request = random_request(3, seed=5)
    ids = sum(len(value) for lists in request.sparse.values() for value in lists)
    both = [named(request).SerializeToString(), packed(request, 0xABC).SerializeToString()]
    replay = read_replay(recorded(tmp_path / "calls", both))
    assert [(item.examples, item.ids) for item in replay.requests] == [(3, ids), (3, ids)]


def test_recorded_times_are_kept(tmp_path, capsys):
    """The gaps are 0 and 30 ms, then their mean of 15 ms. A round takes 45 ms, and two rounds
    are 6 requests."""
    calls = [call(b"\x20\x01", at) for at in (7_000_000, 7_000_000, 7_030_000)]
    path = write_recording(tmp_path / "calls", calls)
    with fake_predictor(scores()) as fake:
        arguments = ("--rate", "recorded", "--requests", "6", "--json", str(tmp_path / "out"))
        assert bench(fake, path, *arguments) == 0
    assert "open loop, at the recorded times" in capsys.readouterr().out
    document = json.loads((tmp_path / "out").read_text())
    assert document["window_seconds"] == pytest.approx(0.045 + 0.03)
    assert document["load"]["recorded_times"] is True


def test_one_recorded_time_is_no_rate(tmp_path, capsys):
    path = write_recording(tmp_path / "calls", [call(b"\x20\x01", 5)] * 2)
    with fake_predictor(scores()) as fake:
        assert bench(fake, path, "--rate", "recorded") == 1
    assert "expected requests that were recorded at different times" in capsys.readouterr().err


def checked(tmp_path, responses, answers):
    calls = [call(b"\x20\x01", n, response=response) for n, response in enumerate(responses)]
    replay = read_replay(write_recording(tmp_path / "calls", calls))
    results = [answer and answer.SerializeToString() for answer in answers]
    return check_answers(replay, results)


@cases(
    ("now", "same"),
    {
        "within-the-tolerance": (answer(0.5 + 0.9e-5), True),
        "beyond-it": (answer(0.5 + 1.2e-5), False),
        "nan": (answer(float("nan")), False),
        "another-output": (answer(0.5, name="other"), False),
        "without-the-output": (pb.PredictResponse(model="ranker", version=7), False),
    },
)
def test_answers_differ_beyond_the_tolerance(tmp_path, now, same):
    check = checked(tmp_path, [answer(0.25), answer(0.5)], [answer(0.25), now])
    assert (check.compared, check.different) == (2, 0 if same else 1)
    assert check.first_different == (None if same else 2)


def test_the_tolerance_is_relative_to_large_values(tmp_path):
    assert checked(tmp_path, [answer(1000)], [answer(1000.005)]).different == 0
    check = checked(tmp_path, [answer(1000)], [answer(1000.02)])
    assert check.different == 1
    assert check.largest_difference == pytest.approx(0.02, rel=0.01)


def test_another_shape_is_another_answer(tmp_path):
    flat, tall = answer(), answer()
    tall.outputs[0].shape[:] = [1, 1]
    assert checked(tmp_path, [flat], [tall]).different == 1


def test_only_answers_of_the_same_version_are_compared(tmp_path):
    check = checked(tmp_path, [answer(1), answer(2)], [answer(9, version=8), answer(2)])
    assert (check.compared, check.different, check.other_version) == (1, 0, 1)


def test_what_was_not_answered_is_not_compared(tmp_path):
    assert checked(tmp_path, [answer(1), answer(2)], [None, answer(2)]).compared == 1


@pytest.mark.parametrize("how", [(), ("--streams", "1")], ids=["calls", "streams"])
def test_differing_answers_are_reported(tmp_path, capsys, how):
    """The second of the four requests gets another score than it got then."""

    def other_once(number, context):
        return answer(0.75 if number % 4 == 1 else 0.5)

    with fake_predictor(other_once, threads=2) as fake:
        arguments = ("--in-flight", "1", "--requests", "4", "--json", str(tmp_path / "out"))
        assert bench(fake, recorded(tmp_path / "calls"), *arguments, *how) == 0
    words = "1 differ, the first is that to request 2, values by up to 0.25"
    assert words in capsys.readouterr().out
    document = json.loads((tmp_path / "out").read_text())
    assert (document["answers"]["compared"], document["answers"]["different"]) == (4, 1)
    assert document["replay"] == str(tmp_path / "calls")


def test_what_was_refused_then_is_sent_but_not_tried_first(tmp_path, capsys):
    def refuse_one(number, context):
        if fake.requests[number] == b"bad":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "as it was")
        return answer()

    calls = [call(b"", 1, code=3, message=b"as it was"), call(b"\x20\x01", 2)]
    path = write_recording(tmp_path / "calls", calls)
    with fake_predictor(refuse_one) as fake:
        assert bench(fake, path, "--requests", "4") == 0
    assert fake.requests == [b"\x20\x01", b"", b"\x20\x01", b"", b"\x20\x01"]
    assert "1 compared" in capsys.readouterr().out


def test_a_torn_tail_is_noted(tmp_path, capsys):
    path = recorded(tmp_path / "calls")
    path.write_bytes(path.read_bytes() + b"\x10\0\0\0half")
    with fake_predictor(scores()) as fake:
        assert bench(fake, path, "--requests", "1") == 0
    words = " ".join(capsys.readouterr().out.split())  # Long notes have line breaks.
    assert "the last 8 bytes are an incomplete record" in words


def test_another_schema_is_refused_with_both(tmp_path, capsys):
    path = recorded(tmp_path / "calls", schema=0xDEF)
    with fake_predictor(scores()) as fake:
        assert bench(fake, path) == 1
        assert fake.requests == []
    message = "schema 0000000000000def of ranker 7, got 0000000000000abc of ranker 7"
    assert message in capsys.readouterr().err


def test_requests_that_name_no_model_are_refused_before_the_load(tmp_path, capsys):
    path = recorded(tmp_path / "calls")
    with fake_predictor(scores()) as fake:
        fake.is_alone = False
        assert bench(fake, path, "--model", "ranker") == 1
        assert len(fake.requests) == 1
    assert "no model is named, expected one of 'a'; 'b'" in capsys.readouterr().err


def test_requests_that_name_their_model_find_it_among_others(tmp_path):
    naming = pb.PredictRequest(model="ranker", num_examples=1).SerializeToString()
    # A request that was refused may be answered now.
    calls = [call(naming, 1), call(b"", 2, code=3)]
    with fake_predictor(scores()) as fake:
        fake.is_alone = False
        path = write_recording(tmp_path / "calls", calls)
        assert bench(fake, path, "--requests", "2") == 0
    assert fake.requests == [naming, naming, b""]


def test_a_recording_without_calls_is_refused(tmp_path):
    with pytest.raises(InputError, match="expected recorded calls"):
        read_replay(write_recording(tmp_path / "calls", []))


def test_a_record_that_holds_no_request_is_refused(tmp_path):
    with pytest.raises(InputError, match="request 1 in order of arrival"):
        read_replay(write_recording(tmp_path / "calls", [call(b"\xff\xff", 1)]))


@cases(
    ("arguments", "message"),
    {
        "examples": (["--examples", "3"], "--examples: expected none with --replay"),
        "id-range": (["--id-range", "0..9"], "--id-range: expected none with --replay"),
        "slo": (["--rate", "recorded", "--slo", "p9<1s"], "--slo or --rate rec"),
    },
)
def test_what_shapes_drawn_requests_is_refused(tmp_path, capsys, arguments, message):
    with fake_predictor(scores()) as fake:
        assert bench(fake, recorded(tmp_path / "calls"), *arguments) == 1
    assert message in capsys.readouterr().err


def test_recorded_times_want_a_recording(capsys):
    assert main(["bench", "--target", "127.0.0.1:1", "--rate", "recorded"]) == 1
    assert "expected --replay FILE with --rate recorded" in capsys.readouterr().err
