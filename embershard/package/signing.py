"""Signatures: ``<repository>/<model>/<version>.sig``, Ed25519 (RFC 8032) over ``manifest.sha256``,
from which every byte of a package follows. docs/security.md says what they are worth."""

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from embershard.errors import ConfigError, UnavailableError
from embershard.package.folder_checks import read_manifest
from embershard.package.sealing import replace_file
from embershard.package.validation import MANIFEST_DIGEST, refusal

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
        UnavailableError: the file cannot be written: a full or read-only disk, say.
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
    from cryptography.exceptions import InvalidSignature

    for key in keys:
        with suppress(InvalidSignature):
            key.verify(signature, signed)
            return _fingerprint(key)
    expected = f"one of {MANIFEST_DIGEST} by a key in {trusted}"
    raise refusal(name, "signature", expected=expected, got="another")


def write_signature(package: Path, signature: bytes) -> Path:
    """Puts a signature where it belongs, whole or not at all. `UnavailableError`: it cannot be
    written."""
    file = signature_file(package)
    try:
        replace_file(file, signature)
    except OSError as error:
        why = error.strerror or error
        raise UnavailableError(f"{file}: cannot be written: {why}") from error
    return file


def _cryptography() -> tuple[Any, Any]:
    """Its kinds of keys, and what reads and writes them. Loaded where keys are used."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise ConfigError(NEEDED) from error
    return ed25519, serialization


def _fingerprint(key: Any) -> str:
    _, serialization = _cryptography()
    encoding, kind = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return f"SHA256:{hashlib.sha256(key.public_bytes(encoding, kind)).hexdigest()}"


def _private_key(path: Path) -> Any:
    ed25519, serialization = _cryptography()
    data, key = _read(path), None
    with suppress(TypeError, ValueError):
        key = serialization.load_pem_private_key(data, password=None)
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise ConfigError(f"{path}: expected a PEM private key (Ed25519) without a password")
    return key


def _public_keys(path: Path) -> list[Any]:
    ed25519, serialization = _cryptography()
    *blocks, rest = _read(path).split(END)
    found = list[Any]()
    with suppress(ValueError):
        found = [serialization.load_pem_public_key(each.lstrip() + END + b"\n") for each in blocks]
    is_ed25519 = [isinstance(key, ed25519.Ed25519PublicKey) for key in found]
    if not found or not all(is_ed25519) or b"-----BEGIN" in rest:
        raise ConfigError(f"{path}: expected public keys in PEM, at least one, all Ed25519")
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
