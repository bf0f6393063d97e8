"""Key pairs for tests."""

from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@dataclass(frozen=True)
class Keys:
    """A key pair: its files in PEM, and the private key itself."""

    private: Path
    public: Path
    key: Ed25519PrivateKey


def write_keys(folder: Path, name: str = "publisher") -> Keys:
    """Writes a new key pair to ``<name>.key`` and ``<name>.pem``."""
    key = Ed25519PrivateKey.generate()
    keys = Keys(folder / f"{name}.key", folder / f"{name}.pem", key)
    keys.private.write_bytes(private_pem(key))
    keys.public.write_bytes(public_pem(key))
    return keys


def private_pem(key, encryption=None) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        encryption or serialization.NoEncryption(),
    )


def public_pem(key) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
