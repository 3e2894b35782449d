"""A watch rule that could not look says so: it is as quiet as one that saw nothing."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from click.testing import CliRunner
from made_windows import IDENTITY, NAME, Production
from page_tables import shown_text
from starlette.testclient import TestClient

from evalflows.analysis.monitoring import watch
from evalflows.cli.main import cli
from evalflows.dashboard.app import application
from evalflows.dashboard.links import Links
from evalflows.reports.idle_rules import rules_that_could_not_look
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.queries.incidents import write_looks
from evalflows.store.sql import ask
from evalflows.store.store import Store

RULES = [{"threshold": "accuracy", "minimum": 0.7}, {"fall": "accuracy"}]
SPEC = TraceEvaluationSpec(name=NAME, evaluators=["exact_match"], watch=RULES)


def watched(store: Store, make: Callable[..., Any], n: int) -> list[str]:
    made = Production(store, make, n=n)
    made.windows(*[0.8] * 12)
    made.judged()
    (row,) = store.rows("watermarks", IDENTITY)
    later = {"batch_id": "later", "started_at": row.started_at + timedelta(days=1), "spec": SPEC.model_dump_json()}
    store.append("watermarks", IDENTITY, "later", [replace(row, **later)])
    write_looks(store, watch(store, IDENTITY, SPEC, ["v1"]).looks)
    return rules_that_could_not_look(store, NAME)


def test_rules_with_too_few_traces_are_named_at_every_door(store: Store, make: Callable[..., Any]) -> None:
    (said,) = watched(store, make, n=20)
    assert (
        said.startswith("2 rules (") and "could not look at 12 of 12 days: 20 traces a day, wanted 30 (min_n)" in said
    )
    printed = CliRunner(env={"COLUMNS": "200"}).invoke(cli, ["windows", NAME]).stdout
    assert said in printed
    alerts = CliRunner(env={"COLUMNS": "200"}).invoke(cli, ["alerts", "ls"]).stdout
    assert alerts == f"no incidents\n{NAME}: {said}\n"
    answer = TestClient(application(Store()), base_url="http://127.0.0.1:4280").get(Links("").evaluation(NAME) or "")
    assert said in shown_text(answer.text)


def test_rules_that_have_looked_say_nothing(store: Store, make: Callable[..., Any]) -> None:
    assert watched(store, make, n=200) == []


def test_windows_that_had_too_few_traces_are_looked_at_again_with_a_lower_least(
    store: Store, make: Callable[..., Any]
) -> None:
    watched(store, make, n=20)
    assert watch(store, IDENTITY, SPEC, ["v1"]).looks == [], "nothing has changed"
    lower = SPEC.model_copy(update={"watch": [rule.model_copy(update={"min_n": 15}) for rule in SPEC.watch]})
    again = watch(store, IDENTITY, lower, ["v1"]).looks
    assert len(again) == 24 and "below_min_examples" not in {look.reason_code for look in again}
    write_looks(store, again)
    assert len(ask(store, ("select look_id from watched_windows", []))[0]) == 24
    assert rules_that_could_not_look(store, NAME) == [] and watch(store, IDENTITY, lower, ["v1"]).looks == []
