"""Calls that nobody recorded are unknown, never zero: in rows, totals and what is printed."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from http_application import says, serving_application, waits

from evalflows import run
from evalflows.analysis.plan import sentences_of
from evalflows.api.planning import plan
from evalflows.cli.main import cli
from evalflows.cli.show import print_calls, print_experiments
from evalflows.engine.may_call_models import may_call_unrecorded
from evalflows.reports.experiment_report import experiments_report
from evalflows.reports.results import results_of
from evalflows.specs import ExperimentSpec, IncompleteError, InputError
from evalflows.specs.reference import load
from evalflows.store import Store, connect

pytestmark = pytest.mark.usefixtures("without_prefect")

ROWS = [{"inputs": {"question": f"q{i}"}, "outputs": {"output": f"q{i}"}} for i in range(3)]
MODULES = {
    "site-packages/some_provider.py": "class Client:\n    def ask(self, text):\n        return text\n",
    "clients.py": "from some_provider import Client\n\nCLIENT = Client()\n",
    "application.py": """
import importlib
import json
import re
import numpy
import clients
import evalflows.llm

def pure(question):
    return json.loads(json.dumps(question))

def with_numbers(question):
    return re.sub("x", "y", question) * int(numpy.ones(1)[0])

def asks(question):
    return clients.CLIENT.ask(question)

def asks_by_late_import(question):
    import some_provider
    return some_provider.Client().ask(question)

def asks_by_address(question):
    from urllib.request import urlopen
    return question if urlopen else None

def asks_by_text(question):
    return __import__("some_provider").Client().ask(question)

def asks_by_name(question):
    return importlib.import_module("some_provider").Client().ask(question)

def judged(outputs):
    return clients.CLIENT.ask("yes") == "yes"

def ruled(outputs):
    return bool(re.search("q", str(outputs)))

def wrapped(question):
    return evalflows.llm.wrap(clients.CLIENT).ask(question)

def stepped(question):
    with evalflows.llm.step("tool", "ask"):
        return clients.CLIENT.ask(question)

def scored(outputs):
    from evalflows.evaluators import Score
    return Score(value=clients.CLIENT.ask("yes") == "yes")

def ruled_with_score(outputs):
    from evalflows.evaluators import Score
    return Score(value=True)

def raises(question):
    raise ValueError(clients.CLIENT.ask("no answer"))

def prefers(outputs):
    return [clients.CLIENT.ask(1), 0]
