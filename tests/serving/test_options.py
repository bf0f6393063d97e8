"""Options are valid once built."""

import pytest

from embershard.errors import ConfigError
from embershard.serving import ServerOptions


def test_the_defaults_are_those_of_the_command():
    options = ServerOptions()
    assert (options.host, options.port, options.default_timeout_ms) == ("127.0.0.1", 50051, 1000)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("port", [-1, 65536]),
        ("tables", ["ram", ""]),
        ("threads", [-1, 1025]),
        ("default_timeout_ms", [0, -1, 2**31]),
        ("sample_tolerance", [-1e-9, float("nan"), float("inf")]),
        ("max_request_examples", [-1, 2**31]),
        ("max_request_ids", [-1, 2**31]),
        ("max_batch_examples", [-1, 2**31]),
        ("max_batch_ids", [-1, 2**31]),
        ("merge_examples", [-1, 2**31]),
        ("max_queued_examples", [-1, 2**31]),
        ("max_queued_ids", [-1, 2**31]),
        ("max_queued_bytes", [0, 2**31]),
        ("max_inline_us", [-1, 2**31]),
        ("max_message_bytes", [0, 2**31]),
        ("max_connections", [-1, 2**31]),
        ("max_connection_calls", [0, 2**31]),
        ("stream_in_flight", [0, 2**31]),
        ("connection_idle_seconds", [-1, float("nan"), float("inf")]),
        ("connection_age_seconds", [-1, float("nan"), float("inf")]),
        ("keepalive_seconds", [-1, float("nan"), float("inf")]),
        ("min_ping_seconds", [-1, float("nan"), float("inf")]),
        ("record_requests", [0, 2**31]),
        ("record_share", [0, -1, 1.5, float("nan")]),
        ("slow_request_ms", [-1, float("nan"), float("inf")]),
        ("drain_timeout_seconds", [-1, float("nan"), float("inf")]),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(option, values):
    for value in values:
        with pytest.raises(ConfigError, match=f"^{option}: expected .*, got '?{value}'?$"):
            ServerOptions(**{option: value})
