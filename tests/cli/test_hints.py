"""Every command that a message proposes is run where it is proposed: none ends in bad input, or changes nothing."""

import ast
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import click
import kept_store
import pytest
import yaml
from alarmed import SPEC, alarmed_production
from catalog_rows import rows
from click.testing import CliRunner, Result
from endpoint import Endpoint, completion, serving
from made_windows import IDENTITY, NAME

from evalflows import decide_on, run
from evalflows import serving as serving_module
from evalflows.cli import running
from evalflows.cli.evaluate_traces import show_batch, show_changes
from evalflows.cli.main import cli
from evalflows.dashboard import production as production_pages
from evalflows.prefect_server import access_denied
from evalflows.specs import ExperimentSpec, hints
from evalflows.specs.gate import GateSpec
from evalflows.specs.hints import Hint
from evalflows.store.erasing import Subjects, keep_plan, new_plan
from evalflows.store.leases import hold_lease
from evalflows.store.queries.continuing import continued_by, continuing
from evalflows.store.spool import RECEIVED, spool_folder
from evalflows.store.store import Store

SOURCE = Path(hints.__file__).parents[1]
KINDS = {
    name: one
    for name, one in inspect.getmembers(hints, inspect.isfunction)
    if one.__annotations__.get("return") is Hint
}


@dataclass
class Reader:
    """Runs commands, and each command that they print."""

    filled_in: dict[str, str] = field(default_factory=lambda: {"QUERY": "select 1"})  # what a person types
    made: list[tuple[str, Hint]] = field(default_factory=list)
    followed: dict[str, int] = field(default_factory=dict)  # how often, by kind

    def run(self, *arguments: str, code: int | None = None) -> Result:
        done = CliRunner(env={"COLUMNS": "2000"}).invoke(cli, list(arguments))
        if code is not None:
            assert done.exit_code == code, done.output
        return done

    def __call__(self, *arguments: str, code: int = 0) -> dict[str, Result]:
        """Run a command, and what it proposes; return what the latter did, by kind."""
        self.made.clear()
        done = self.run(*arguments, code=code)
        return self.follow(" ".join(done.output.split()))

    def follow(self, text: str) -> dict[str, Result]:
        """Run the commands that a text proposes."""
        proposed = {hint.command: (kind, hint) for kind, hint in self.made if hint.command in text}
        assert proposed, text
        results: dict[str, Result] = {}
        for command, (kind, _) in proposed.items():
            program, *arguments = shlex.split(command)
            results[kind] = self.run(*(self.filled_in.get(one, one) for one in arguments))
            assert program == "evalflows"
            expected = {"doctor": (0, 4), "gate_against": (2,)}.get(kind, (0, 1, 3))  # another judge than production's
            assert results[kind].exit_code in expected, f"{command}: {results[kind].output}"
            self.followed[kind] = self.followed.get(kind, 0) + 1
        return results


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    """A reader who learns what hints are made. Servers end as soon as they begin."""
    one = Reader()

    def noting(kind: str, make: Callable[..., Hint]) -> Callable[..., Hint]:
        def noted(*arguments: Any, **named: Any) -> Hint:
            one.made.append((kind, hint := make(*arguments, **named)))
            return hint

        return noted

    for kind, make in KINDS.items():
        monkeypatch.setattr(hints, kind, noting(kind, make))
    listen = serving_module.listen
    monkeypatch.setattr(serving_module, "listen", lambda host, port, **named: listen(host, 0, **named))
    monkeypatch.setattr(serving_module, "serve", lambda *given, finish=None, **named: finish() if finish else None)
    return one


def write(folder: Path, answers: Sequence[str], **fields: Any) -> str:
    rows = [
        {"id": f"e{n}", "inputs": {"q": f"q{n}"}, "outputs": {"a": "yes"}, "metadata": {"said": said}}
        for n, said in enumerate(answers)
    ]
    recorded = {"kind": "recorded", "column": "said"}
    spec = {"name": "my app", "dataset": {"rows": rows}, "targets": [recorded], "evaluators": ["exact_match"]}
    path = folder / "my spec.yaml"
    path.write_text(yaml.safe_dump(spec | fields))
    return str(path)


