"""Options are valid once built."""

from dataclasses import fields

import pytest

from embershard.errors import ConfigError
from embershard.serving import ServerOptions
from embershard.serving.options import native_keywords
from embershard.serving.server_process import ProcessOptions
from tests.cases import cases

PATHS = [
    "control",
    "record",
    "tls_certificate",
    "tls_key",
    "tls_client_ca",
    "token_file",
    "trusted_key",
]


def test_the_defaults_are_those_of_the_command():
    options = ServerOptions()
    assert (options.host, options.port, options.default_timeout_ms) == ("127.0.0.1", 50051, 1000)


@cases(
    ("option", "value"),
    {
        "half-a-thread": ("threads", 1.5),
        "text": ("port", "80"),
        "none": ("keepalive_seconds", None),
        **{f"empty-{path}": (path, "") for path in (*PATHS, "host")},
    },
)
def test_a_value_of_another_type_is_refused_by_name(option, value):
    with pytest.raises(ConfigError) as refused:
        ServerOptions(**{option: value})
    assert str(refused.value).startswith(f"{option}: ")


def test_the_extension_is_given_every_option_but_pythons_own():
    """By its name: the extension refuses one that it does not know, and one that is missing."""
    keywords = native_keywords(ServerOptions(threads=3, tables="resident"))
    names = {field.name for field in fields(ServerOptions)}
    assert names - keywords.keys() == {
        "control",
        "drain_timeout_seconds",
        "token_without_tls",
        "traffic",
    }
    assert (keywords["threads"], keywords["tables"]) == (3, "resident")


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
        ("memory_budget", [-1, 2**62]),
        ("load_mb_per_second", [-1, float("nan"), float("inf")]),
        ("shadow_share", [-1, 1.5, float("nan")]),
        ("shadow_time", [-1, 0, 1.5, float("nan")]),
        ("record_requests", [0, 2**31]),
        ("record_share", [0, -1, 1.5, float("nan")]),
        ("slow_request_ms", [-1, float("nan"), float("inf")]),
        ("drain_timeout_seconds", [-1, float("nan"), float("inf")]),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(option, values):
    for value in values:
        with pytest.raises(ConfigError) as refused:
            ServerOptions(**{option: value})
        assert str(refused.value).startswith(f"{option}: ")


@pytest.mark.parametrize(
    "text",
    ["beta=5", "shadow=5", "=5", " canary=5", "canary", 5, "canary=5,", "canary=5,canary=6"]
    + [f"canary={number}" for number in ("", "101", "100.1", "-1", "+5", "nan", "5%", "5_0")]
    + [f"canary={number}" for number in ("1e1", "5=6", "५")],
)
def test_a_traffic_split_of_another_form_is_refused(text):
    with pytest.raises(ConfigError) as refused:
        ServerOptions(traffic=text)
    assert str(refused.value).startswith("traffic: ")


@pytest.mark.parametrize(
    ("text", "label", "share"),
    [("", "", 0), ("canary=5", "canary", 0.05), ("stable=0.5", "stable", 0.005)],
)
def test_the_extension_is_given_the_parts_of_a_traffic_split(text, label, share):
    keywords = native_keywords(ServerOptions(traffic=text))
    assert (keywords["traffic_label"], keywords["traffic_share"]) == (label, share)


@cases(
    ("option", "value", "needed"),
    {
        "record_share": ("record_share", 0.1, {"record": "calls"}),
        "record_requests": ("record_requests", 20, {"record": "calls"}),
        "shadow_time": ("shadow_time", 0.5, {"shadow_share": 0.1}),
        "token_without_tls": ("token_without_tls", True, {"token_file": "token"}),
        "behind_proxy": ("behind_proxy", True, {"token_file": "token"}),
    },
)
def test_an_option_without_the_one_that_it_needs_is_refused(option, value, needed):
    (name,) = needed
    with pytest.raises(ConfigError) as refused:
        ServerOptions(**{option: value})
    assert str(refused.value).startswith(f"{option}: expected {name} as well")
    assert getattr(ServerOptions(**needed, **{option: value}), option) == value


def test_an_address_of_metrics_needs_their_port(tmp_path):
    with pytest.raises(ConfigError) as refused:
        ProcessOptions(repository=tmp_path, metrics_host="0.0.0.0")
    assert str(refused.value).startswith("metrics_host: expected metrics_port as well")
    ProcessOptions(repository=tmp_path, metrics_host="0.0.0.0", metrics_port=0)


def test_the_extension_gets_empty_texts_for_missing_paths():
    keywords = native_keywords(ServerOptions())
    assert [keywords[name] for name in PATHS if name != "control"] == [""] * 6
