"""The conftest.py of Langfuse's tests, run against ours: their SDK traces to our receiver, as in production."""

import subprocess
import sys
import time
import uuid
from contextlib import contextmanager
from types import ModuleType

import langfuse

from evalflows.compat import langfuse as ours
from evalflows.compat.langfuse import client

_receiver = subprocess.Popen(
    [sys.executable, "-c", "from evalflows.cli.main import main; main()", "receive", "--port", "0"],
    stdout=subprocess.PIPE,
    text=True,
)
_address = next(word for word in _receiver.stdout.readline().replace(",", " ").split() if word.startswith("http"))
_tracing = langfuse.Langfuse(public_key="pk", secret_key="sk", base_url=_address)


@contextmanager
def _observation(self, **fields):
    with _tracing.start_as_current_observation(**fields) as span:
        if not hasattr(span, "set_trace_io"):  # as before Langfuse 5
            span.set_trace_io = span.update
        yield span


def _flush(self):
    _tracing.flush()
    time.sleep(1.5)  # the receiver writes about once a second


client.Langfuse.start_as_current_observation = _observation
client.Langfuse.flush = _flush
ours.propagate_attributes = langfuse.propagate_attributes


def _wait_for_result(operation, *, is_result_ready=None, **options):
    for _ in range(20):
        result = operation()
        if is_result_ready is None or is_result_ready(result):
            return result
        time.sleep(0.5)
    raise AssertionError("the result is not ready")


_utils = ModuleType("tests.support.utils")
_utils.create_uuid = lambda: str(uuid.uuid4())
_utils.get_api = lambda *, retry=True: ours.get_client().api
_utils.wait_for_result = _wait_for_result
sys.modules |= {"tests": ModuleType("tests"), "tests.support": ModuleType("tests.support")}
sys.modules["tests.support.utils"] = sys.modules["tests.utils"] = _utils


def pytest_configure(config):
    config.addinivalue_line("markers", "asyncio: an async test")


def pytest_sessionfinish():
    _tracing.shutdown()
    _receiver.terminate()
    _receiver.wait()
