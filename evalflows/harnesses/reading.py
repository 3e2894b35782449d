"""Read the results of other harnesses from a file, a folder, a glob or standard input, whatever their format."""

import sys
from collections.abc import Mapping
from glob import has_magic
from pathlib import Path

from evalflows.harnesses.assembling import Format, NoResultsError, assembled, has, rows_in
from evalflows.harnesses.benchmarks import read_helm, read_inspect, read_lm_eval, read_openai_evals
from evalflows.harnesses.content import content_of
from evalflows.harnesses.platforms import read_braintrust, read_langfuse, read_langsmith
from evalflows.harnesses.results import SystemResults
from evalflows.harnesses.runners import read_deepeval, read_junit, read_promptfoo, read_pytest_json
from evalflows.harnesses.tables import read_table
from evalflows.specs.errors import InputError, describe, short
from evalflows.specs.files import located
from evalflows.store.file_formats import READERS, open_file, suffix

_PROMPTFOO = "evalId results | results config shareableUrl | timestamp results stats | provider success vars"
_LANGSMITH = "run_type start_time | run_id key | example_id execution_time"
_LANGFUSE = "timestamp scores observations | timestamp project_id | data meta | traceId source | trace_id source"

FORMATS: Mapping[str, Format] = {
    "promptfoo": Format("promptfoo", _PROMPTFOO, read_promptfoo, repeats=True, is_sparse=True),
    "inspect": Format("Inspect", "eval status", read_inspect),
    "lm-eval": Format("lm-eval", "doc_id filtered_resps | results configs versions", read_lm_eval),
    "helm": Format("HELM", "instance_id stats", read_helm),
    "deepeval": Format("DeepEval", "testCases", read_deepeval, repeats=True),
    "ragas": Format("ragas", "user_input", read_table),
    "junit": Format("JUnit XML", "testsuites | testsuite", read_junit),
    "pytest-json": Format("pytest-json-report", "tests exitcode", read_pytest_json),
    "openai-evals": Format("OpenAI evals", "spec", read_openai_evals),
    "mlflow": Format("MLflow", "columns data", read_table),
    "langsmith": Format("LangSmith", _LANGSMITH, read_langsmith, repeats=True),
    "langfuse": Format("Langfuse", _LANGFUSE, read_langfuse, repeats=True),
    "braintrust": Format("Braintrust", "span_id root_span_id", read_braintrust, repeats=True),
    "table": Format("table", "", read_table),
}
"""By the names that `--format` takes, in the order in which they are tried."""

ENDINGS = (*READERS, ".eval", ".xml")  # of the files of a folder that are read


def read_results(source: str, format: str | None = None) -> list[SystemResults]:  # noqa: A002 (its name for users)
    """Return the results of each system in each file of a source: a file, a folder, a glob, or `-` (standard input).

    `format` is a key of FORMATS; by default, the content tells it. Of a folder, all files that are results are read.
    Raise InputError, in one line, if there are none, or if a file of results is not whole.
    """
    if format is not None and format not in FORMATS:
        raise InputError(f"format: got {format!r}, wanted one of {', '.join(FORMATS)}")
    if source == "-":
        return _read(sys.stdin.buffer.read(), "standard input", format)
    path = located(source)
    if path.is_dir():
        return _read_folder(path, source, format)
    if path.exists() or not has_magic(source):
        return _read_file(path, source, format)
    paths = [each for each in sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor)))) if each.is_file()]
    if not paths:
        raise InputError(f"{source}: got no file of that pattern, wanted results")
    return [results for each in paths for results in _read_file(each, str(each), format)]


def _read_folder(folder: Path, source: str, named: str | None) -> list[SystemResults]:
    """Return the results of all files of a folder that are results. Raise InputError if none is."""
    found: list[SystemResults] = []
    problem = InputError(f"{source}: got no file ending in {', '.join(ENDINGS)}, wanted results")
    for path in sorted(folder.rglob("*")):
        below = path.relative_to(folder)
        if suffix(path) not in ENDINGS or any(part.startswith(".") for part in below.parts) or not path.is_file():
            continue
        try:
            found += _read_file(path, str(Path(source) / below), named)
        except NoResultsError as error:
            problem = error
    if not found:
        raise problem
    return found


def _read_file(path: Path, where: str, named: str | None) -> list[SystemResults]:
    try:
        with open_file(path) as file:
            return _read(file.read(), where, named)
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"{where}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _read(raw: bytes, where: str, named: str | None) -> list[SystemResults]:
    content = content_of(raw, where)
    kinds = [FORMATS[named]] if named else FORMATS.values()
    kind = next((each for each in kinds if has(content, each.marks)), None)
    if kind is None:
        got = f"columns {short(', '.join(rows[0]))}" if (rows := rows_in(content)) else short(content)
        wanted = f"{FORMATS[named].title}: {FORMATS[named].marks}" if named else f"results: {', '.join(FORMATS)}"
        raise NoResultsError(f"{where}: got {got}, wanted {wanted}")
    try:
        found = [*kind.read(content, where)]
        results = [*assembled(found, kind, where)] if found else []
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{where}: not as {kind.title} writes it: {describe(error)}") from error
    if not results:
        raise InputError(f"{where}: got no results of {kind.title}, wanted at least one")
    return results
