"""Whether gates decide by the rules and the data of the spec at its commit, which somebody may have reviewed."""

from collections.abc import Iterable
from pathlib import Path

from evalflows.engine.revision import committed_text, differs_from_commit, git_commit
from evalflows.specs.errors import InputError, short
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.files import load_text, located, make_spec
from evalflows.specs.tool_changes import differences
from evalflows.store.kept_checks import keep_check
from evalflows.store.records import uncommitted_id
from evalflows.store.store import Store

_RULES = {
    *("dataset", "repetitions", "baseline", "evaluators", "summary_evaluators", "composites", "gates", "metrics"),
    *("score_configs", "final_looks", "confidence_level", "adjustment", "quarantine", "quarantine_at_most"),
}
"""Fields of a spec that say by what a candidate is judged."""


def uncommitted_rules(path: Path, spec: ExperimentSpec) -> str | None:
    """Return how the rules of a spec, with its changes, differ from those of its file at the commit, in a sentence, and
    whether the file of its dataset does. None if neither does, and for a file outside of git.
    """
    path = path.resolve()
    if not spec.gates or (commit := git_commit(path.parent)) is None:
        return None
    where = f"{path.name} at commit {commit[:7]}"
    text = committed_text(path)
    if text is None:
        return f"the rules are not committed: {where} does not exist"
    try:
        committed = make_spec(ExperimentSpec, load_text(text, where, wanted="a spec"), (), where)
    except InputError:
        return f"the rules are not committed: {where} is not a valid spec"
    there, here = (one.model_dump(mode="json", include=_RULES) for one in (committed, spec))
    changed = [
        f"{'.'.join(map(str, field))} is {short(new)} here, {short(old)} there"
        for field, old, new in differences(there, here)
    ]
    more = f"; and {len(changed) - 1} more" if len(changed) > 1 else ""
    said = [f"the rules differ from {where}: {changed[0]}{more}"] if changed else []
    if (data := spec.dataset.path) is not None and differs_from_commit(located(data).resolve()):
        said.append(f"{data} has changed since the commit")
    return "; ".join(said) or None


def keep_uncommitted(store: Store, run_groups: Iterable[str], sentence: str | None) -> None:
    """Keep the sentence of `uncommitted_rules` as a check on run groups, for each decision's limits."""
    for group in run_groups if sentence else ():
        if not store.is_sealed("checks", batch := uncommitted_id(group)):
            keep_check(store, batch, "uncommitted_rules", ("spec", group), sentence, passed=False)
