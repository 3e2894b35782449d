"""A client that has loaded a page of the dashboard, as a browser has: what it sends counts as a person's."""

import re
from typing import Any

from starlette.testclient import TestClient

from evalflows.dashboard.app import application
from evalflows.dashboard.links import PAGE_PROOF
from evalflows.store.store import Store


def page_client(**headers: str) -> TestClient:
    settings: dict[str, Any] = {"base_url": "http://127.0.0.1:4280", "headers": headers}
    client = TestClient(application(Store()), **settings)
    (proof,) = re.findall(r'<body data-proof="(\w+)"', client.get("/home").text)
    client.headers[PAGE_PROOF] = proof
    return client
