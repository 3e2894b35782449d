"""The version that an HTTP application says it has, asked before a run."""

import httpx2

from evalflows.llm.post import as_version, headers_of
from evalflows.specs.addresses import origin_of
from evalflows.specs.errors import InputError, describe
from evalflows.specs.target import HttpTarget

TIMEOUT_S = 10.0
MAX_BYTES = 1 << 16


def application_version(spec: HttpTarget) -> str | None:
    """Return the spec's `version`, else what `version_url` answers; None if the spec has neither.

    The target's headers are sent only to its own origin. Raise InputError if the address does not answer with a
    version.
    """
    if spec.version is not None or spec.version_url is None:
        return spec.version
    where = f"target {spec.name!r}: version_url: {spec.version_url}"
    headers = headers_of(spec, spec.version_url) if origin_of(spec.version_url) == origin_of(spec.url) else {}
    try:
        with (
            httpx2.Client(timeout=TIMEOUT_S) as client,
            client.stream("GET", spec.version_url, headers=headers) as response,
        ):
            body = next(response.iter_bytes(MAX_BYTES), b"")
    except httpx2.HTTPError as error:
        raise InputError(f"{where}: {describe(error)}") from error
    if response.status_code != 200:
        raise InputError(f"{where}: got HTTP {response.status_code}, wanted the application's version")
    if not (version := as_version(body.decode("utf-8", "replace"))):
        raise InputError(f"{where}: got an empty answer, wanted the application's version")
    return version
