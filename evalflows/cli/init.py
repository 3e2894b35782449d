"""Start the evaluations of a repository, all of it or nothing, without changing files that exist.

Does not load Prefect.
"""

import json
import re
from contextlib import ExitStack
from importlib.metadata import distribution
from pathlib import Path

import click

from evalflows.cli.late_commands import with_one_line_errors
from evalflows.cli.output import echo
from evalflows.specs.errors import InputError

TEMPLATES = Path(__file__).parent / "templates"
DEPLOYMENTS = "prefect.yaml"
WORKFLOW = ".github/workflows/evals.yml"
FILES = (
    *("evals/experiment.yaml", "evals/questions.jsonl", "evals/target.py", "evals/evaluators.py"),
    *("evals/test_evals.py", DEPLOYMENTS, WORKFLOW),
)
PACKAGE = "evals/__init__.py"
"""Empty. Without it, an installed package `evals` would hide the folder, and pytest would not find its modules."""

STORE = b"data/store/"
SKILL = ".agents/skills/evalflows/SKILL.md"
AGENTS = "AGENTS.md"
BEGIN_OF_AGENTS = b"<!-- evalflows: begin -->"
"""Marks our section of AGENTS.md."""


def scaffold(*, with_agents: bool = False) -> list[str]:
    """Write the files that do not exist in the current folder. Return a line per file that says what was done.

    `with_agents` adds the skill for coding agents, and a section of AGENTS.md.

    Raise InputError, with nothing written, if one of them cannot be.
    """
    if Path("evals.py").exists():
        raise InputError("evals.py: would be hidden by the package evals/, wanted another file name")
    files = {name: _filled(name) for name in FILES}
    if Path(PACKAGE).exists() or not Path("evals").exists():  # a folder of the user's does not become a package
        files = {PACKAGE: b"", **files}
    name, done = "", []
    try:
        with ExitStack() as undo:
            for name, content in files.items():
                done.append(_write(Path(name), content, undo))
            if with_agents:
                done.append(_write(Path(name := SKILL), _filled(SKILL), undo))
                done.append(_add_section(Path(name := AGENTS), _filled(AGENTS), undo))
            name = ".gitignore"
            done.append(_ignore_store(Path(name), undo))
            undo.pop_all()
    except OSError as error:
        raise InputError(f"{name}: cannot be written: {error.strerror or error}; nothing was written") from error
    return done


def _filled(name: str) -> bytes:
    """Return a template with the name of this repository, since teams share a Prefect server, and our requirement."""
    text = (TEMPLATES / Path(name).name).read_bytes()
    repository = re.sub(r"[^a-z0-9]+", "-", Path.cwd().name.lower()).strip("-") or "evals"
    return text.replace(b"@NAME@", repository.encode()).replace(b"@EVALFLOWS@", requirement().encode())


def requirement() -> str:
    """Return what pip installs this package from elsewhere: the commit or the address that it was installed from here,
    or the version of a package index. Empty for a folder or a file of this machine, which is not elsewhere."""
    found = distribution("evalflows")
    origin = json.loads(found.read_text("direct_url.json") or "{}")  # PEP 610; pip leaves passwords out
    url, source = str(origin.get("url", "")), origin.get("vcs_info")
    if source is not None:
        return f"evalflows @ {source['vcs']}+{url}@{source['commit_id']}"
    if url:
        return f"evalflows @ {url}" if url.startswith("https:") else ""
    return f"evalflows=={found.version}"


def lacking_deployments() -> str | None:
    """Return our part of `deployments` for a prefect.yaml that has none of our flows; None if it has some."""
    if "evalflows.flows." in Path(DEPLOYMENTS).read_text(encoding="utf-8", errors="replace"):
        return None
    head, _, block = _filled(DEPLOYMENTS).decode().partition("\ndeployments:\n")
    pool = head.partition("&work_pool ")[2].strip()
    return f"deployments:\n{block.replace('*work_pool', pool)}"


def _write(path: Path, content: bytes, undo: ExitStack) -> str:
    """Write a file and its folders, unless it exists."""
    if path.exists() or path.is_symlink():
        return f"kept   {path}"
    for folder in reversed(path.parents):
        if not folder.exists():
            folder.mkdir()
            undo.callback(folder.rmdir)
    with path.open("xb") as file:
        undo.callback(path.unlink)
        file.write(content)
    return f"wrote  {path}"


def _ignore_store(path: Path, undo: ExitStack) -> str:
    """Append the store to .gitignore, unless it is there. Nobody commits it on purpose: it grows with every run."""
    if not path.exists():
        return _write(path, STORE + b"\n", undo)
    content = path.read_bytes()
    if any(line.strip().strip(b"/") in (b"data", b"data/store") for line in content.splitlines()):
        return f"kept   {path}"
    with path.open("ab", buffering=0) as file:
        file.write((b"" if content.endswith(b"\n") or not content else b"\n") + STORE + b"\n")
    return f"added  {STORE.decode()} to {path}"


def _add_section(path: Path, section: bytes, undo: ExitStack) -> str:
    """Append our section to a file, or write the file; keep the section if there is one."""
    if not path.exists():
        return _write(path, section, undo)
    content = path.read_bytes()
    if BEGIN_OF_AGENTS in content:
        return f"kept   {path}"
    undo.callback(path.write_bytes, content)
    path.write_bytes(content + (b"\n" if content.endswith(b"\n") else b"\n\n") + section)
    return f"added  a section to {path}"


NEXT = """
Next, without a key or a network:
  evalflows gate evals/experiment.yaml  # may the candidate be released?
  python -m pytest evals/test_evals.py  # the same as tests; needs pytest
Then replace the functions in evals/target.py by calls of your application.
For coding agents: evalflows init --agents"""


@click.command()
@click.option(
    "--agents", "with_agents", is_flag=True, help="Also write a skill for coding agents, and a section of AGENTS.md."
)
@with_one_line_errors
def init(with_agents: bool) -> None:
    """Start the evaluations of the repository in the current folder: write a small example that runs as is.

    The example is an experiment with a gate, its questions, targets, an evaluator and a pytest test in evals/;
    prefect.yaml with deployments; a GitHub workflow that decides the gate. Existing files are kept.
    """
    done = scaffold(with_agents=with_agents)
    for line in done:
        echo(line)
    if (block := lacking_deployments()) is not None:
        echo(f"\nTo deploy it from your prefect.yaml, add:\n{block.rstrip()}")
    if f"wrote  {WORKFLOW}" in done and not requirement():
        echo(f"\nSet EVALFLOWS in {WORKFLOW} to what pip can install there.")
    echo(NEXT)
