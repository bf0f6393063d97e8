"""Signatures equal those of OpenSSL, and packages without a trusted signature are refused."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from embershard.errors import ConfigError, PackageError, UnavailableError
from embershard.package import check_signature, sign_package, signature
from tests.cases import cases, refused
from tests.cli.running import ROOT, run
from tests.package.keys import private_pem, public_pem, write_keys

GOLDEN = Path(__file__).parents[1] / "golden" / "format_0" / "tiny" / "1"


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "tiny" / "1"
    shutil.copytree(GOLDEN, folder)
    return folder


@pytest.fixture
def keys(tmp_path):
    return write_keys(tmp_path)


def test_a_signature_is_next_to_the_package_and_of_its_digest(package, keys):
    file = sign_package(package, keys.private)
    assert file == package.parent / "1.sig"
    assert sorted(path.name for path in package.parent.iterdir()) == ["1", "1.sig"]
    # Raises an exception if the signature is wrong.
    keys.key.public_key().verify(file.read_bytes(), (package / "manifest.sha256").read_bytes())
    check_signature(package, keys.public)


def test_signatures_of_openssl_are_the_same(package, keys, tmp_path):
    by_openssl = tmp_path / "by-openssl.sig"
    signed = package / "manifest.sha256"
    command = ["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", str(keys.private)]
    files = ["-in", str(signed), "-out", str(by_openssl)]
    subprocess.run([*command, *files], check=True, timeout=60)
    # Ed25519 signatures are deterministic.
    assert by_openssl.read_bytes() == sign_package(package, keys.private).read_bytes()


def test_the_fingerprint_of_the_key_that_signed_is_returned(package, keys, tmp_path):
    other = write_keys(tmp_path, "other")
    both = tmp_path / "both.pem"
    both.write_bytes(other.public.read_bytes() + keys.public.read_bytes())
    sign_package(package, keys.private)
    assert check_signature(package, both) == fingerprint_by_openssl(keys.public)
    sign_package(package, other.private)
    assert check_signature(package, both) == fingerprint_by_openssl(other.public)


def fingerprint_by_openssl(public):
    command = ["openssl", "pkey", "-pubin", "-in", str(public), "-outform", "DER"]
    der = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
    digest = subprocess.run(["sha256sum"], input=der, check=True, capture_output=True, timeout=60)
    return "SHA256:" + digest.stdout.decode().split()[0]


def test_what_is_not_signed_by_a_trusted_key_is_refused(package, keys, tmp_path):
    with refused(PackageError, "1.sig: file", "got none"):
        check_signature(package, keys.public)
    stranger = write_keys(tmp_path, "stranger")
    file = sign_package(package, stranger.private)
    with refused(PackageError, "1.sig: signature", "manifest.sha256"):
        check_signature(package, keys.public)
    file.write_bytes(b"short")
    with refused(PackageError, "1.sig: bytes", "got 5"):
        check_signature(package, keys.public)


def test_a_package_that_has_changed_needs_a_new_signature(package, keys):
    sign_package(package, keys.private)
    line = (package / "manifest.sha256").read_text()
    (package / "manifest.sha256").write_text("0" * 64 + line[64:])
    with refused(PackageError, "signature", "manifest.sha256"):
        check_signature(package, keys.public)
    with refused(PackageError, "manifest.json: sha256"):
        sign_package(package, keys.private)  # A damaged package is not signed.


OTHER = ec.generate_private_key(ec.SECP256R1())


@cases(
    "data_of",
    {
        "none": None,
        "another-kind": lambda keys: private_pem(OTHER),
        "password": lambda keys: private_pem(
            keys.key, serialization.BestAvailableEncryption(b"secret")
        ),
        "public": lambda keys: keys.public.read_bytes(),
        "no-pem": lambda keys: b"no key",
        "empty": lambda keys: b"",
    },
)
def test_what_is_no_private_key_is_refused(package, keys, tmp_path, data_of):
    if data_of:
        (tmp_path / "some.key").write_bytes(data_of(keys))
    with refused(ConfigError, "some.key: "):
        sign_package(package, tmp_path / "some.key")
    assert not (package.parent / "1.sig").exists()


@cases(
    "data_of",
    {
        "another-kind": lambda keys: public_pem(OTHER),
        "both-kinds": lambda keys: keys.public.read_bytes() + public_pem(OTHER),
        "private": lambda keys: keys.private.read_bytes(),
        "half": lambda keys: keys.public.read_bytes() + keys.public.read_bytes()[:40],
        "empty": lambda keys: b"",
    },
)
def test_what_are_no_public_keys_is_refused(package, keys, tmp_path, data_of):
    sign_package(package, keys.private)
    (tmp_path / "trusted.pem").write_bytes(data_of(keys))
    with refused(ConfigError, "trusted.pem: expected only Ed25519 public keys"):
        check_signature(package, tmp_path / "trusted.pem")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS], ids=errno.errorcode.get)
def test_a_signature_that_cannot_be_written_is_named(package, keys, monkeypatch, number):
    def fail(file, data):
        raise OSError(number, os.strerror(number), f"{file}.scratch")

    monkeypatch.setattr(signature, "replace_file", fail)
    with refused(UnavailableError, f"{package}.sig", os.strerror(number)):
        sign_package(package, keys.private)


def test_the_commands_sign_and_verify(package, keys, tmp_path):
    unsigned = run("verify", package, "--trusted-key", keys.public)
    assert unsigned.returncode == 1
    assert "PackageError: 1.sig: file: expected a signature" in unsigned.stderr
    signed = run("sign", package, "--key", keys.private)
    assert signed.stdout == f"signed: {package.parent / '1.sig'}\n"
    verified = run("verify", package, "--trusted-key", keys.public)
    signer = f"signed by the key {fingerprint_by_openssl(keys.public)} in {keys.public}"
    assert verified.stdout.endswith(f" bytes, good, {signer}\n")
    assert run("verify", package).returncode == 0
    other = write_keys(tmp_path, "other")
    assert run("verify", package, "--trusted-key", other.public).returncode == 1


def test_without_cryptography_it_says_what_is_missing(package, keys):
    program = (
        "import sys\n"
        "sys.modules['cryptography'] = None\n"
        "from embershard.cli import main\n"
        f"sys.exit(main(['sign', {str(package)!r}, '--key', {str(keys.private)!r}]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "pip install 'embershard[sign]'" in done.stderr
