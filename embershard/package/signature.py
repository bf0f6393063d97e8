"""Signs packages and checks signatures, in ``<repository>/<model>/<version>.sig``. A signature is
Ed25519 (RFC 8032) of ``manifest.sha256``, which determines every byte of a package.
docs/security.md says what it protects against."""

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from embershard.errors import ConfigError, UnavailableError
from embershard.package.files import replace_file
from embershard.package.folder_checks import read_manifest
from embershard.package.validation import MANIFEST_DIGEST, refusal

SIGNATURE_BYTES: Final = 64

NEEDED: Final = "signatures need the package cryptography: pip install 'embershard[sign]'"
END: Final = b"-----END PUBLIC KEY-----"


def signature_file(package: Path) -> Path:
    """The signature file of a package. It is outside the folder, which is immutable."""
    return package.with_name(f"{package.name}.sig")


def sign_package(package: str | Path, key: str | Path) -> Path:
    """Write or replace the signature of a package, atomically, and return its file. Only the
    manifest is checked; see `verify_package`. ``key`` is a PEM file with an Ed25519 private key
    without a password. Raises PackageError if the manifest is damaged, ConfigError if there is no
    such key or the Python package cryptography is missing, UnavailableError if the file cannot be
    written."""
    folder = Path(package).absolute()
    private = _private_key(Path(key))
    read_manifest(folder)
    return write_signature(folder, private.sign((folder / MANIFEST_DIGEST).read_bytes()))


def check_signature(package: str | Path, trusted: str | Path) -> str:
    """Check the signature of a package, as a server does, with any of the Ed25519 public keys in
    the PEM file ``trusted``. Returns the fingerprint of the key that signed: ``SHA256:`` and the
    hex digest of its SubjectPublicKeyInfo in DER, as
    ``openssl pkey -pubin -outform DER | sha256sum`` prints it. Raises PackageError if there is no
    signature, or none of the keys made it; ConfigError if there are no such keys, or the Python
    package cryptography is missing."""
    folder = Path(package).absolute()
    file = signature_file(folder)
    signature = file.read_bytes() if file.is_file() else None
    signed = (folder / MANIFEST_DIGEST).read_bytes()
    return check_signed(file.name, signature, signed, Path(trusted))


def check_signed(name: str, signature: bytes | None, signed: bytes, trusted: Path) -> str:
    """`check_signature` for files in memory: the signature, None without its file ``name``, and
    ``signed``, the bytes of ``manifest.sha256``."""
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
    """Write or replace a signature file, atomically. `UnavailableError`: it cannot be written."""
    file = signature_file(package)
    try:
        replace_file(file, signature)
    except OSError as error:
        why = error.strerror or error
        raise UnavailableError(f"{file}: cannot be written: {why}") from error
    return file


def _cryptography() -> tuple[Any, Any]:
    """The optional package's modules ed25519 and serialization."""
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
        raise ConfigError(
            f"{path}: expected an Ed25519 private key in PEM without a password, got something else"
        )
    return key


def _public_keys(path: Path) -> list[Any]:
    ed25519, serialization = _cryptography()
    *blocks, rest = _read(path).split(END)
    keys = list[Any]()
    with suppress(ValueError):
        keys = [serialization.load_pem_public_key(block.lstrip() + END + b"\n") for block in blocks]
    is_ed25519 = [isinstance(key, ed25519.Ed25519PublicKey) for key in keys]
    if not keys or not all(is_ed25519) or b"-----BEGIN" in rest:
        raise ConfigError(
            f"{path}: expected only Ed25519 public keys in PEM, at least one, got something else"
        )
    return keys


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
