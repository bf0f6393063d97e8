"""TLS: who connects and who does not, while others go on; certificates that change."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from embershard.client import AsyncClient, Client, Tls
from embershard.errors import ConfigError, UnavailableError
from embershard.serving import ServerOptions
from tests.cases import cases
from tests.cli.running import run
from tests.serving.asking import named, outputs_of, random_request
from tests.serving.certificates import Authority, replace
from tests.serving.serve import serve

REQUEST = {"dense": {"age": 1, "price": [1, 2]}}


@pytest.fixture(scope="module")
def authority():
    return Authority("ours")


@pytest.fixture(scope="module")
def stranger():
    return Authority("another")


@pytest.fixture
def files(authority, tmp_path):
    """The server's certificate and key."""
    return authority.sign("server").write(tmp_path, "server")


@pytest.fixture
def ca(authority, tmp_path):
    return authority.write(tmp_path, "ca")


def tls_server(repository, files, **options):
    certificate, key = files
    return serve(repository, tls_certificate=certificate, tls_key=key, **options)


def connected(server, *, patience=60, **tls):
    return Client(server.address, tls=Tls(**tls), timeout_seconds=patience, max_attempts=1)


def check_refused(client):
    with client, pytest.raises(UnavailableError):
        client.predict("ranker", **REQUEST)


def test_answers_are_those_without_tls(repository, files, ca, client):
    expected = client.predict("ranker", **REQUEST)["score"]
    with tls_server(repository, files) as server, connected(server, ca=ca) as secure:
        assert (secure.predict("ranker", **REQUEST)["score"] == expected).all()
        with secure.stream("ranker") as stream:
            assert (stream.predict(**REQUEST).result()["score"] == expected).all()
        with connected(server, ca=ca, server_name="localhost") as by_name:
            assert (by_name.predict("ranker", **REQUEST)["score"] == expected).all()

        async def ask():
            async with AsyncClient(server.address, tls=Tls(ca=ca), timeout_seconds=60) as awaited:
                return await awaited.predict("ranker", **REQUEST)

        assert (asyncio.run(ask())["score"] == expected).all()


def test_any_client_of_grpc_connects(repository, files, authority):
    request = random_request(3)
    credentials = grpc.ssl_channel_credentials(authority.certificate)
    with (
        tls_server(repository, files) as server,
        grpc.secure_channel(server.address, credentials) as channel,
    ):
        predict = channel.unary_unary("/embershard.v1.Predictor/Predict")
        answer = predict(named(request).SerializeToString(), timeout=60)
    assert outputs_of(answer)["score"].shape == (3,)


def test_clients_without_trust_stay_out_while_others_go_on(
    repository, files, ca, stranger, tmp_path
):
    with tls_server(repository, files) as server, connected(server, ca=ca) as good:
        good.predict("ranker", **REQUEST)
        check_refused(connected(server, ca=stranger.write(tmp_path, "stranger")))
        check_refused(connected(server, ca=ca, server_name="elsewhere.example"))
        check_refused(Client(server.address, timeout_seconds=60, max_attempts=1))  # No TLS.
        good.predict("ranker", **REQUEST)
        assert (
            server.metrics().total("embershard_unauthenticated_calls") == 0
        )  # No call came through.


def test_a_client_refuses_a_server_whose_certificate_has_expired(authority, ca):
    expired = authority.sign("server", days=-1)
    credentials = grpc.ssl_server_credentials([(expired.key, expired.certificate)])
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        client = Client(f"127.0.0.1:{port}", tls=Tls(ca=ca), timeout_seconds=60, max_attempts=1)
        with client, pytest.raises(UnavailableError) as refused:
            client.get_model()
        assert "CERTIFICATE_VERIFY_FAILED" in str(refused.value)
    finally:
        server.stop(None).wait()


def test_clients_without_our_certificate_stay_out(
    repository, files, ca, authority, stranger, tmp_path
):
    def with_certificate(server, signed, name):
        certificate, key = signed.write(tmp_path, name)
        return connected(server, ca=ca, certificate=certificate, key=key)

    with (
        tls_server(repository, files, tls_client_ca=ca) as server,
        with_certificate(server, authority.sign("client"), "good") as good,
    ):
        good.predict("ranker", **REQUEST)
        check_refused(connected(server, ca=ca))
        check_refused(with_certificate(server, stranger.sign("client"), "of-another"))
        check_refused(with_certificate(server, authority.sign("client", days=-1), "expired"))
        good.predict("ranker", **REQUEST)
        with with_certificate(server, authority.sign("client"), "late") as late:
            late.predict("ranker", **REQUEST)


