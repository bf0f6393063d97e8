"""Arguments of another kind are refused in one sentence, before anything is sent."""

import numpy as np
import pytest

from embershard.client import Client, Lists, Tls
from embershard.client.channel import check_token, read_token
from embershard.errors import InputError, RequestError
from tests.cases import cases
from tests.client.fake_server import INPUTS, describes, fake_server, scores


@pytest.fixture
def fake():
    with fake_server(get_model=[describes()], predict=[scores(0.5, 1.0)]) as server:
        yield server


@cases(
    "wrong",
    {
        "model-number": {"model": 5},
        "half-a-pair": {"model": "\udc80"},
        "model-none": {"model": None},
        "label-bytes": {"label": b"a"},
        "request-id": {"request_id": 5},
        "2^63": {"version": 1 << 63},
        "version-negative": {"version": -1},
        "version-text": {"version": "1"},
        "version-fraction": {"version": 1.0},
        "version-true": {"version": True},
        "output-number": {"outputs": [1]},
        "outputs": {"outputs": 5},
        "no-outputs": {"outputs": None},
        "timeout-text": {"timeout_seconds": "1"},
        "timeout-true": {"timeout_seconds": True},
    },
)
def test_arguments_of_another_kind_are_refused_by_name(fake, wrong):
    with Client(fake.address) as client, pytest.raises(InputError) as refused:
        client.predict(**{**INPUTS, **wrong})
    assert str(refused.value).startswith(next(iter(wrong)))
    assert fake.predict_calls == fake.get_model_calls == []


@cases(
    ("make", "where"),
    {
        "certificate-alone": (lambda folder: Tls(certificate=folder / "c"), "tls: "),
        "key-alone": (lambda folder: Tls(key=folder / "k"), "tls: "),
        "no-file": (lambda folder: Tls(ca=folder / "ca").texts(), "tls: {folder}/ca: "),
        "no-pem": (lambda folder: Tls(ca=folder / "token").texts(), "tls: {folder}/token: "),
        "no-token": (lambda folder: read_token(folder / "token"), "token: {folder}/token: "),
        "two-words": (lambda folder: read_token(folder / "words"), "token: {folder}/words: "),
        "no-tls": (lambda folder: Client("127.0.0.1:1", tls=True), "tls: "),
        **{
            f"token-{token!r:.9}": (lambda folder, token=token: check_token(token), "token: ")
            for token in ("a b", "ä", "a\nb", "x" * 5000, 5)
        },
    },
)
def test_keys_and_tokens_that_cannot_be_used_are_named(make, where, tmp_path):
    (tmp_path / "token").write_text(" \n")
    (tmp_path / "words").write_text("two words\n")
    with pytest.raises(InputError) as raised:
        make(tmp_path)
    assert str(raised.value).startswith(where.format(folder=tmp_path))


def test_the_end_of_a_line_is_no_part_of_a_token():
    assert check_token("a-token\n") == "a-token"


def test_of_several_tokens_in_a_file_the_first_is_sent(tmp_path):
    (tmp_path / "token").write_text("\nthe-first \nthe-second\n")
    assert read_token(tmp_path / "token") == "the-first"


@pytest.mark.parametrize("wrong", [{"timeout_seconds": "1"}, {"max_attempts": "1"}])
def test_arguments_of_the_client_itself(wrong):
    with pytest.raises(InputError, match=f"{next(iter(wrong))}: expected .*, got '1'"):
        Client("127.0.0.1:1", **wrong)


def test_the_kinds_that_stand_for_one_another_are_taken(fake):
    with Client(fake.address, timeout_seconds=np.float32(30)) as client:
        client.predict(**INPUTS, version=np.int64(7), outputs=("score",), timeout_seconds=30)
    assert (fake.predict_calls[0].version, fake.predict_calls[0].outputs) == (7, ["score"])


@pytest.mark.parametrize("timeout_seconds", [1e10, 1e300, 1 << 2000], ids=["1e10", "1e300", "int"])
def test_a_timeout_of_centuries_is_a_long_one(fake, timeout_seconds):
    with Client(fake.address, timeout_seconds=timeout_seconds) as client:
        assert client.predict(**INPUTS)["score"].tolist() == [0.5, 1.0]


@cases(
    "inputs",
    {
        "dense": {"price": np.ma.array([1.0, 2.0], mask=[0, 1])},
        "ids": {"item": np.ma.array([1, 2], mask=[0, 1])},
        "one-list-of-ids": {"item": [np.ma.array([1, 2], mask=[0, 1]), [3]]},
        "one-id": {"item": [np.ma.masked, 3]},
        "flat-ids": {"item": Lists([1, 1], np.ma.array([1, 2], mask=[0, 1]))},
    },
)
def test_values_under_a_mask_are_refused(fake, inputs):
    dense = {"price": inputs.get("price", [1, 2])}
    sparse = {"item": inputs.get("item", [3, 4])}
    with (
        Client(fake.address) as client,
        pytest.raises(RequestError, match=r"expected values without a mask, got masked ones$"),
    ):
        client.predict(dense=dense, sparse=sparse)
    assert fake.predict_calls == []


def test_a_masked_array_without_holes_is_an_array(fake):
    with Client(fake.address) as client:
        client.predict(dense={"price": np.ma.array([1.0, 2.0], mask=[0, 0])})
    assert fake.predict_calls[0].num_examples == 2
