"""Certificates for the tests, created on demand."""

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)
_SIGNS = x509.KeyUsage(
    digital_signature=False, content_commitment=False, key_encipherment=False,
    data_encipherment=False, key_agreement=False, key_cert_sign=True, crl_sign=True,
    encipher_only=False, decipher_only=False,
)  # fmt: skip


class Authority:
    """A certificate authority for the tests that writes the certificates it signs to a folder.

    Attributes:
        folder: the folder.
        path: the authority's own certificate.
    """

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        self._name = _name(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        # Since Python 3.13, default contexts require what RFC 5280 does (VERIFY_X509_STRICT).
        certificate = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_SIGNS, critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
        )
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(_pem(certificate.sign(self._key, hashes.SHA256())))

    def issue(self, name: str, password: bytes | None = None) -> "Issued":
        """Sign a certificate for this machine, or for a client with the given name."""
        key = ec.generate_private_key(ec.SECP256R1())
        here = [
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            x509.IPAddress(ipaddress.ip_address("::1")),
        ]
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _builder(_name(name), self._name, key)
            .add_extension(x509.SubjectAlternativeName(here), critical=False)
            .add_extension(issuer, critical=False)
        )
        issued = Issued(
            name, self.folder / f"{name}.pem", self.folder / f"{name}-key.pem", self.path
        )
        issued.cert.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            encryption = serialization.BestAvailableEncryption(password)
        issued.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
            )
        )
        return issued


@dataclass(frozen=True)
class Issued:
    """The files of a certificate and of its key."""

    name: str
    cert: Path
    key: Path
    ca: Path

    @property
    def flags(self) -> list[str]:
        """Return the options that make a server, memlite or memcached, use the certificate."""
        return ["-Z", "-o", f"ssl_chain_cert={self.cert},ssl_key={self.key}"]


def client_context(ca: Path, issued: Issued | None = None) -> ssl.SSLContext:
    """Return a client context that trusts the CA and presents the certificate, if any."""
    context = ssl.create_default_context(cafile=str(ca))
    if issued is not None:
        context.load_cert_chain(issued.cert, issued.key)
    return context


def common_name(sock: ssl.SSLSocket) -> str:
    """Return the name in the certificate that the server presented."""
    der = sock.getpeercert(binary_form=True)
    assert der
    (attribute,) = x509.load_der_x509_certificate(der).subject.get_attributes_for_oid(
        NameOID.COMMON_NAME
    )
    return str(attribute.value)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return x509.CertificateBuilder(
        issuer, subject, key.public_key(), x509.random_serial_number(), now - _DAY, now + _DAY
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
