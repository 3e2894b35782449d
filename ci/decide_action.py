"""The step `Decide` of action.yml: fetch the baseline, run `evalflows decide`, and write its summary and outputs.

Reads the action's inputs from variables DECIDE_…, and ends with the exit code of the command.
"""

import json
import os
import subprocess
import sys
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

CONCLUSIONS = {0: "PASS", 1: "FAIL", 3: "NOT ENOUGH EVIDENCE"}
OPEN, BAD_INPUT = 3, 2
OPTIONS = (
    *(
        "metric",
        "superiority",
        "threshold",
        "lower-is-better",
        "higher-is-better",
        "cluster",
        "slice",
        "format",
        "gates",
    ),
    *("evidence", "junit"),
)
"""Options of the command whose values are inputs, one a line."""

TIMEOUT_S = 60


class NoBaselineError(Exception):
    """There is no baseline as it was named; the message says what there is."""


def lines(inputs: Mapping[str, str], name: str) -> list[str]:
    return [
        line.strip() for line in inputs.get(f"DECIDE_{name.upper().replace('-', '_')}", "").splitlines() if line.strip()
    ]


def arguments(inputs: Mapping[str, str], baseline: str, report: Path) -> list[str]:
    """Return the arguments of `evalflows`. A value is one argument with its option, so it cannot be another option."""
    options = [f"--{name}={line}" for name in OPTIONS for line in lines(inputs, name)]
    options += ["--only-shared"] if inputs.get("DECIDE_ONLY_SHARED") == "true" else []
    return ["decide", *options, f"--summary={report}", "--", baseline, *lines(inputs, "candidate")]


def baseline_in(inputs: Mapping[str, str], folder: Path) -> str:
    """Return the baseline as the command takes it. Raise NoBaselineError if it cannot be fetched."""
    given = " ".join(lines(inputs, "baseline"))
    kind, _, name = given.partition(":")
    if kind == "artifact":
        return str(_artifact(inputs, *name.partition("/")[::2], folder))
    return given


def _artifact(inputs: Mapping[str, str], name: str, inner: str, folder: Path) -> Path:
    """Fetch the newest artifact of the default branch, made by the repository itself: a fork may have its name too."""
    event = json.loads(Path(inputs["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    branch, repository = event["repository"]["default_branch"], event["repository"]["id"]
    address = f"{inputs['GITHUB_API_URL']}/repos/{inputs['GITHUB_REPOSITORY']}/actions/artifacts"
    query = urllib.parse.urlencode({"name": name, "per_page": 100})
    listed = json.loads(_fetched(f"{address}?{query}", inputs))["artifacts"]
    found = [artifact for artifact in listed if _is_of(artifact, branch, repository)]
    if not found:
        what = f"{len(listed)} artifacts of that name, none of them kept and of branch {branch}"
        raise NoBaselineError(f"baseline artifact:{name}: got {what}; wanted a run of {branch} that uploads it")
    newest = max(found, key=lambda artifact: artifact["created_at"])
    archive, unpacked = folder / "baseline.zip", folder / "baseline"
    archive.write_bytes(_fetched(newest["archive_download_url"], inputs))
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(unpacked)
    return unpacked / inner


def _is_of(artifact: Mapping[str, Any], branch: str, repository: int) -> bool:
    run = artifact.get("workflow_run") or {}
    return not artifact["expired"] and (run.get("head_branch"), run.get("head_repository_id")) == (branch, repository)


def _fetched(address: str, inputs: Mapping[str, str]) -> bytes:
    request = urllib.request.Request(address, headers={"Accept": "application/vnd.github+json"})
    # the redirect to where the archive is has its own signature, and must not get the token
    request.add_unredirected_header("Authorization", f"Bearer {inputs.get('DECIDE_TOKEN', '')}")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return bytes(answer.read())
    except OSError as error:
        raise NoBaselineError(f"baseline: {address.partition('?')[0]}: {error}") from error


def _evalflows() -> str:
    return str(Path(sys.executable).with_name("evalflows"))


def _decided(inputs: Mapping[str, str], folder: Path, report: Path) -> int:
    """Return the exit code of the command. If it decides nothing, the report says why."""
    try:
        command = [_evalflows(), *arguments(inputs, baseline_in(inputs, folder), report)]
        store = {"EVALFLOWS_STORE": inputs["DECIDE_STORE"]} if inputs.get("DECIDE_STORE") else {}
        done = subprocess.run(command, env={**inputs, **store}, stderr=subprocess.PIPE, text=True)
        code, said = done.returncode, done.stderr
    except NoBaselineError as error:
        code, said = BAD_INPUT, f"{error}\n"
    print(said, end="", file=sys.stderr)
    if not report.exists():
        report.write_text(f"**No decision** (exit code {code})\n\n{''.join(_indented(said))}", encoding="utf-8")
    return code


def _indented(text: str) -> Iterator[str]:
    """Yield lines that Markdown shows as they are."""
    for line in text.splitlines():
        yield f"    {line}\n"


def main() -> int:
    inputs = os.environ
    folder = Path(inputs["RUNNER_TEMP"])
    report = folder / f"evalflows-{os.getpid()}.md"
    code = _decided(inputs, folder, report)
    with Path(inputs["GITHUB_STEP_SUMMARY"]).open("a", encoding="utf-8") as summary:
        summary.write(f"{report.read_text(encoding='utf-8')}\n")
    with Path(inputs["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as outputs:
        outputs.write(f"conclusion={CONCLUSIONS.get(code, '')}\nexit-code={code}\nreport={report}\n")
    return 0 if code == OPEN and inputs.get("DECIDE_ALLOW_OPEN") == "true" else code


if __name__ == "__main__":
    sys.exit(main())
