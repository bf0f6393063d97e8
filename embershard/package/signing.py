"""Signatures: ``<repository>/<model>/<version>.sig``, Ed25519 (RFC 8032) over ``manifest.sha256``,
from which every byte of a package follows. docs/security.md says what they are worth."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from embershard.errors import ConfigError
from embershard.package.folder_checks import read_manifest
from embershard.package.refusal import MANIFEST_DIGEST, refusal
from embershard.package.sealing import replace_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

SIGNATURE_BYTES: Final = 64

NEEDED: Final = "signatures need the package cryptography: pip install 'embershard[sign]'"
END: Final = b"-----END PUBLIC KEY-----"


def signature_file(package: Path) -> Path:
    """Where the signature of a package lies: beside its folder, in which nothing may change."""
    return package.with_name(f"{package.name}.sig")


def sign_package(package: str | Path, key: str | Path) -> Path:
    """Writes the signature of a package, whole or not at all; one that is there is replaced.

    Args:
        package: folder of one version. Its manifest is checked; `verify_package` checks the rest.
        key: a PEM file with a private key (Ed25519) that needs no password.

    Returns:
        The file.

    Raises:
        PackageError: the manifest is damaged.
        ConfigError: no such key; the Python package cryptography is missing.
    """
    folder = Path(package).absolute()
    private = _private_key(Path(key))
    read_manifest(folder)
    return write_signature(folder, private.sign((folder / MANIFEST_DIGEST).read_bytes()))


def check_signature(package: str | Path, trusted: str | Path) -> str:
    """Compares the signature of a package with its manifest's digest, as a server does.

    Args:
        package: folder of one version.
        trusted: a PEM file of public keys (Ed25519), of which any will do.

    Returns:
        Fingerprint of the key that made the signature: ``SHA256:`` and the digest, in hex, of its
        SubjectPublicKeyInfo in DER, as ``openssl pkey -pubin -outform DER | sha256sum`` has it.

    Raises:
        PackageError: no signature, or not by one of the keys.
        ConfigError: no such keys; the Python package cryptography is missing.
    """
    folder = Path(package).absolute()
    file = signature_file(folder)
    signature = file.read_bytes() if file.is_file() else None
    signed = (folder / MANIFEST_DIGEST).read_bytes()
    return check_signed(file.name, signature, signed, Path(trusted))


def check_signed(name: str, signature: bytes | None, signed: bytes, trusted: Path) -> str:
    """`check_signature` of bytes at hand: of the file ``name`` (None: there is none), and of
    ``manifest.sha256``."""
    keys = _public_keys(trusted)
    if signature is None:
        raise refusal(name, "file", expected=f"a signature by a key in {trusted}", got="none")
    if len(signature) != SIGNATURE_BYTES:
        raise refusal(name, "bytes", expected=SIGNATURE_BYTES, got=len(signature))
    for key in keys:
        if _has_signed(key, signature, signed):
            return _fingerprint(key)
    expected = f"one of {MANIFEST_DIGEST} by a key in {trusted}"
    raise refusal(name, "signature", expected=expected, got="another")


def write_signature(package: Path, signature: bytes) -> Path:
    """Puts a signature where it belongs, whole or not at all."""
    file = signature_file(package)
    replace_file(file, signature)
    return file


def _has_signed(key: Ed25519PublicKey, signature: bytes, signed: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signature, signed)
    except InvalidSignature:
        return False
    return True


def _fingerprint(key: Ed25519PublicKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"SHA256:{hashlib.sha256(der).hexdigest()}"


def _private_key(path: Path) -> Ed25519PrivateKey:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise ConfigError(NEEDED) from error
    data = _read(path)
    try:
        key = load_pem_private_key(data, password=None)
    except (TypeError, ValueError) as error:
        raise _no_private_key(path) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _no_private_key(path)
    return key


def _no_private_key(path: Path) -> ConfigError:
    return ConfigError(f"{path}: expected a PEM private key (Ed25519) without a password")


def _public_keys(path: Path) -> list[Ed25519PublicKey]:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError as error:
        raise ConfigError(NEEDED) from error
    *blocks, rest = _read(path).split(END)
    try:
        found = [load_pem_public_key(block.lstrip() + END + b"\n") for block in blocks]
    except ValueError:
        found = []
    keys = [key for key in found if isinstance(key, Ed25519PublicKey)]
    if not keys or len(keys) < len(found) or b"-----BEGIN" in rest:
        raise ConfigError(f"{path}: expected public keys in PEM, at least one, all Ed25519")
    return keys


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
