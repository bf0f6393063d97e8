"""`embershard serve` with a metrics port and a log."""

import json
import signal
import socket
import urllib.request
from contextlib import ExitStack

import grpc

from tests.cli.running import run, serving
from tests.serving.asking import Asked, named

REQUEST = {"dense": {"age": 1, "price": [1, 2]}}
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def fetched(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


def test_the_second_line_says_where_metrics_are(repository):
    with serving(repository, "--threads", 1, "--metrics-port", 0) as server:
        assert server.line.startswith("serving ranker 1 on 127.0.0.1:")
        url = server.metrics
        assert "embershard_requests_total" in fetched(f"{url}metrics")
        assert "<!doctype html>" in fetched(url)
        assert json.loads(fetched(f"{url}status.json"))["state"] == "serving"
        code, _, errors = server.stop(signal.SIGTERM)
    assert code == 0
    (listening,) = [line for line in errors.splitlines() if " listening " in line]
    assert f" address={server.address} " in listening
    assert listening.endswith(f" metrics={url}")


def test_the_log_says_by_which_plan_it_serves(repository):
    with serving(repository, "--threads", 1, "--plan", "2xcpu", "--tables", "resident") as server:
        _, _, errors = server.stop(signal.SIGTERM)
    (listening,) = [line for line in errors.splitlines() if " listening " in line]
    assert listening.endswith(" plan=2xcpu tables=resident threads=1")


def refused(*arguments):
    ended = run("serve", *arguments)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.count("\n") == 1
    return ended.stderr


def test_a_taken_metrics_port_is_refused_before_any_load(repository):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = refused(repository, "--port", 0, "--metrics-port", port)
    assert words == (
        f"embershard serve: UnavailableError: metrics: cannot listen on 127.0.0.1:{port}: "
        "Address already in use; --metrics-port 0 picks a free port\n"
    )


def test_a_slow_request_is_logged_with_who_asked_and_what(repository):
    with serving(repository, "--threads", 1, "--slow-ms", "0.001", "--log-json") as server:
        with grpc.insecure_channel(server.address) as channel:
            message = named(Asked(num_examples=2, dense={"age": [1], "price": [1, 2]}))
            message.request_id = "a\nb"
            predict = channel.unary_unary("/embershard.v1.Predictor/Predict")
            predict(message.SerializeToString(), metadata=[("traceparent", TRACE)], timeout=60)
        code, _, errors = server.stop(signal.SIGTERM)
    assert code == 0
    events = [json.loads(line) for line in errors.splitlines()]
    names = [event["event"] for event in events]
    assert names[:2] == ["start", "listening"]
    assert set(names[2:]) == {"slow_request", "draining", "stopped"}
    assert events[-1]["requests_answered"] == 1
    (slow,) = [event for event in events if event["event"] == "slow_request"]
    assert (slow["code"], slow["examples"], slow["request_id"]) == ("OK", 2, "a\nb")
    assert (slow["traceparent"], slow["bytes"]) == (TRACE, message.ByteSize())
    assert slow["peer"].startswith("ipv4:127.0.0.1:")
    assert slow["total_us"] >= slow["queue_us"] + slow["lookup_us"] + slow["dense_us"] > 0


def test_http_clients_that_stall_do_not_hold_up_the_end(repository):
    with serving(repository, "--threads", 1, "--metrics-port", 0) as server, ExitStack() as open_:
        host, port = server.metrics.removeprefix("http://").removesuffix("/").split(":")
        for said in (b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"):
            client = open_.enter_context(socket.create_connection((host, int(port)), timeout=60))
            client.sendall(said)
        assert fetched(f"{server.metrics}healthz") == "serving\n"  # So the others are accepted.
        code, _, errors = server.stop(signal.SIGTERM)
        assert code == 0, errors
