"""`embershard serve --record` and `embershard bench --replay`: what users sent, again."""

import resource
import signal
import stat

import grpc
import pytest

from embershard._proto import predictor_pb2 as pb
from embershard.bench.recording import read_recording
from embershard.bench.target import ask_model, find_target
from tests.cli.running import run, serving
from tests.serving.asking import named, packed, random_request

PREDICT = "/embershard.v1.Predictor/Predict"


def ask(server, messages):
    """The answers; None where one was refused."""
    with grpc.insecure_channel(server.address) as channel:
        predict = channel.unary_unary(PREDICT)
        answers = []
        for message in messages:
            try:
                answers.append(predict(message, timeout=60, wait_for_ready=True))
            except grpc.RpcError:
                answers.append(None)
        return answers


def requests(server):
    """In both forms, and one that is refused."""
    model = ask_model(find_target(server.address), "", timeout_seconds=60)
    return [
        named(random_request(3, seed=1)).SerializeToString(),
        pb.PredictRequest(num_examples=0).SerializeToString(),
        *(
            packed(random_request(examples, seed=examples), model.fingerprint).SerializeToString()
            for examples in range(1, 9)
        ),
    ]


def replay(server, path, *arguments):
    return run(
        *("bench", "--target", server.address, "--replay", path, "--timeout", 20),
        *("--warmup", 0, "--requests", 30, *arguments),
    )


def in_order(recording):
    """Calls by arrival. The file has them in the order in which they ended."""
    return sorted(recording.calls, key=lambda call: call.arrival_unix_us)


@pytest.fixture(scope="module")
def traffic(repository, tmp_path_factory):
    """A recording, what was sent, and what was answered."""
    path = tmp_path_factory.mktemp("traffic") / "calls"
    with serving(repository, "--threads", 1, "--record", path) as server:
        sent = requests(server)
        answers = ask(server, sent)
        code, _, errors = server.stop(signal.SIGTERM)
    assert code == 0
    assert "requests_recorded=10 requests_not_recorded=0" in errors.splitlines()[-1]
    return path, sent, answers


def test_what_was_sent_and_answered_is_recorded_byte_for_byte(traffic):
    path, sent, answers = traffic
    recording = read_recording(path)
    assert recording.model == "ranker"
    assert recording.torn_bytes == 0
    calls = in_order(recording)
    assert [call.request for call in calls] == sent
    assert [call.response or None for call in calls] == answers
    assert [call.code for call in calls] == [0, 3, *[0] * 8]
    assert b"num_examples" in calls[1].message


def test_the_log_says_when_recording_starts_and_completes(repository, tmp_path):
    path = tmp_path / "calls"
    with serving(repository, "--threads", 1, "--record", path, "--record-requests", 3) as server:
        ask(server, requests(server))
        log = [server.process.stderr.readline().split()[1:] for _ in range(4)]
        server.stop(signal.SIGTERM)
    assert [line[0] for line in log] == ["start", "listening", "recording", "recorded"]
    assert log[2][1:] == [f"file={path}", "requests_at_most=3", "share=1.0"]
    assert log[3][1:] == ["requests=3", f"file={path}"]


def test_only_its_owner_may_read_it(traffic):
    assert stat.S_IMODE(traffic[0].stat().st_mode) == 0o600


def test_a_replay_on_the_same_package_gets_the_recorded_answers(repository, traffic):
    with serving(repository, "--threads", 1) as server:
        ended = replay(server, traffic[0], "--in-flight", 4)
        again = replay(server, traffic[0], "--rate", "recorded")
        on_streams = replay(server, traffic[0], "--in-flight", 4, "--streams", 2)
    assert ended.returncode == 0, ended.stderr
    assert "answers    9 compared with the recorded ones, none differs" in ended.stdout
    assert "errors     3 of 30: INVALID_ARGUMENT 3" in ended.stdout
    assert "none differs" in again.stdout, again.stderr
    assert "answers    9 compared with the recorded ones, none differs" in on_streams.stdout
    assert "errors     3 of 30: INVALID_ARGUMENT 3" in on_streams.stdout


def test_after_a_kill_all_that_was_written_is_there(repository, tmp_path):
    path = tmp_path / "calls"
    with serving(repository, "--threads", 1, "--record", path) as server:
        sent = requests(server)
        ask(server, sent)
        # A thread of its own writes: the last calls may still be on their way to it.
        seen = read_recording(path)
        server.stop(signal.SIGKILL)
    recording = read_recording(path)
    assert len(seen.calls) <= len(recording.calls) <= len(sent)
    assert {call.request for call in recording.calls} <= set(sent)


def test_a_full_disk_is_logged_once_and_requests_are_served_on(repository, tmp_path):
    path = tmp_path / "calls"
    with serving(repository, "--threads", 1, "--record", path) as server:
        sent = requests(server)
        room = path.stat().st_size + 200
        _, most = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (room, most))
        answers = ask(server, sent)
        code, _, errors = server.stop(signal.SIGTERM)
    assert code == 0
    assert sum(answer is None for answer in answers) == 1  # One request is always refused.
    lines = [line for line in errors.splitlines() if "has ended" in line]
    assert len(lines) == 1
    assert f"recording to {path} has ended: File too large; requests are served" in lines[0]
    recording = read_recording(path)
    assert recording.torn_bytes == 0
    recorded = len(recording.calls)
    counts = f"requests_recorded={recorded} requests_not_recorded={len(sent) - recorded}"
    assert counts in errors.splitlines()[-1]


def test_a_file_that_exists_is_refused_before_anything_is_loaded(tmp_path):
    path = tmp_path / "calls"
    path.write_text("mine")
    ended = run("serve", tmp_path, "--record", path)
    assert ended.returncode == 1
    assert f"ConfigError: record: {path} exists: give a new file" in ended.stderr
    assert path.read_text() == "mine"


def test_a_file_in_a_package_is_refused(repository):
    path = repository / "ranker" / "1" / "calls"
    ended = run("serve", repository, "--record", path)
    assert ended.returncode == 1
    words = f"ConfigError: record: expected a file outside the models of {repository}, got {path}"
    assert words in ended.stderr
    assert not path.exists()


def test_two_models_are_refused_before_anything_is_loaded(tmp_path):
    for model in ("finder", "ranker"):
        (tmp_path / model / "1").mkdir(parents=True)
        (tmp_path / model / "1" / "manifest.json").touch()
    words = (
        "ConfigError: record: a recording (--record) is of one model: expected one (--model NAME), "
        "got 2: finder, ranker"
    )
    ended = run("serve", tmp_path, "--record", tmp_path / "calls")
    assert ended.returncode == 1
    assert words in ended.stderr
    both = ("--model", "ranker", "--model", "finder")
    assert words in run("serve", tmp_path, "--record", tmp_path / "calls", *both).stderr
    assert not (tmp_path / "calls").exists()


def test_a_folder_that_does_not_exist_is_refused(tmp_path):
    ended = run("serve", tmp_path, "--record", tmp_path / "no" / "calls")
    assert ended.returncode == 1
    assert "record: expected a file in a folder that exists" in ended.stderr