""",
}


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, text in MODULES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path / "site-packages", tmp_path):
        monkeypatch.syspath_prepend(str(folder))
    yield
    for name in ("some_provider", "clients", "application"):
        sys.modules.pop(name, None)


def spec_of(target: dict[str, Any], **changes: Any) -> ExperimentSpec:
    fields = {"name": "app", "dataset": {"rows": ROWS}, "targets": [target], "evaluators": ["exact_match"]}
    return ExperimentSpec.model_validate(fields | changes)


def python(name: str) -> dict[str, Any]:
    return {"kind": "python", "function": f"application:{name}"}


def one(query: str) -> Any:
    with connect() as catalog:
        (row,) = catalog.execute(query).fetchall()
    return row


def test_imports_tell_whether_code_may_call_a_model() -> None:
    may = {
        name: may_call_unrecorded(load(f"application:{name}"))
        for name in re.findall(r"^def (\w+)", MODULES["application.py"], flags=re.M)
    }
    calling = {"asks", "asks_by_late_import", "asks_by_address", "asks_by_text", "asks_by_name"}
    calling |= {"stepped", "scored", "prefers", "judged", "raises"}
    assert {name for name, found in may.items() if found} == calling


@pytest.mark.slow
def test_calls_of_an_evaluator_with_a_plain_client_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    judges = [{"use": f"application:{name}"} for name in ("judged", "ruled")]
    (identity,) = run(spec_of(python("pure"), evaluators=judges, max_calls=9))
    assert "max_calls cannot limit the calls of evaluator 'judged', which" in capsys.readouterr().err
    assert one("select distinct calls, cost_usd from scores where metric = 'judged'") == (None, None)
    assert one("select distinct calls, cost_usd from scores where metric = 'ruled'") == (0, 0.0)
    assert one("select calls, cost_usd from metric_summary where metric = 'judged'") == (None, None)
    assert one("select calls, cost_usd, unrecorded_judgements from experiment_overview") == (None, None, 3)
    print_experiments(experiments_report(Store(), [identity], results_of(Store(), [identity])))
    said = " ".join(capsys.readouterr().out.split())
    assert "model calls of evaluators were not recorded, so their cost is unknown" in said


USAGE = {"input_tokens": 7, "output_tokens": 2, "cost_usd": 0.4, "calls": 3}


@pytest.mark.slow
def test_an_application_reports_its_calls_and_the_budget_limits_them(capsys: pytest.CaptureFixture[str]) -> None:
    target = {"url": "", "kind": "http", "answer": "text", "usage": "meta.usage"}
    with serving_application() as application:
        application.replies.extend(says({"text": "yes", "meta": {"usage": USAGE}}) for _ in range(3))
        run(spec_of(target | {"url": application.url}, budget_usd=9.0))
    assert one("select distinct calls, tokens_in, tokens_out, cost_usd from outputs") == (3, 7, 2, 0.4)
    calls, tokens, cost = one("select calls, tokens_in, cost_usd from experiment_overview")
    assert (calls, tokens, cost) == (9, 21, pytest.approx(1.2))
    assert "cannot limit" not in capsys.readouterr().err
    with serving_application() as application, pytest.raises(IncompleteError, match="budget"):
        application.replies.extend(says({"text": "yes", "meta": {"usage": USAGE}}) for _ in range(3))
        run(spec_of(target | {"url": application.url}, name="limited", budget_usd=0.7, max_concurrency=1))
    assert one(
        """select count(*), sum(outputs.cost_usd) from outputs join experiments using (experiment_id)
           where name = 'limited' and status = 'ok'"""
    ) == (1, 0.4)  # another one might have cost as much


@pytest.mark.slow
def test_answers_of_an_earlier_experiment_are_not_asked_for_again_and_the_plan_says_so() -> None:
    target = {"url": "", "kind": "http", "name": "app", "answer": "text", "usage": "meta.usage", "attempts": 1}
    with serving_application() as application:
        target["url"] = application.url
        application.replies.extend([*(says({"text": "yes", "meta": {"usage": USAGE}}) for _ in range(2)), says({})])
        run(spec_of(target, name="first", chunk_retries=0))
        first = one("select experiment_id from experiments where name = 'first'")[0]
        answered = one("select count(*) from outputs where status = 'ok'")[0]
        again = spec_of(target | {"answers_of": "first"}, name="again", repetitions=2)
        said = sentences_of(plan(again))
        assert f"{answered} of 6 answers of app are reused from {first}" in said
        before = len(application.requests)
        application.replies.extend(says({"text": "no", "meta": {"usage": USAGE}}) for _ in range(6))
        run(again)
        assert len(application.requests) - before == 6 - answered and answered == 2
        query = "select count(*) from outputs join experiments using (experiment_id) where name = 'again' and "
        assert one(f"{query} outputs ->> 'output' = 'yes' and outputs.cost_usd = 0.4 and latency_s > 0") == (answered,)
        assert one(f"{query} outputs ->> 'output' = 'no'") == (6 - answered,)
        with pytest.raises(InputError, match="asked another version of 'app', wanted the same code and settings"):
            run(spec_of(target | {"answers_of": "first", "answer": "meta"}))


@pytest.mark.slow
def test_a_request_that_an_application_does_not_answer_in_time_may_be_paid() -> None:
    target = {"kind": "http", "answer": "text", "usage": "usage", "timeout_s": 0.5, "attempts": 1}
    with (
        serving_application() as application,
        pytest.raises(IncompleteError, match=r"0\.8000 of 1 USD, 0\.4000 of that"),
    ):
        answer = says({"text": "yes", "usage": USAGE})
        application.replies.extend([answer, waits(application), answer])
        limits = {"max_concurrency": 1, "budget_usd": 1.0, "chunk_retries": 0}
        run(spec_of(target | {"url": application.url}, **limits))
    assert len(application.requests) == 2, "a third might cost as much"
    assert one("select kind, error_kind, cost_usd, estimated_usd from calls") == ("application", "timeout", None, 0.4)


@pytest.mark.slow
def test_what_an_application_does_not_report_is_unknown() -> None:
    odd = [{"text": "yes"}, {"text": "yes", "usage": "much"}, {"text": "yes", "usage": {"calls": -1, "cost_usd": True}}]
    with serving_application() as application:
        application.replies.extend(says(reply) for reply in odd)
        run(spec_of({"kind": "http", "url": application.url, "answer": "text", "usage": "usage"}))
    assert one("select distinct calls, tokens_in, cost_usd, status from outputs") == (None, None, None, "ok")
    assert one("select calls, cost_usd from experiment_overview") == (None, None)


@pytest.mark.slow
def test_calls_of_a_plain_client_are_null_and_a_budget_that_cannot_bind_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = "evalflows: budget_usd and max_calls cannot limit the calls of target 'target', which are not recorded"
    run(spec_of(python("pure"), name="pure", budget_usd=1.0, max_calls=5))
    assert said not in capsys.readouterr().err
    query = "select calls, cost_usd, recorded_calls, unrecorded from experiment_overview where name = '{}'"
    assert one("select distinct calls, calls_cached from outputs") == (0, 0)
    assert one(query.format("pure"))[::3] == (0, 0), "code that calls nothing has made no call"
    uncounted = spec_of(python("asks"), name="asks", budget_usd=1.0, max_calls=5, budget_counts_unknown=False)
    with pytest.raises(
        InputError, match="target 'target': budget_usd cannot be enforced, since its model calls are not"
    ):
        run(uncounted.model_copy(update={"budget_counts_unknown": True}))
    capsys.readouterr()
    (identity,) = run(uncounted)
    assert capsys.readouterr().err.startswith(said)
    assert one(query.format("asks")) == (None, None, 0, 3)
    report = experiments_report(Store(), [identity], results_of(Store(), [identity]))
    print_experiments(report)
    print_calls(report.experiments, 0)
    shown = " ".join(capsys.readouterr().out.split())
    assert "model calls of the target were not recorded, so their cost is unknown" in shown
    assert "the model calls of this run were not recorded" in shown
    assert "USD" not in shown


@pytest.mark.slow
def test_documents_and_comparisons_say_that_calls_were_not_recorded() -> None:
    targets = [python("asks") | {"name": name} for name in ("one", "two")]
    Path("app.yaml").write_text(
        json.dumps({"name": "app", "dataset": {"rows": ROWS}, "targets": targets, "evaluators": ["application:judged"]})
    )
    document = json.loads(CliRunner().invoke(cli, ["run", "app.yaml", "--format", "json"]).stdout)
    found = {(each["calls"], each["tokens_in"], each["cost_usd"]) for each in document["experiments"]}
    assert (document["calls_made"], found) == (None, {(None, None, None)})
    Path("compare.yaml").write_text(
        json.dumps({"experiments": ["app-one", "app-two"], "evaluators": "application:prefers"})
    )
    said = " ".join(CliRunner().invoke(cli, ["compare", "compare.yaml"]).output.split())
    assert (
        "model calls of evaluators were not recorded, so their cost is unknown" in said and "0 model calls" not in said
    )
    tried = CliRunner().invoke(cli, ["evaluators", "application:judged", "--try", '{"inputs": "q", "outputs": "x"}'])
    assert tried.output.splitlines()[-1] == "model calls not recorded, cost unknown"
