"""Write the start of a repository's evaluations, all of it or nothing, without changing files that exist."""

from contextlib import ExitStack
from pathlib import Path

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
