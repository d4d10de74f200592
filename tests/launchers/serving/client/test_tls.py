from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from scripted_server import WHOLE, Watched, answering, serving, sized

from llmexp.launch.server_answer import why_no_answer
from llmexp.launchers.serving.client.client import Client
from llmexp.launchers.serving.client.connection import Patience, TransferError
from llmexp.launchers.serving.load import run


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate of 127.0.0.1 that it signed itself, in one file."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    path.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain) + signed.public_bytes(pem))
    return path


def ask(certificate: Path) -> Watched:
    async def asking() -> Watched:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
        answer = Watched()
        async with serving(answering(WHOLE), tls) as address, Client(address, patience=Patience(silent_s=20)) as client:
            for _ in range(2):
                await client.post(client.message("/v1/completions", b"{}"), answer)
        return answer

    return run(asking())


def test_an_https_address_is_asked_by_tls(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    answer = ask(certificate)
    assert ("".join(answer.texts), answer.status, answer.problem) == ("one two", 200, "")


def test_a_certificate_that_nobody_trusts_is_refused(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with pytest.raises(TransferError, match=r"cannot be reached: .*(?i:certificate)"):
        ask(certificate)


@pytest.mark.parametrize("is_trusted", [True, False])
def test_an_https_address_that_runs_already_is_asked_by_tls(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, is_trusted: bool
) -> None:
    if is_trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    async def asking() -> str | None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
        async with serving(healthy, tls) as address:
            return await asyncio.to_thread(why_no_answer, f"https://{address.authority}", "/health", {})

    why = run(asking())
    assert why is None if is_trusted else "certificate" in str(why).lower()


async def healthy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(sized("200 OK", b""))
    await writer.drain()
