"""Who sends a request: a program or person on this machine, one of our own pages, or a page of another site.

A page of another site that the same browser shows can send requests here, also under a name that it points to this
machine (DNS rebinding). Browsers say in headers which page sends a request, and no script can change these; programs
send no such headers.
"""

import ipaddress
from urllib.parse import urlsplit

from starlette.requests import Request

OURS = ("same-origin", "none")
"""Values of Sec-Fetch-Site for requests of our own pages, and of the person: an address typed, or a bookmark."""


def refusal(request: Request, *, any_host: bool, links: bool) -> str | None:
    """Return why a request must not be answered, whatever its method; None for one that may be.

    Args:
        request: The request. Only its headers are read.
        any_host: Whether it may be for another host name than this machine's. A token protects then.
        links: Whether people may come from pages of other sites by following a link.
    """
    headers = request.headers
    if not any_host and not is_local(headers.get("host", "")):
        return "got another host name, wanted 127.0.0.1 or localhost"
    if any(origin.partition("://")[2] != headers.get("host") for origin in headers.getlist("origin")):
        return _OTHER_SITE
    if all(site in OURS for site in headers.getlist("sec-fetch-site")) or (links and is_followed_link(request)):
        return None
    return _OTHER_SITE


def is_followed_link(request: Request) -> bool:
    """Whether a browser opens a page in a tab of its own because of another site's page, such as by a link there."""
    headers = request.headers
    return (
        request.method == "GET"
        and headers.getlist("sec-fetch-site") in (["cross-site"], ["same-site"])
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )


def is_local(host: str) -> bool:
    """Whether a Host header names this machine."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


_OTHER_SITE = "got a request of another site's page, wanted one of this server's own pages or of a program"
