"""A certificate authority and a server certificate for 127.0.0.1, made anew for each start."""

import os
from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Certificates:
    authority: Path
    """What clients trust: AWS_CA_BUNDLE, NODE_EXTRA_CA_CERTS."""
    certificate: Path
    key: Path


def write_certificates(directory: Path) -> Certificates:
    """The authority's own key is never written, so nobody can sign a second certificate."""
    directory.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA(organization_name="Redrive embedded AWS")
    server = authority.issue_cert("127.0.0.1", "localhost")
    files = Certificates(directory / "ca.pem", directory / "server.pem", directory / "server.key")
    files.authority.write_bytes(authority.cert_pem.bytes())
    files.certificate.write_bytes(b"".join(blob.bytes() for blob in server.cert_chain_pems))
    files.key.unlink(missing_ok=True)
    descriptor = os.open(files.key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(server.private_key_pem.bytes())
    return files
