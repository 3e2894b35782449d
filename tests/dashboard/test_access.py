"""Who may use the dashboard, and what its pages may do."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from evalflows.dashboard.application import application
from evalflows.store.parquet import Store

TOKEN = "pass=word & more"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def client(store: Store, token: str | None = None, host: str = "127.0.0.1:4280") -> TestClient:
    return TestClient(application(store, token), base_url=f"http://{host}", follow_redirects=False)


@pytest.mark.parametrize("host", ["127.0.0.1:4280", "localhost", "localhost:80", "[::1]:4280", "127.1.2.3"])
def test_names_of_this_machine_are_answered(store: Store, host: str) -> None:
    assert client(store).get("/experiments", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["rebound.test", "127.0.0.1.evil.test", "10.0.0.1", "localhost.evil.test", "", "[::1"])
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


def test_other_sites_cannot_change_anything(store: Store) -> None:
    browser = client(store)
    for headers in (
        {"origin": "http://evil.test"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://127.0.0.1:9999"},
    ):
        assert browser.post("/experiments", headers=headers).status_code == 403, headers
    assert browser.post("/experiments", headers={"origin": "http://127.0.0.1:4280"}).status_code == 404


def test_pages_run_no_script_but_ours(store: Store) -> None:
    answer = client(store).get("/experiments")
    policy = answer.headers["content-security-policy"].split("; ")
    assert policy[0] == "default-src 'none'"
    assert not any("unsafe" in part or "*" in part or "http" in part for part in policy)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "style=" not in answer.text
    assert "<script>" not in answer.text
