"""Whether the target changed: seen in the user's code and said by HTTP applications, or unknown; never assumed."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from http_application import says, serving_application

from evalflows import run
from evalflows.analysis.comparability import differences
from evalflows.analysis.differences import MetricReader
from evalflows.specs import ExperimentSpec, InputError
from evalflows.store import Store, connect
from evalflows.store.records import ExperimentRow

pytestmark = pytest.mark.usefixtures("without_prefect")

ROWS = [{"inputs": {"question": f"q{i}"}, "outputs": {"output": f"q{i}!"}} for i in range(3)]
"""The answers of `answering.py`."""
MODULES = {
    "prompting": 'ENDING = "!"\n',
    "answering": "import prompting\n\ndef answer(question):\n    return question + prompting.ENDING\n",
    "judging": 'WANTED = "!"\n\ndef ends(outputs):\n    return outputs["output"].endswith(WANTED)\n',
}
Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write a module of the user and forget all of them, as a new process would."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def forget() -> None:
        for name in MODULES:
            sys.modules.pop(name, None)

    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text)
        forget()

    for name, text in MODULES.items():
        write(name, text)
    yield write
    forget()


def spec_of(**changes: Any) -> ExperimentSpec:
    fields: dict[str, Any] = {
        "name": "app",
        "dataset": {"rows": ROWS},
        "targets": [{"kind": "python", "function": "answering:answer"}],
        "evaluators": [{"use": "judging:ends"}],
    }
    return ExperimentSpec.model_validate(fields | changes)


def newest(n: int) -> list[ExperimentRow]:
    with connect() as catalog:
        found = catalog.execute("select experiment_id from experiments order by started_at desc limit ?", [n])
        identities = [identity for (identity,) in found.fetchall()]
    return [Store().read("experiments", identity)[0] for identity in identities]


def said_of_two_runs(first: ExperimentSpec, second: ExperimentSpec | Callable[[], ExperimentSpec]) -> list[str]:
    """Return what is said of the differences between two runs."""
    run(first)
    run(second if isinstance(second, ExperimentSpec) else second())
    new, old = newest(2)
    shared = MetricReader(Store()).matched(new, old)
    return [difference.text for difference in differences(new, old, shared, first.composites, ({}, {}), ({}, {}))]


@pytest.mark.slow
def test_what_is_reused_is_said_and_a_changed_prompt_of_another_module_refuses_the_run_key(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = spec_of(run_key="nightly")
    run(spec)
    assert "reusing" not in capsys.readouterr().err
    write("prompting", MODULES["prompting"] + "# a comment is no change\n")
    run(spec)
    since = f"{newest(1)[0].started_at:%Y-%m-%d %H:%M} UTC"
    said = f"evalflows: reusing 3 answers of {since} (run_key 'nightly'); --fresh asks again\n"
    assert capsys.readouterr().err == said
    write("judging", MODULES["judging"].replace('"!"', '"?"'))
    with pytest.raises(
        InputError, match=r"then with evaluators ends@\w+, now with ends@\w+ \(judging.WANTED changed\)"
    ):
        run(spec)
    write("judging", MODULES["judging"])
    write("prompting", 'ENDING = "?"\n')
    with pytest.raises(InputError) as refused:
        run(spec)
    assert str(refused.value).partition(" UTC: ")[2] == (
        "the target has changed since: prompting.ENDING; wanted a run_key other than 'nightly', or --fresh for a new "
        "experiment"
    )
    assert len(newest(5)) == 1


@pytest.mark.slow
def test_the_commits_of_a_changed_target_are_named(write: Write) -> None:
    def commit(text: str) -> None:
        subprocess.run(["git", "commit", "-qam", text], check=True)

    for command in (["init", "-q"], ["config", "user.email", "a@b.c"], ["config", "user.name", "a"], ["add", "."]):
        subprocess.run(["git", *command], check=True)
    commit("one")

    def changed() -> ExperimentSpec:
        write("prompting", 'ENDING = "?"\n')
        commit("two")
        write("prompting", 'ENDING = "??"\n')
        return spec_of()

    (said,) = said_of_two_runs(spec_of(), changed)
    commits = r"git commit \w{8}( with uncommitted changes)? then, \w{8} with uncommitted changes now"
    assert re.fullmatch(rf"the target's code changed: prompting\.ENDING; {commits}", said)


def http_spec(url: str, **fields: Any) -> ExperimentSpec:
    return spec_of(targets=[{"kind": "http", "url": url, **fields}], evaluators=["json_valid"])


@pytest.mark.slow
def test_the_version_may_be_declared(write: Write) -> None:
    with serving_application() as application:
        unknown, first, second = (http_spec(application.url, version=version) for version in (None, "v1", "v2"))
        (cannot_tell,) = said_of_two_runs(unknown, unknown)
        assert cannot_tell.startswith("cannot tell whether the target changed: ")
        (same,) = said_of_two_runs(first, first)
        assert same.startswith("the application reports the same version on both sides")
        assert said_of_two_runs(first, second) == []
    assert [row.application_version for row in newest(2)] == ["v2", "v1"]


@pytest.mark.slow
def test_a_header_of_each_answer_may_say_it(write: Write) -> None:
    with serving_application() as application:
        for version in ("v1", "v1", "v2"):
            application.replies.append(says({}, X_Version=version))
        run(http_spec(application.url, version_header="x-version", max_in_flight=1))
    assert [row.application_version for row in newest(1)] == ["v1, v2"]
    with connect() as catalog:
        query = "select application_version, count(*) from outputs group by 1 order by 1"
        assert catalog.execute(query).fetchall() == [("v1", 2), ("v2", 1)]


@pytest.mark.slow
def test_an_address_may_say_it_before_anything_is_posted(write: Write) -> None:
    with serving_application() as application:
        spec = http_spec(application.url, version_url=f"{application.url}/version")
        spec = spec.model_copy(update={"run_key": "nightly"})
        application.replies.append(says({"commit": "abc"}))
        run(spec)
        assert [row.application_version for row in newest(1)] == [json.dumps({"commit": "abc"})]
        posted = len(application.requests)
        application.replies.append(says({"commit": "def"}))
        with pytest.raises(InputError, match=r'then with application_version \{"commit": "abc"\}, now with \{"commit'):
            run(spec)
        assert len(application.requests) == posted + 1
        application.replies.append(says("down", status=503))
        with pytest.raises(InputError, match=r"version_url: .*: got HTTP 503, wanted the application's version"):
            run(spec)
