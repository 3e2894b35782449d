"""action.yml and the template for GitLab: their own steps, with a stand-in for the command and for the APIs."""

import io
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
GITLAB = yaml.safe_load((ROOT / "ci" / "decide.gitlab-ci.yml").read_text(encoding="utf-8"))

STAND_IN = """#!{python}
import json, os, pathlib, sys
here = pathlib.Path(os.environ["STAND_IN"])
with (here / "asked.jsonl").open("a") as file:
    file.write(json.dumps(sys.argv[1:]) + chr(10))
said = dict(argument[2:].partition("=")[::2] for argument in sys.argv[1:] if argument.startswith("--"))
(here / "store").write_text(os.environ.get("EVALFLOWS_STORE", ""))
code = int(os.environ["CODE"])
if code == 2:
    sys.exit(print("evalflows: a.jsonl: got ```no``` id", file=sys.stderr) or 2)
pathlib.Path(said["summary"]).write_text("decided: " + {{0: "PASS", 1: "FAIL", 3: "NOT ENOUGH EVIDENCE"}}[code])
raise SystemExit(code)
"""


@dataclass
class Api:
    """What GitHub or GitLab has: comments, and artifacts with a file."""

    address: str = ""
    comments: list[dict[str, Any]] = field(default_factory=list)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)  # method, path, authorization
    refuses: bool = False

    def answer(self, method: str, path: str, query: str, body: Any) -> Any:
        """Return what the API says, as JSON or bytes; a text is an address that it redirects to."""
        number = path.rpartition("/")[2]
        if path.startswith("/zip/"):
            return f"{self.address}/blob/{number}"
        if path.startswith("/blob/"):
            packed = io.BytesIO()
            with zipfile.ZipFile(packed, "w") as archive:
                archive.writestr("results/baseline.jsonl", f"of artifact {number}")
            return packed.getvalue()
        if path.endswith("/actions/artifacts"):
            return {"artifacts": self.artifacts}
        if method == "POST":
            self.comments.append(comment(body["body"], number=len(self.comments) + 1))
        if method in {"PATCH", "PUT"}:
            next(one for one in self.comments if one["id"] == int(number))["body"] = body["body"]
        first = 100 * (int(query.rpartition("&page=")[2] or 1) - 1)
        return self.comments[first : first + 100]


@contextmanager
def serving(api: Api) -> Iterator[Api]:
    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            place = urlsplit(self.path)
            api.asked.append((self.command, place.path, self.headers.get("Authorization")))
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null")
            said = {} if api.refuses else api.answer(self.command, place.path, place.query, body)
            content = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(403 if api.refuses else 302 if isinstance(said, str) else 200)
            if isinstance(said, str):
                self.send_header("Location", said)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = do_PUT = reply  # noqa: N815

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    api.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()


def comment(body: str, number: int, association: str = "NONE", kind: str = "Bot") -> dict[str, Any]:
    return {"id": number, "body": body, "author_association": association, "user": {"type": kind}}


@dataclass
class Runner:
    """A machine that runs the shell steps of the action, as GitHub does: nothing else is in the environment."""

    folder: Path
    api: Api

    def __post_init__(self) -> None:
        binaries = self.folder / "temp" / "evalflows" / "bin"
        binaries.mkdir(parents=True)
        (binaries / "python").symlink_to(sys.executable)
        stand_in = binaries / "evalflows"
        stand_in.write_text(STAND_IN.format(python=sys.executable))
        stand_in.chmod(0o755)
        event = {"pull_request": {"number": 7}, "repository": {"default_branch": "main", "id": 1}}
        (self.folder / "event.json").write_text(json.dumps(event))

    def run(self, code: int = 0, **given: str) -> int:
        """Return the exit code of the job."""
        inputs = {name: one.get("default", "") for name, one in ACTION["inputs"].items()}
        inputs |= {name.replace("_", "-"): value for name, value in given.items()} | {"token": "secret"}
        self.outputs: dict[str, str] = {}
        job = 0
        for step in ACTION["runs"]["steps"]:
            if step.get("name") == "Comment" and inputs["comment"] != "true":
                continue
            if "run" not in step or step["name"] == "Install":
                continue
            done = self.in_bash(step, inputs, {"CODE": str(code)})
            self.log = done.stdout + done.stderr
            if not step.get("continue-on-error"):
                job = done.returncode
        return job

    def in_bash(
        self, step: dict[str, Any], inputs: dict[str, str], more: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        def value(expression: str) -> str:
            found = re.fullmatch(r"\$\{\{ (inputs|steps\.decide\.outputs)\.([\w-]+) \}\}", expression)
            assert found, f"{expression}: wanted an input or an output, so that no input is shell"
            return (inputs if found[1] == "inputs" else self.outputs)[found[2]]

        assert "${{" not in step["run"]
        output = self.folder / "output"
        output.write_text("")
        environment = {
            **{name: value(expression) for name, expression in step["env"].items()},
            **more,
            "PATH": os.environ["PATH"],
            "STAND_IN": str(self.folder),
            "RUNNER_TEMP": str(self.folder / "temp"),
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_API_URL": self.api.address,
            "GITHUB_REPOSITORY": "owner/app",
            "GITHUB_EVENT_PATH": str(self.folder / "event.json"),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
        }
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=60)
        self.outputs |= dict(line.split("=", 1) for line in output.read_text().splitlines())
        return done

    @property
    def asked(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "asked.jsonl").read_text().splitlines()]


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    with serving(Api()) as api:
        yield Runner(tmp_path, api)


