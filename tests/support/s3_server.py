"""A SeaweedFS server of PyPI's package: it speaks S3 on free ports of this machine, and ends with its block."""

import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import obstore
from obstore.store import S3Store
from ports import free_ports

BUCKET = "evals"
KEYS = {"AWS_ACCESS_KEY_ID": "key-of-tests", "AWS_SECRET_ACCESS_KEY": "secret-of-tests"}
SERVICES = ("master", "master.grpc", "volume", "volume.grpc", "filer", "filer.grpc", "s3", "s3.grpc")


class S3Server:
    """A server whose data are in a folder. It may be killed and started again, at the same address."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = dict(zip(SERVICES, free_ports(len(SERVICES)), strict=True))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs."""
        url = f"http://127.0.0.1:{self._ports['s3']}"
        return KEYS | {"AWS_ENDPOINT_URL": url, "AWS_REGION": "us-east-1"}

    @property
    def client_settings(self) -> Any:
        return {name.lower(): value for name, value in self.environment.items()}

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [str(Path(sys.executable).with_name("weed")), "server", *_OPTIONS, f"-dir={self._folder}"]
        for name, port in self._ports.items():
            service, _, kind = name.partition(".")
            command.append(f"-{service}.port{'.' * bool(kind)}{kind}={port}")
        command += [f"-{service}.localSocket={self._folder / service}.sock" for service in ("filer", "s3")]
        environment = KEYS | {"PATH": os.environ["PATH"], "HOME": str(self._folder)}
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=self._folder)
        self._wait_until_ready(self._process)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            with suppress(OSError), urllib.request.urlopen(f"{self.environment['AWS_ENDPOINT_URL']}/status", timeout=1):
                return
            time.sleep(0.1)
        raise RuntimeError((self._folder / "log").read_text(errors="replace")[-2000:])


_OPTIONS = (
    *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", "-s3.port.iceberg=0", "-s3.port.lance=0"),
    *("-master.telemetry=false", "-master.volumeSizeLimitMB=64", "-volume.max=50", "-volume.preStopSeconds=0"),
)


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """Yield a server with a bucket."""
    folder.mkdir(parents=True, exist_ok=True)
    server = S3Server(folder)
    try:
        server.start()
        client = S3Store(BUCKET, client_options={"allow_http": True}, config=server.client_settings)
        obstore.put(client, "made", b"")
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)