def in_an_empty_store(reader: Reader, folder: Path) -> None:
    """Nothing is there yet, so each list says how to begin; then the usual loop: change, run again."""
    data, labels, traces = folder / "rows.jsonl", folder / "labels.csv", folder / "traces.jsonl"
    data.write_text('{"inputs": {"q": "q0"}, "outputs": {"a": "yes"}}\n')
    gate = {"name": "release", "non_inferiority": {"exact_match": 0.05}}
    spec = write(folder, ["yes"] * 40, gates=[gate])
    reader.filled_in |= {"SPEC": spec}
    first = reader("show", "my app", code=2)["run"].stdout
    (identity,) = [one for (one,) in rows("select experiment_id from experiments")]
    assert f"next: evalflows baseline approve {identity}" in first, "the first of its name"
    reader.filled_in |= {"EXPERIMENT": identity, "FILE": str(data)}
    reader("dataset", "ls")
    reader("baseline", "ls")
    reader.filled_in["FILE"] = str(labels)
    run_id, *_ = [one for (one,) in rows(f"select run_id from outputs where experiment_id = '{identity}'")]
    labels.write_text(f"run_id,metric,value,reviewer\n{run_id},exact_match,1,ada\n")
    reader("labels", "ls")
    assert "30 drawn at random" in reader("labels", "agreement", identity, "exact_match")["label_next"].output
    said = [{"key": f"{side}.value", "value": {"stringValue": "yes"}} for side in ("input", "output")]
    times = {"startTimeUnixNano": "1", "endTimeUnixNano": "2"}
    trace = {"traceId": "ab" * 16, "spanId": "cd" * 8, "name": "a", "attributes": said} | times
    traces.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [trace]}]}]}) + "\n")
    assert reader("judge", identity, "--stored", code=2)["judge_again"].exit_code == 0
    assert "the same score" in reader("judge", identity, "--stored")["judged_again"].output
    reader.filled_in["FILE"] = str(traces)
    reader("traces", "ls")
    reader("traces", "show", "nope", code=2)
    reader.made.clear()
    reader.filled_in["NAME"] = "from production"
    reader.follow(production_pages._command(f"trace_id = '{'ab' * 16}'", "1970-01-01"))

    worse = write(folder, ["no"] * 20 + ["yes"] * 20)
    assert not reader("run", worse).keys() - {"diff", "show_worst", "dashboard"}, "it is not to be approved"
    reader("gate", write(folder, ["yes"] * 40, name="other app", gates=[gate]), code=2)
    splits = [{"inputs": {"q": f"f{n}"}, "outputs": {"a": "yes"}, "metadata": {"said": "yes"}} for n in range(40)]
    dataset = {"name": "split", "rows": [one | {"split": "final" if n > 20 else "dev"} for n, one in enumerate(splits)]}
    gated = write(
        folder, [], name="split", dataset=dataset, gates=[{"name": "floor", "thresholds": {"exact_match": 0.5}}]
    )
    assert "look 1 of 3 at the final examples" in reader("run", gated)["gate"].stdout
    reader("plan", spec)
    scores = folder / "scores.jsonl"
    scores.write_text("".join(f'{{"id": {n}, "ok": {n % 2}}}\n' for n in range(40)))
    reader.filled_in |= {"CANDIDATE": str(scores), "NAME=MARGIN": "ok=0.3"}
    reader.run("decide", str(scores), str(scores), "--store", code=0)
    ((recorded,),) = rows("select experiment_id from experiments where name = 'baseline'")
    assert "PASS" in reader("baseline", "approve", recorded)["decide"].stdout
    reader("export", "csv", str(folder / "csv"), "--only", "nope", code=2)


