"""Certificates for tests of TLS, made by openssl in a folder of the test's own."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Authority:
    """A certificate authority; ``folder`` holds its files and those that it issues."""

    folder: Path
    name: str

    @property
    def certificate(self) -> Path:
        return self.folder / f"{self.name}.crt"

    def issue(self, name: str, *, dns: str = "", into: tuple[Path, Path] | None = None) -> tuple[Path, Path]:
        """A certificate with this common name, and its key."""
        certificate, key = into or (self.folder / f"{self.name}-{name}.crt", self.folder / f"{self.name}-{name}.key")
        request, extensions = self.folder / "request.csr", self.folder / "extensions"
        extensions.write_text("extendedKeyUsage=serverAuth,clientAuth\n" + (f"subjectAltName={dns}\n" if dns else ""))
        _openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}",
                 "-keyout", str(key), "-out", str(request))  # fmt: skip
        _openssl("x509", "-req", "-in", str(request), "-CA", str(self.certificate),
                 "-CAkey", str(self.folder / f"{self.name}.key"), "-CAcreateserial", "-days", "2",
                 "-out", str(certificate), "-extfile", str(extensions))  # fmt: skip
        return certificate, key


def new_authority(folder: Path, name: str) -> Authority:
    """A new authority of this name."""
    _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
             "-subj", f"/CN={name}", "-addext", "keyUsage=critical,digitalSignature,keyCertSign",
             "-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt"))  # fmt: skip
    return Authority(folder, name)


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
