"""The client against a server that answers from a script."""

import threading

import grpc
import numpy as np
import pytest

from embershard.client import Client
from embershard.errors import (
    InputError,
    NotFoundError,
    RequestError,
    UnavailableError,
)
from tests.client.fake_server import INPUTS, ask, describes, fails, fake_server, gives, scores

Code = grpc.StatusCode
FOR_EVER = 3600


def test_a_prediction_is_a_mapping_of_outputs_with_what_answered():
    with fake_server(predict=[scores(0.5, -2.0, request_id="r1")]) as fake:
        answer = ask(fake)
    assert dict(answer).keys() == {"score"}
    assert answer["score"].tolist() == [0.5, -2.0]
    assert answer["score"].dtype == np.float32
    assert (answer.model, answer.version, answer.request_id) == ("ranker", 7, "r1")


def test_scores_are_the_callers_to_change():
    with fake_server(predict=[scores(0.5)]) as fake:
        answer = ask(fake)["score"]
    answer[0] = 1
    assert answer.tolist() == [1]


def test_the_request_names_what_is_asked_for():
    with fake_server() as fake, Client(fake.address, timeout_seconds=30) as client:
        client.predict("m", **INPUTS, version=3, label="l", request_id="id", outputs=["score"])
    (request,) = fake.predict_calls
    assert (request.model, request.version, request.label) == ("m", 3, "l")
    assert (request.request_id, list(request.outputs), request.num_examples) == ("id", ["score"], 2)
    assert (len(request.dense), len(request.sparse)) == (0, 0)


def test_the_schema_is_asked_for_once():
    with fake_server() as fake, Client(fake.address, timeout_seconds=30) as client:
        for _ in range(3):
            client.predict("ranker", **INPUTS)
    assert (len(fake.get_model_calls), len(fake.predict_calls)) == (1, 3)


def test_each_model_version_and_label_has_a_schema_of_its_own():
    with fake_server() as fake, Client(fake.address, timeout_seconds=30) as client:
        for _ in range(2):
            client.predict("ranker", **INPUTS)
            client.predict("ranker", **INPUTS, version=1)
            client.predict("ranker", **INPUTS, label="canary")
    results = [(call.model, call.version, call.label) for call in fake.get_model_calls]
    assert results == [("ranker", 0, ""), ("ranker", 1, ""), ("ranker", 0, "canary")]


def test_a_stale_schema_is_fetched_and_the_request_sent_again():
    stale = fails(Code.FAILED_PRECONDITION, "stale")
    with (
        fake_server(
            get_model=[describes(1), describes(2)], predict=[scores(0.5), stale, scores(1.0)]
        ) as fake,
        Client(fake.address, timeout_seconds=30) as client,
    ):
        client.predict("ranker", **INPUTS)
        answer = client.predict("ranker", **INPUTS)
    assert answer["score"].tolist() == [1.0]
    assert [call.packed.schema for call in fake.predict_calls] == [1, 1, 2]
    assert len(fake.get_model_calls) == 2


def test_a_schema_that_stays_stale_is_an_error():
    stale = fails(Code.FAILED_PRECONDITION, "stale")
    with (
        fake_server(predict=[scores(0.5), stale]) as fake,
        Client(fake.address, timeout_seconds=30) as client,
    ):
        client.predict("ranker", **INPUTS)
        with pytest.raises(RequestError, match="stale"):
            client.predict("ranker", **INPUTS)
    assert (len(fake.predict_calls), len(fake.get_model_calls)) == (3, 2)


def test_a_request_that_an_old_schema_forbids_gets_a_new_one():
    grown = describes(2)(None)
    grown.inputs.add(name="device", scope=1).sparse.SetInParent()
    with (
        fake_server(get_model=[describes(1), gives(grown)]) as fake,
        Client(fake.address, timeout_seconds=30) as client,
    ):
        client.predict("ranker", **INPUTS)
        sparse = {**INPUTS["sparse"], "device": [[5], [6]]}
        client.predict("ranker", dense=INPUTS["dense"], sparse=sparse)
    assert [call.packed.schema for call in fake.predict_calls] == [1, 2]