def out_of_budget(reader: Reader, folder: Path) -> None:
    """More budget is needed to go on; a notebook's function cannot be resumed by a command."""
    chat = {"kind": "chat", "connection": "mine", "user": "{q}"}
    with serving(Endpoint(answer=lambda _: completion("yes"))) as endpoint:
        mine = {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m"}
        spec = write(folder, ["yes"] * 10, name="paid", targets=[chat], connections={"mine": mine}, max_calls=6)
        resumed = reader("run", spec, code=4)
        assert (resumed["resume"].exit_code, endpoint.calls) == (0, 10)
        assert "4 model calls made in this run" in resumed["resume"].stdout


def with_a_gate_and_a_comparison(reader: Reader, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALFLOWS_STORE", str(folder / "kept"))
    run(ExperimentSpec.model_validate(kept_store.spec()))
    brief, long = (
        rows(f"select experiment_id from experiments where name = 'kept-{one}'")[0][0] for one in ("brief", "long")
    )
    assert reader("show", "kept").keys() >= {"diff", "dashboard"}, "its gate's baseline is a target"
    reader("show", "cmp-")
    rules = ("failing", {"thresholds": {"quality": 1.01}}), ("worse", {"non_inferiority": {"short": 0.05}})
    for name, rule in (*rules, ("open", {"superiority": {"contains": 0.0}})):
        candidate, baseline = (long, brief) if name == "worse" else (brief, long)
        decide_on(candidate, baseline, GateSpec(name=name, **rule))
        found = reader("explain", name, "--all")
        assert {"failing": "show_all", "worse": "show_worst", "open": "plan"}[name] in found
    assert "wanted another experiment, or a reason" in reader.run("baseline", "approve", brief, code=2).output
    reader("baseline", "approve", brief, "--reason", "agreed")
    path = folder / "kept" / "outputs" / "sealed" / f"experiment_id={long}" / "rows.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    advice = reader("show", "kept", code=4)["doctor"].stdout
    assert f"delete it and `evalflows resume {long}`" in advice and "known_files" not in advice
    path.unlink()
    reader.made.append(("resume", hints.resume(long)))
    reader.follow(advice)
    assert reader.run("doctor").exit_code == 0


def without_a_baseline(reader: Reader, folder: Path) -> None:
    gate = {"name": "release", "non_inferiority": {"exact_match": 0.3}}
    assert "approve" in reader("run", write(folder, ["yes"] * 40, name="new app", gates=[gate]))
    key, signers = folder / "key", folder / "signers"
    if shutil.which("ssh-keygen") is None and os.environ.get("EVALFLOWS_REQUIRE_SSH") != "1":
        reader.followed["approve_signed"] = 0  # nothing can be signed here
        return
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    signers.write_text(f"ada {key.with_suffix('.pub').read_text()}")
    reader.filled_in["KEY"] = str(key)
    spec = write(folder, ["yes"] * 40, name="new app", gates=[gate | {"signers": str(signers)}])
    assert "approve_signed" in reader("gate", spec, code=2)
    assert reader.run("gate", spec).exit_code in (0, 3)


def of_what_others_do(reader: Reader, store: Store, spool: Path, make: Callable[..., Any]) -> None:
    """A run that goes on, an erasure and a receiver that were killed, and a run that a person stops twice."""
    row = make("experiments", experiment_id="exp-running", run_group="grp-1", state="running", n_examples=2)
    store.append("experiments", "exp-running", "start", [row])
    with hold_lease(store, "grp-1", "work", wait=False):
        reader("show", "exp-running")
    keep_plan(store, new_plan("example", "0", None, Subjects()))
    (spool / RECEIVED).mkdir(parents=True)
    (spool / RECEIVED / "1.journal").write_bytes(b"")
    reader("doctor")
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "_signals_stop", lambda text: nullcontext(said.append(text)))
        with running.prepare_runs(False):
            reader.follow(said[0])


def of_production(reader: Reader, folder: Path, store: Store, make: Callable[..., Any]) -> None:
    production = alarmed_production(store, make)
    ((incident,),) = rows("select incident_id from incidents")
    reader("alerts", "show", incident)
    reader("alerts", "show", "nope", code=2)
    reader.run("alerts", "ack", incident, code=0)
    gate = {"name": "release", "non_inferiority": {"accuracy": 0.05}}
    judged_alike = {"evaluators": [{"use": "exact_match", "name": "accuracy"}], "gates": [gate]}
    reader.filled_in["SPEC"] = write(folder, ["yes"] * 40, **judged_alike)
    reader("alerts", "show", incident)
    reader.run("alerts", "ack", incident, "--close", code=0)
    reader("alerts", "ls")
    of = {"batch_id": "batch-9", "evaluation_id": IDENTITY, "name": NAME, "scope": "traces"}
    judged = {"spec": SPEC.model_dump_json(), "evaluators": '[{"name":"accuracy","version":"v1"}]'}
    later = production.at.replace(year=2027)
    batch = make("watermarks", **of, **judged, scores_created=3, items_failed=2, recorded_at=later)
    store.append("watermarks", IDENTITY, "last", [batch])
    for show, incidents in ((show_batch, ()), (show_changes, ([],))):
        reader.made.clear()
        with redirect_stdout(StringIO()) as said:
            show(batch, *incidents)
        reader.follow(" ".join(said.getvalue().split()))


def of_the_server(reader: Reader) -> None:
    """What messages say that need a server, or two."""
    reader.made.clear()
    reader.follow(str(access_denied("http://127.0.0.1:1/api")))
    reader.follow(f"the server runs, wanted {hints.stop_server().code} first")


@pytest.mark.usefixtures("without_prefect")
def test_every_hint_works_where_it_is_printed(
    reader: Reader, tmp_path: Path, store_root: Path, make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    in_an_empty_store(reader, tmp_path)
    out_of_budget(reader, tmp_path)
    with monkeypatch.context() as patch:
        with_a_gate_and_a_comparison(reader, tmp_path, patch)
    without_a_baseline(reader, tmp_path)
    of_what_others_do(reader, Store(), spool_folder(Store()), make)
    of_production(reader, tmp_path, Store(), make)
    of_the_server(reader)
    assert reader.followed.keys() == KINDS.keys()


def test_only_hints_propose_commands() -> None:
    """Commands in other texts would not be run by the test above. Help names some in general, as do stand-ins."""
    proposal = re.compile(rf"\bevalflows ({'|'.join(cli.list_commands(click.Context(cli)))})\b")
    for path in sorted({*SOURCE.rglob("*.py"), *(SOURCE / "tasks").rglob("*.py")}):
        if not {"compat", "templates"} & {*path.parts} and path.name not in ("hints.py", "init.py"):
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text if proposal.search(text) else "")
            passed = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]  # docstrings
            passed += [node.value for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "help"]
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in passed:
                    assert not proposal.search(node.value), f"{path}: {node.value}"


