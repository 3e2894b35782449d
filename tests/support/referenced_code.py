"""A module's source and closures: code that tests name by a reference, and version."""

from collections.abc import Callable
from typing import Any

APP = '''
import functools

LIMIT = 3


def judge(outputs, limit=3):
    """Judges."""
    return len(outputs) < limit


class Judge:
    def __init__(self, limit):
        self.limit = limit

    def __call__(self, outputs):
        return len(outputs) < self.limit

    def score(self, outputs):
        return len(outputs) < self.limit

    @staticmethod
    def strict(outputs):
        return False


strict = Judge(1)
shout = lambda text: text.upper()
'''

Import = Callable[..., Any]


def closure(limit: object) -> Callable[..., object]:
    def judge(outputs: str) -> object:
        return outputs == limit

    return judge
