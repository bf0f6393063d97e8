"""Authorities and certificates, made for a test."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Signed:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes
    expires: datetime

    def write(self, folder: Path, name: str) -> tuple[str, str]:
        """Paths of both; each file is put in place whole, as a rotation does it."""
        paths = folder / f"{name}.pem", folder / f"{name}.key"
        for path, text in zip(paths, (self.certificate, self.key), strict=True):
            replace(path, text)
        return str(paths[0]), str(paths[1])


class Authority:
    """Signs certificates for 127.0.0.1."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        now = datetime.now(UTC)
        self._certificate = (
            _builder(self._name, self._name, self._key, now - DAY, now + 30 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def certificate(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def write(self, folder: Path, name: str) -> str:
        path = folder / f"{name}.pem"
        replace(path, self.certificate)
        return str(path)

    def sign(self, name: str, *, days: float = 7) -> Signed:
        """Valid from two days ago for another `days`; less than 0: expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC).replace(microsecond=0)
        expires = now + days * DAY
        alternatives = [x509.DNSName("localhost"), x509.IPAddress(IPv4Address("127.0.0.1"))]
        certificate = (
            _builder(_named(name), self._name, key, now - 2 * DAY, expires)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return Signed(
            certificate.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
            expires,
        )


def replace(path: Path, text: bytes) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_bytes(text)
    fresh.rename(path)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    begins: datetime,
    expires: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(expires)
    )
