"""Names of experiments that tell them apart, times as they are shown, and what people call the version of an
application: the given one, else its git commit by tag or subject."""

import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.store.sql import ask
from evalflows.store.store import Store

ID_END = 6
"""Characters of an id's end that are shown."""

COMMIT = 7
"""Characters of a git commit that are shown."""

_VERSIONS = """
select experiment_id, application_version, case when not git_dirty then git_commit end, started_at
from experiments where is_one_of(experiment_id, $1)
"""

MOST_OF_SUBJECT = 48
"""Characters of a commit's subject that are shown."""


def names_apart(store: Store, names: Mapping[str, str]) -> dict[str, str]:
    """Return a name for each experiment id: the given one if no other experiment has it.

    Else with the version that the spec or the application gave, `support v7`, or with the git commit, `support
    3c8b694`, if each of that name has another one. Else with when the experiment started: `support (2026-11-26 14:02
    UTC)`. If that is the same too, with the end of the id. Nothing that happens later, such as an approval, changes a
    name, and times are absolute, since files that are kept have these names.
    """
    return names_apart_in_each(store, [names])[0]


def names_apart_in_each(store: Store, groups: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return the same for each group of experiments, which are told apart within it."""
    several = {identity for names in groups for some in _alike(names) for identity in some}
    (rows,) = ask(store, (_VERSIONS, [sorted(several)])) if several else ([],)
    known = {identity: rest for identity, *rest in rows}
    return [_apart(names, known) for names in groups]


def _alike(names: Mapping[str, str]) -> list[list[str]]:
    """Return the experiments of each name that several have."""
    alike = grouped((name, identity) for identity, name in names.items())
    return [some for some in alike.values() if len(some) > 1]


def _apart(names: Mapping[str, str], known: Mapping[str, Sequence[Any]]) -> dict[str, str]:
    apart = dict(names)
    for some in _alike(names):
        there = [identity for identity in some if identity in known]
        for identity, told in zip(there, _told_apart([known[other] for other in there]), strict=True):
            apart[identity] = f"{names[identity]} {told}"
    counts = Counter(apart.values())
    return {
        identity: f"{names[identity]} (…{identity[-ID_END:]})" if counts[name] > 1 else name
        for identity, name in apart.items()
    }


def _told_apart(experiments: Sequence[Sequence[Any]]) -> list[str]:
    """Return what tells experiments of one name apart: versions, else commits, else times.

    Each is a version, a commit (None if the code was changed since), and when it started.
    """
    for texts in (
        [experiment[0] for experiment in experiments],
        [experiment[1] and experiment[1][:COMMIT] for experiment in experiments],
    ):
        if all(texts) and len({*texts}) == len(texts):
            return texts
    times = [at(experiment[2]) for experiment in experiments]
    if len({*times}) < len(times):
        times = [f"{_utc(experiment[2]):%Y-%m-%d %H:%M:%S} UTC" for experiment in experiments]
    return [f"({time})" for time in times]


def at(moment: datetime) -> str:
    """Return a time that means the same whenever it is read: `2026-11-26 14:02 UTC`."""
    return f"{_utc(moment):%Y-%m-%d %H:%M} UTC"


def when(moment: datetime, now: datetime) -> str:
    """Return a time as a person reads it at another: `today 14:02 UTC`, `yesterday 14:02 UTC`, `3 days ago`, a date."""
    days = (_utc(now).date() - _utc(moment).date()).days
    if 0 <= days <= 1:
        return f"{('today', 'yesterday')[days]} {_utc(moment):%H:%M} UTC"
    return f"{days} days ago" if 0 < days <= 30 else f"{_utc(moment):%Y-%m-%d}"


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class Version:
    """A version in short, such as `v7` or `3c8b694`, and of a commit without a tag its subject."""

    short: str
    subject: str = ""

    @property
    def text(self) -> str:
        """Both, with the begin of a long subject."""
        is_long = len(self.subject) > MOST_OF_SUBJECT
        return f"{self.short} {self.subject[:MOST_OF_SUBJECT]}{'…' if is_long else ''}".strip()


def versions_of(experiments: Iterable[tuple[str, str | None, str | None]]) -> dict[str, Version]:
    """Return the version of each experiment that has one, given as id, version and git commit.

    Tags and subjects are those of the checkout that contains the current folder, if it has the commit.
    """
    rows = list(experiments)
    commits = sorted({commit for _, given, commit in rows if commit and not given})
    named = _named(tuple(commits)) if commits else {}
    return {
        identity: Version(given) if given else named.get(commit or "", Version((commit or "")[:COMMIT]))
        for identity, given, commit in rows
        if given or commit
    }


@lru_cache(maxsize=64)
def _named(commits: tuple[str, ...]) -> Mapping[str, Version]:
    asked = ["git", "log", "--no-walk=unsorted", "--ignore-missing", "--decorate=full", "--format=%H%x00%D%x00%s"]
    try:
        done = subprocess.run([*asked, *commits, "--"], capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    found = {}
    for line in done.stdout.splitlines():
        commit, references, subject = line.split("\0", 2)
        tags = [ref.strip().removeprefix("tag: refs/tags/") for ref in references.split(",") if "refs/tags/" in ref]
        found[commit] = Version(tags[0]) if tags else Version(commit[:COMMIT], subject)
    return found