def test_a_decision_is_the_exit_code_the_outputs_the_summary_and_the_comment(runner: Runner) -> None:
    metrics = "accuracy=0.05\n  quality=0.1  \n\n"
    given = {"baseline": "a.jsonl", "candidate": "b.jsonl\nc d.jsonl", "metrics": metrics, "cluster": "--store=x"}
    assert runner.run(code=1, **given, rules="gates.yaml") == 1
    assert {name: runner.outputs[name] for name in ("conclusion", "exit-code")} == {
        "conclusion": "FAIL",
        "exit-code": "1",
    }
    (asked,) = runner.asked
    assert asked == [
        *("decide", "--metric=accuracy=0.05", "--metric=quality=0.1", "--cluster=--store=x", "--gates=gates.yaml"),
        *(f"--summary={runner.outputs['report']}", "--", "a.jsonl", "b.jsonl", "c d.jsonl"),
    ]
    assert (runner.folder / "summary.md").read_text() == "decided: FAIL\n"
    assert [one["body"] for one in runner.api.comments] == ["<!-- evalflows decide -->\ndecided: FAIL"]
    assert {authorization for _, _, authorization in runner.api.asked} == {"Bearer secret"}
    assert [one["name"] for one in ACTION["runs"]["steps"] if one.get("if")] == ["Comment"]
    assert ACTION["outputs"].keys() == {"conclusion", "exit-code", "report"}


def test_the_comment_is_updated_wherever_it_is_and_no_strangers_is_taken(runner: Runner) -> None:
    marked = "<!-- evalflows decide -->\nPASS"
    runner.api.comments = [comment("hello", number) for number in range(1, 101)]
    runner.api.comments += [comment(marked, 101, kind="User"), comment("<!-- evalflows other -->\n", 102)]
    assert runner.run(code=0, baseline="a", candidate="b") == 0
    assert runner.run(code=3, baseline="a", candidate="b") == 3
    assert [one["body"].splitlines()[-1] for one in runner.api.comments[100:]] == [
        "PASS",
        "<!-- evalflows other -->",
        "decided: NOT ENOUGH EVIDENCE",
    ]
    assert runner.api.asked[-1][:2] == ("PATCH", "/repos/owner/app/issues/comments/103")


@pytest.mark.parametrize(("code", "allow", "job"), [(3, "true", 0), (1, "true", 1), (2, "true", 2), (3, "yes", 3)])
def test_only_not_enough_evidence_can_be_let_pass(runner: Runner, code: int, allow: str, job: int) -> None:
    given = {"allow_not_enough_evidence": allow, "comment": "false"}
    assert runner.run(code=code, baseline="a", candidate="b", **given) == job
    assert runner.outputs["exit-code"] == str(code)
    assert runner.api.asked == []


def test_bad_input_replaces_what_the_comment_said_before(runner: Runner) -> None:
    assert runner.run(code=0, baseline="a", candidate="b") == 0
    assert runner.run(code=2, baseline="a", candidate="b") == 2
    (said,) = runner.api.comments
    assert said["body"].splitlines()[1:] == [
        "**No decision** (exit code 2)",
        "",
        "    evalflows: a.jsonl: got ```no``` id",
    ]
    assert runner.outputs["conclusion"] == ""


