"""A file of one certificate: clients load all that they are given, also those that speak plain HTTP."""

from pathlib import Path

import certifi


def one_certificate(folder: Path) -> Path:
    """Write that file to a folder, and return its path."""
    end = "-----END CERTIFICATE-----\n"
    file = folder / "certificate.pem"
    file.write_text(Path(certifi.where()).read_text(encoding="utf-8").partition(end)[0] + end, encoding="utf-8")
    return file
