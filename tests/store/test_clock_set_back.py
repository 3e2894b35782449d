"""What came later counts, even if the clock was set back meanwhile."""

from pathlib import Path

import pytest
from clock import set_clock_back
from open_store import OWNER, Make

from evalflows.analysis.baselines import approve_baseline
from evalflows.store.labels import import_labels
from evalflows.store.queries.conclusions import approvals, approved
from evalflows.store.queries.lookup import newest_start
from evalflows.store.records import new_id, now
from evalflows.store.snapshots import current_snapshot, freeze, to_examples
from evalflows.store.sql import ask
from evalflows.store.store import Store


def frozen(store: Store, question: str, source: str = "rows") -> str:
    return freeze(store, to_examples([(1, {"inputs": question})], "rows"), name="faq", source=source)


def test_a_dataset_is_its_newest_version(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    frozen(store, "old")
    set_clock_back(monkeypatch)
    for question in ("newer", "newest"):
        identity = frozen(store, question)
        assert current_snapshot(store, "faq") == identity
    ((mart,),) = ask(store, ("select snapshot_id from datasets", []))[0]
    assert mart == identity
    ids = store.query("select dataset_version_id[:14] from source.dataset_versions order by recorded_at")
    assert ids == sorted(ids), "ids sort by the same time, in milliseconds"
    assert capsys.readouterr().err == "", "one file that was rewritten"
    frozen(store, "other", "b/faq.jsonl")
    assert "is now b/faq.jsonl, which shares no example with its version before, rows" in capsys.readouterr().err


def test_the_newest_approval_holds(store: Store, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [make("experiments", experiment_id=new_id("exp"), state="completed", spec='{"name": "x"}') for _ in range(2)]
    approve_baseline(store, rows[0], "faq", by="me")
    set_clock_back(monkeypatch)
    approve_baseline(store, rows[1], "faq", by="me")
    assert approved(store, "faq").experiment_id == rows[1].experiment_id  # type: ignore[union-attr]
    assert [approval.experiment_id for approval in approvals(store) if approval.holds] == [rows[1].experiment_id]


def test_labels_imported_later_count(store: Store, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.publish("experiments", OWNER, [make("experiments", experiment_id=OWNER)])
    store.publish("outputs", OWNER, [make("outputs", run_id="r1", experiment_id=OWNER)])
    for value in ("true", "false"):
        (tmp_path / f"{value}.csv").write_text(f"run_id,metric,value,labeller\nr1,good,{value},ann\n")
    import_labels(store, tmp_path / "true.csv")
    set_clock_back(monkeypatch)
    import_labels(store, tmp_path / "false.csv")
    assert ask(store, ("select value from current_labels", [])) == [[(0.0,)]]


def test_results_of_a_retry_replace_earlier_ones(store: Store, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    retried = {
        ("outputs", "run_id", "experiment_id"): ("not_attempted", "failed"),  # else it would be called again for ever
        ("judgements", "judgement_id", "experiment_id"): ("scored", "scored"),  # composites: computed from newer parts
    }
    for (table, key, owner), (before, later) in retried.items():
        row = {key: "a", owner: OWNER}
        store.append(table, OWNER, "p", [make(table, **row, status=before, error="before")])
        if table != "outputs":
            store.seal(OWNER, [table])
            store.reopen(OWNER, [table])
        with monkeypatch.context() as patch:
            set_clock_back(patch)
            store.append(table, OWNER, "p", [make(table, **row, status=later, error="later")])
        assert [found.error for found in store.read(table, OWNER)] == ["later"], table


def test_a_new_start_is_the_newest_of_its_name(store: Store, make: Make) -> None:
    assert newest_start(store, "experiments", ["chat"], "faq", None) is None
    at = now()
    row = make("experiments", experiment_id=OWNER, name="chat", run_key="k", spec='{"name": "faq"}', started_at=at)
    store.publish("experiments", OWNER, [row])
    for names, spec_name, run_key in ((["new", "chat"], "new", None), (["new"], "faq", None), (["new"], "new", "k")):
        assert newest_start(store, "experiments", names, spec_name, run_key) == at
    assert newest_start(store, "experiments", ["new"], "new", None) is None