def test_a_refused_request_is_never_sent():
    with (
        fake_server() as fake,
        Client(fake.address, timeout_seconds=30) as client,
        pytest.raises(RequestError, match="feature 'itm': not a sparse input of model 'ranker'"),
    ):
        client.predict("ranker", dense={"price": [1]}, sparse={"itm": [[3]]})
    assert fake.predict_calls == []


@pytest.mark.parametrize(("priority", "sent"), [("interactive", 0), ("background", 2)])
def test_a_request_carries_its_priority(priority, sent):
    with fake_server(predict=[scores(1.0)]) as fake, Client(fake.address) as client:
        client.predict(dense={"price": [1.0]}, priority=priority)
    assert fake.predict_calls[0].priority == sent


@pytest.mark.parametrize("priority", ["urgent", "", None, 2])
def test_an_unknown_priority_is_refused_before_anything_is_sent(priority):
    with (
        fake_server(predict=[]) as fake,
        Client(fake.address) as client,
        pytest.raises(InputError, match="priority: expected interactive or background, got"),
    ):
        client.predict(dense={"price": [1.0]}, priority=priority)
    assert fake.predict_calls == []


def test_closing_ends_calls_under_way():
    waiting, released = threading.Event(), threading.Event()

    def late(context):
        waiting.set()
        released.wait(FOR_EVER)
        return describes()(context)

    caught = []

    def call(client):
        try:
            client.get_model(timeout_seconds=30)
        except UnavailableError as error:
            caught.append(error)

    with fake_server(get_model=[late]) as fake:
        client = Client(fake.address)
        thread = threading.Thread(target=call, args=(client,))
        thread.start()
        try:
            assert waiting.wait(30)
            client.close()
            thread.join(30)
        finally:
            released.set()
    assert len(caught) == 1


def test_a_closed_client_refuses_calls():
    client = Client("127.0.0.1:1")
    client.close()
    client.close()
    with pytest.raises(InputError, match="expected an open client, got a closed one"):
        client.get_model()


@pytest.mark.parametrize("timeout_seconds", [0, -1, float("nan"), float("inf")])
def test_timeouts_are_above_zero_and_finite(timeout_seconds):
    message = f"timeout_seconds: expected more than 0.*, got {timeout_seconds}"
    with pytest.raises(InputError, match=message):
        Client("127.0.0.1:1", timeout_seconds=timeout_seconds)
    with Client("127.0.0.1:1") as client, pytest.raises(InputError, match=message):
        client.get_model(timeout_seconds=timeout_seconds)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "http://127.0.0.1:1", ":1", "h:", "h:0", "h:65536", "::1:1", "h:1 ", "", 1, None],
    ids=repr,
)
def test_an_address_of_another_form_is_refused(address):
    with pytest.raises(InputError) as caught:
        Client(address)
    words = "address: expected HOST:PORT, as in 127.0.0.1:50051 or [::1]:50051, got "
    assert str(caught.value) == words + repr(address)


@pytest.mark.parametrize("address", ["ranker:1", "ranker-1.svc.local:65535", "[::1]:50051"])
def test_names_and_ipv6_are_addresses(address):
    Client(address).close()


def test_an_unknown_output_is_refused_with_the_known_ones():
    with fake_server() as fake:
        answer = ask(fake)
    with pytest.raises(NotFoundError) as caught:
        answer["scores"]
    assert str(caught.value) == "output 'scores': expected an output of the answer, 'score'"
    assert isinstance(caught.value, KeyError)
    assert (answer.get("scores"), "scores" in answer) == (None, False)


def test_outputs_are_a_list_of_names():
    with Client("127.0.0.1:1") as client, pytest.raises(InputError, match="the string 'score'"):
        client.predict("ranker", **INPUTS, outputs="score")