def test_no_command_resumes_what_only_its_own_process_knows(store: Store, make: Callable[..., Any]) -> None:
    for identity, function in (("exp-1", "live:answer-1f-7f"), ("exp-2", "mine:answer")):
        spec = json.dumps({"targets": [{"kind": "python", "function": function}]})
        store.publish("experiments", identity, [make("experiments", experiment_id=identity, spec=spec)])
    assert continuing(store, "exp-1") is None and ".resume()` continues" in continued_by(store, "exp-1")
    assert continued_by(store, "exp-2") == "`evalflows resume exp-2` continues"


def test_commands_begin_as_a_shell_finds_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "my env" / "bin" / "evalflows"
    program.parent.mkdir(parents=True)
    program.write_text("")
    program.chmod(0o755)
    (elsewhere := tmp_path / "elsewhere").mkdir()
    for folder, path, wanted in (
        (tmp_path, "", "my env/bin/evalflows"),
        (program.parent, "", "./evalflows"),
        (elsewhere, "", str(program)),
        (tmp_path, str(program.parent), "evalflows"),
    ):
        monkeypatch.chdir(folder)
        monkeypatch.setenv("PATH", path)
        assert hints.found_as(program) == wanted
    monkeypatch.setattr(hints, "program", "my env/bin/evalflows")
    assert hints.show("x").command == "'my env/bin/evalflows' show x"
