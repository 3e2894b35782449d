"""The base of the models that specs consist of."""

from pydantic import BaseModel


class SpecModel(BaseModel, extra="forbid", frozen=True, defer_build=True):
    """A part of a spec: fields that it does not have are refused, and it does not change.

    Its validator is built when it is first used. Most models are only used within others, whose validators have all of
    theirs, and building each by itself would take a third of the time to load the specs.
    """
