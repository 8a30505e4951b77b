"""Certificates for a server of this machine: a good one, and those that a client must refuse."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Certificate:
    cert: Path
    key: Path


class Authority:
    """A CA that a client is told to trust by `ca_file`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ca = trustme.CA()
        self.ca_file = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(self.ca_file)

    def good(self) -> Certificate:
        return self._write("good", self._ca.issue_cert("localhost"))

    def unknown(self) -> Certificate:
        """By a CA that nobody was told of."""
        return self._write("unknown", trustme.CA().issue_cert("localhost"))

    def expired(self) -> Certificate:
        now = datetime.now(timezone.utc)
        return self._write(
            "expired", self._ca.issue_cert("localhost", not_before=now - timedelta(days=2), not_after=now - timedelta(days=1))
        )

    def of_another_name(self) -> Certificate:
        return self._write("another", self._ca.issue_cert("elsewhere.example"))

    def _write(self, name: str, issued: trustme.LeafCert) -> Certificate:
        found = Certificate(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        issued.cert_chain_pems[0].write_to_path(found.cert)
        issued.private_key_pem.write_to_path(found.key)
        return found
