"""The conftest.py of LangChain's tests, run against ours: a model's vectors are made, and chains are only named."""

import hashlib
import sys
from types import ModuleType

import pytest
from endpoint import Endpoint, Reply, serving

chains = sys.modules["langchain_classic.chains.llm"] = ModuleType("langchain_classic.chains.llm")
chains.LLMChain = object  # in annotations


def pytest_configure(config):
    config.addinivalue_line("markers", "requires: packages, which are all installed")


def _vectors(request):
    digests = [hashlib.sha256(text.encode()).digest() for text in request["input"]]
    data = [
        {"object": "embedding", "index": number, "embedding": [float(byte) for byte in digest]}
        for number, digest in enumerate(digests)
    ]
    return Reply({"object": "list", "model": "m", "data": data, "usage": {"prompt_tokens": 1, "total_tokens": 1}})


@pytest.fixture(scope="session", autouse=True)
def _endpoint():
    with serving(Endpoint(answer=_vectors)) as endpoint, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", endpoint.base_url)
        patch.setenv("OPENAI_API_KEY", "sk-of-a-test")
        yield