def test_a_comment_that_is_refused_does_not_change_the_job(runner: Runner) -> None:
    runner.api.refuses = True
    assert runner.run(code=0, baseline="a", candidate="b") == 0
    assert runner.log == "comment: not written: HTTP Error 403: Forbidden\n"
    (runner.folder / "event.json").write_text("{}")
    assert runner.run(code=0, baseline="a", candidate="b") == 0
    assert runner.log == "comment: not written: this is no pull or merge request\n"


def test_an_artifact_is_the_newest_of_the_repositorys_default_branch(runner: Runner) -> None:
    def artifact(number: int, branch: str = "main", repository: int = 1, expired: bool = False) -> dict[str, Any]:
        run = {"head_branch": branch, "head_repository_id": repository}
        address = f"{runner.api.address}/zip/{number}"
        made = f"2026-11-{number:02}T00:00:00Z"
        return {"expired": expired, "created_at": made, "archive_download_url": address, "workflow_run": run}

    newer = [artifact(9, "feature"), artifact(8, repository=2), artifact(7, expired=True)]
    runner.api.artifacts = [artifact(2), artifact(3), *newer]
    assert runner.run(baseline="artifact:evals/results/baseline.jsonl", candidate="b", comment="false") == 0
    baseline = Path(runner.asked[-1][-2])
    assert baseline.read_text() == "of artifact 3"
    assert [authorization for _, path, authorization in runner.api.asked if path.startswith("/blob")] == [None]
    runner.api.artifacts = newer
    assert runner.run(baseline="artifact:evals", candidate="b", comment="false") == 2
    assert "got 3 artifacts of that name, none of them kept and of branch main" in runner.log


def test_an_approved_baseline_is_the_commands_to_read(runner: Runner) -> None:
    options = {"lower_is_better": "toxicity\nwer", "higher_is_better": "bias", "only_shared": "true"}
    files = {"evidence": "e.json", "junit": "j.xml"}
    given = {"baseline": "approved:sam's", "candidate": "b", "comment": "false", "store": "of the team"}
    assert runner.run(**given, **options, **files) == 0
    (asked,) = runner.asked
    assert asked[1:7] == [
        *("--lower-is-better=toxicity", "--lower-is-better=wer", "--higher-is-better=bias", "--evidence=e.json"),
        *("--junit=j.xml", "--only-shared"),
    ]
    assert asked[-2] == "approved:sam's"
    assert (runner.folder / "store").read_text() == "of the team"


def test_gitlab_decides_comments_and_ends_with_the_exit_code(tmp_path: Path, runner: Runner) -> None:
    job = GITLAB[".evalflows-decide"]
    pip = tmp_path / "temp" / "evalflows" / "bin" / "pip"
    pip.symlink_to("/bin/true")
    (tmp_path / "ci").symlink_to(ROOT / "ci")
    environment = {
        **job["variables"],
        "CODE": "1",
        "DECIDE": "--metric accuracy=0.05",
        "EVALFLOWS": "evalflows.whl",
        "EVALFLOWS_CI_TOKEN": "secret",
        "PATH": f"{pip.parent}:{os.environ['PATH']}",
        "STAND_IN": str(tmp_path),
        "CI_API_V4_URL": runner.api.address,
        "CI_PROJECT_ID": "1",
        "CI_MERGE_REQUEST_IID": "7",
    }

    def run(script: str) -> int:
        command = ["bash", "-eo", "pipefail", "-c", "\n".join(job[script])]
        return subprocess.run(command, cwd=tmp_path, env=environment, timeout=60).returncode

    assert (run("script"), run("after_script"), run("after_script")) == (1, 0, 0)
    assert runner.asked[0] == [
        *("decide", "--metric", "accuracy=0.05", "--summary=decision.md", "--junit=decision.xml"),
        *("--", "baseline.jsonl", "candidate.jsonl"),
    ]
    assert [one["body"] for one in runner.api.comments] == ["<!-- evalflows decide -->\ndecided: FAIL"]
    assert runner.api.asked[-1][:2] == ("PUT", "/projects/1/merge_requests/7/notes/1")
