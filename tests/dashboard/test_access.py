"""Who may use the dashboard, and what its pages may do."""

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from evalflows.cli.main import cli
from evalflows.dashboard.app import application
from evalflows.store.store import Store

TOKEN = "pass=word & more"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("empty") / "store")


def client(store: Store, token: str | None = None, host: str = "127.0.0.1:4280") -> TestClient:
    return TestClient(application(store, token), base_url=f"http://{host}", follow_redirects=False)


@pytest.mark.parametrize("host", ["127.0.0.1:4280", "localhost", "localhost:80", "[::1]:4280", "127.1.2.3"])
def test_names_of_this_machine_are_answered(store: Store, host: str) -> None:
    assert client(store).get("/experiments", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["rebound.test", "127.0.0.1.evil.test", "10.0.0.1", "localhost.evil.test", "", "[::1", "[::1].evil"]
)
def test_other_names_are_refused(store: Store, host: str) -> None:
    answer = client(store).get("/experiments", headers={"host": host})
    assert answer.status_code == 403
    assert "wanted 127.0.0.1 or localhost" in answer.text


def test_with_a_token_nothing_is_answered_without_it(store: Store) -> None:
    browser = client(store, TOKEN, "evals.test:4280")
    for path in ("/", "/experiments", "/static/style.css", "/health", "/nothing"):
        answer = browser.get(path)
        assert answer.status_code == 401, path
        assert "script-src 'self'" in answer.headers["content-security-policy"]
    for given in ("pass", "", "Ä"):
        assert browser.get("/experiments", params={"token": given}).status_code == 401


def test_the_token_of_an_address_becomes_a_cookie(store: Store) -> None:
    browser = client(store, TOKEN, "evals.test:4280")
    answer = browser.get("/experiments", params={"token": TOKEN, "q": "a&b"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/experiments?q=a%26b")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    assert browser.get("/experiments").status_code == 200
    forged = client(store, TOKEN, "evals.test:4280")
    assert forged.get("/experiments", headers={"cookie": f"evalflows={'0' * 64}"}).status_code == 401


def test_a_program_sends_the_token_as_a_bearer(store: Store) -> None:
    program = client(store, "secret", "evals.test")
    assert program.get("/health", headers={"authorization": "Bearer secret"}).json() == {"status": "ok"}
    assert program.get("/health", headers={"authorization": "Basic secret"}).status_code == 401


NAVIGATES = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
OF_OTHER_SITES = (
    {"origin": "http://evil.test"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:9999"},
    {"origin": "http://evil.test", "sec-fetch-site": "same-origin"},
    {"origin": "http://evil.test", "sec-fetch-site": "cross-site", **NAVIGATES},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": ""},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
    {"sec-fetch-site": "same-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "object"},
)
"""Headers of requests that a browser sends because of a page of another site."""
OF_OURS = (
    {},
    {"origin": "http://127.0.0.1:4280"},
    {"origin": "http://127.0.0.1:4280", "sec-fetch-site": "same-origin"},
    {"sec-fetch-site": "same-origin"},
    {"sec-fetch-site": "none", **NAVIGATES},
)


def test_what_pages_of_other_sites_ask_for_is_refused(store: Store) -> None:
    browser = client(store)
    for headers in OF_OTHER_SITES:
        for method in ("GET", "HEAD", "POST", "OPTIONS", "DELETE"):
            for path in ("/experiments", "/static/style.css", "/health", "/nothing"):
                answer = browser.request(method, path, headers=headers)
                assert answer.status_code == 403, (method, path, headers)
                assert "access-control-allow-origin" not in answer.headers
    for headers in OF_OURS:
        assert browser.get("/experiments", headers=headers).status_code == 200, headers
        assert browser.post("/experiments", headers=headers).status_code == 404, headers
    with_token = client(store, TOKEN, "evals.test")
    bearer = {"authorization": f"Bearer {TOKEN}"}
    assert with_token.get("/health", headers=bearer | {"origin": "http://evil.test"}).status_code == 403


def test_people_may_follow_a_link_of_another_site(store: Store) -> None:
    browser = client(store)
    for site in ("cross-site", "same-site"):
        followed = {"sec-fetch-site": site, **NAVIGATES}
        assert browser.get("/experiments", headers=followed).status_code == 200
        assert browser.post("/experiments", headers=followed).status_code == 403


@pytest.mark.parametrize("token", ["Äpfel", "caf\u00e9", "a\nb", " a", "a\t", "\udcff"])
def test_a_token_that_clients_would_send_in_different_ways_is_refused_in_one_line(token: str, store: Store) -> None:
    for command in ("dashboard", "receive"):
        done = CliRunner().invoke(cli, [command, "--port", "0", "--token", token])
        line = "evalflows: --token: got other characters, wanted printable ASCII without spaces around it\n"
        assert (done.exit_code, done.stderr) == (2, line)
    browser = client(store, token, "evals.test")  # by a program: it may never match, but is no fault
    for headers in ({"authorization": "Bearer \xc4"}, {"cookie": "evalflows=\xff"}):
        raw = {name: value.encode("latin-1") for name, value in headers.items()}
        assert browser.get("/health", headers=raw).status_code == 401


def test_pages_run_no_script_but_ours(store: Store) -> None:
    answer = client(store).get("/experiments")
    policy = answer.headers["content-security-policy"].split("; ")
    assert policy[0] == "default-src 'none'"
    assert not any("unsafe" in part or "*" in part or "http" in part for part in policy)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "style=" not in answer.text
    assert "<script>" not in answer.text