def test_a_new_certificate_holds_for_the_next_connection(
    repository, files, ca, authority, stranger, tmp_path
):
    new_ca = stranger.write(tmp_path, "new-ca")
    with tls_server(repository, files) as server, connected(server, ca=ca) as before:
        before.predict("ranker", **REQUEST)
        renewed = stranger.sign("server", days=20)
        renewed.write(tmp_path, "server")
        with connected(server, ca=new_ca) as after:
            after.predict("ranker", **REQUEST)
        check_refused(connected(server, ca=ca))
        before.predict("ranker", **REQUEST)  # Its connection goes on.
        expires = server.metrics().total("embershard_certificate_expiry_time_seconds")
        assert expires == renewed.expires.timestamp()


@cases(
    ("part", "words"),
    {
        "key-first": ("key", "server.key: expected the key of the certificate in"),
        "expired": ("expired", "server.pem: expected a certificate that is valid"),
        "gone": ("gone", "server.pem: No such file or directory"),
        "half-written": ("half", "server.pem: expected a PEM certificate"),
    },
)
def test_unusable_files_leave_the_certificate_as_it_was(
    repository, files, ca, authority, tmp_path, caplog, part, words
):
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    renewed = authority.sign("server", days=20)
    with tls_server(repository, files) as server:
        before = server.metrics().total("embershard_certificate_expiry_time_seconds")
        if part == "key":
            replace(key, renewed.key)
        elif part == "expired":
            authority.sign("server", days=-1).write(tmp_path, "server")
        elif part == "gone":
            certificate.unlink()
        else:
            replace(certificate, renewed.certificate[:100])
        with caplog.at_level(logging.ERROR):
            for _ in range(2):
                with connected(server, ca=ca) as client:
                    client.predict("ranker", **REQUEST)
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == 1  # One line for each change.
        assert words in said[0]
        assert said[0].endswith("; the certificate before it holds on")
        assert server.metrics().total("embershard_certificate_expiry_time_seconds") == before

        renewed.write(tmp_path, "server")  # The certificate fits the key again.
        with connected(server, ca=ca) as client:
            client.predict("ranker", **REQUEST)
        after = server.metrics().total("embershard_certificate_expiry_time_seconds")
        assert after == renewed.expires.timestamp()


@cases(
    ("certificate", "key", "ca", "words"),
    {
        "no-certificate": ("none.pem", "server.key", "", "none.pem: No such file"),
        "no-key": ("server.pem", "server.pem", "", "PEM key without a password"),
        "other-key": ("server.pem", "other.key", "", "other.key: expected the key"),
        "expired": ("old.pem", "old.key", "", "old.pem: .* has expired"),
        "no-ca": ("server.pem", "server.key", "other.key", "PEM certificates"),
        "folder-as-ca": ("server.pem", "server.key", "..", "expected a file"),
    },
)
def test_files_that_cannot_be_used_are_refused_at_the_start(
    repository, files, authority, tmp_path, certificate, key, ca, words
):
    authority.sign("other").write(tmp_path, "other")
    authority.sign("old", days=-1).write(tmp_path, "old")
    paths = str(tmp_path / certificate), str(tmp_path / key)
    with pytest.raises(ConfigError, match=words):
        tls_server(repository, paths, tls_client_ca=str(tmp_path / ca) if ca else None)


@pytest.mark.parametrize(
    "options",
    [{"tls_certificate": "a"}, {"tls_key": "a"}, {"tls_client_ca": "a"}],
    ids=lambda options: next(iter(options)),
)
def test_half_of_what_tls_needs_is_refused(options):
    with pytest.raises(ConfigError, match="expected"):
        ServerOptions(**options)


def refusal(client):
    with client, pytest.raises(UnavailableError) as refused:
        client.get_model("ranker")
    return str(refused.value)


def test_a_client_without_tls_is_asked_if_the_server_uses_it(repository, files):
    with tls_server(repository, files) as server:
        words = refusal(Client(server.address, timeout_seconds=60, max_attempts=1))
    assert words.endswith(
        "; does the server use TLS? This client does not (--tls-ca, Client(tls=))"
    )


def test_a_client_with_tls_is_asked_whether_the_server_uses_none(server, ca):
    words = refusal(connected(server, ca=ca))
    assert words.endswith(
        "; does the server use TLS on this port? This client does (--tls..., Client(tls=))"
    )


def test_commands_show_no_log_line_of_grpc(server, ca):
    ended = run("predict", server.address, "--tls-ca", ca)
    (line,) = ended.stderr.splitlines()
    assert line.startswith("embershard predict: UnavailableError: ")
    assert ended.returncode == 1
