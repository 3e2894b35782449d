"""Start the evaluations of a repository, all of it or nothing, without changing files that exist.

Does not load Prefect.
"""

from contextlib import ExitStack
from pathlib import Path

import click

from evalflows.cli.late_commands import one_line_errors
from evalflows.cli.output import echo
from evalflows.cli.show import VERBOSE
from evalflows.specs.errors import InputError

TEMPLATES = Path(__file__).parent / "templates"
FILES = (
    "evals/experiment.yaml",
    "evals/questions.jsonl",
    "evals/target.py",
    "evals/evaluators.py",
    "evals/test_evals.py",
    "prefect.yaml",
    ".github/workflows/evals.yml",
)
PACKAGE = "evals/__init__.py"
"""Empty. Without it, an installed package `evals` would hide the folder, and pytest would not find its modules."""

STORE = b"data/store/"


def scaffold() -> list[str]:
    """Write the files that do not exist in the current folder. Return a line per file that says what was done.

    Raise InputError, with nothing written, if one of them cannot be.
    """
    if Path("evals.py").exists():
        raise InputError("evals.py: would be hidden by the package evals/, wanted another file name")
    files = {name: (TEMPLATES / Path(name).name).read_bytes() for name in FILES}
    if Path(PACKAGE).exists() or not Path("evals").exists():  # a folder of the user's does not become a package
        files = {PACKAGE: b"", **files}
    name, done = "", []
    try:
        with ExitStack() as undo:
            for name, content in files.items():
                done.append(_write(Path(name), content, undo))
            name = ".gitignore"
            done.append(_ignore_store(Path(name), undo))
            undo.pop_all()
    except OSError as error:
        raise InputError(f"{name}: cannot be written: {error.strerror or error}; nothing was written") from error
    return done


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


NEXT = """
Next, without a key or a network:
  evalflows gate evals/experiment.yaml  # may the candidate be released?
  python -m pytest evals/test_evals.py  # the same as tests; needs pytest
Then replace the functions in evals/target.py by calls of your application."""


@click.command()
@VERBOSE
def init(verbose: bool) -> None:
    """Start the evaluations of the repository in the current folder: write a small example that runs as it is.

    An experiment with a gate, its questions, targets, an evaluator and a pytest test in evals/; prefect.yaml with
    deployments; a GitHub workflow that decides the gate. Files that exist are kept.
    """
    with one_line_errors(verbose):
        for line in scaffold():
            echo(line)
        echo(NEXT)
