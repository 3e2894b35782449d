"""The peers' own tests of evaluation, run against our counterparts of their APIs: *n of m* of each suite.

Run by `make peers`, before a release; or from the repository's root by `python -m benchmarks.peer_suites --langfuse
PATH --langsmith PATH --langchain PATH`: clones of the first two's repositories, since their source distributions have
no such tests, and the unpacked source distribution of langchain-classic, or its folder in a clone. Their files are
copied into a temporary folder with changed import lines; benchmarks/peer_programs/tests_of_*.py replaces what needs
their server: traces are sent to a receiver of ours, public datasets and a model's vectors are made. Tests that are left
out are listed with the reason, other failures with their last line.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from xml.etree import ElementTree

from benchmarks.arguments import new_parser
from evalflows.specs.grouping import grouped

SUPPORT = Path(__file__).parent / "peer_programs"
ROOT = Path(__file__).parents[1]
HOSTED, PRIVATE = "needs their hosted service", "tests a private function"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A file of a peer's tests, and the tests in it that are left out, each with the reason."""

    name: str
    peer: str  # the argument that names its clone
    paths: tuple[str, ...]  # in the clone: the first that exists
    beside: tuple[str, ...] = ()  # files that the tests import
    left_out: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""  # why all of them are left out


def _of_langchain(name: str, path: str, left_out: Mapping[str, str] = MappingProxyType({}), reason: str = "") -> Suite:
    beside = tuple(f"tests/unit_tests/llms/{module}.py" for module in ("fake_llm", "fake_chat_model"))
    paths = (f"tests/{path}", f"libs/langchain/tests/{path}")
    name = f"LangChain: {name}"
    return Suite(name=name, peer="langchain", paths=paths, beside=beside, left_out=left_out, reason=reason)


SUITES = (
    Suite(
        name="Langfuse: batches",
        peer="langfuse",
        paths=("tests/e2e/test_batch_evaluation.py", "tests/test_batch_evaluation.py"),
        left_out={"test_evaluation_value_type_conversions": "a value of None is no score here: it does not apply"},
    ),
    Suite(
        name="Langfuse: experiments",
        peer="langfuse",
        paths=("tests/e2e/test_experiments.py", "tests/test_experiments.py"),
    ),
    Suite(
        name="LangSmith: evaluation",
        peer="langsmith",
        paths=("python/tests/evaluation/test_evaluation.py", "tests/evaluation/test_evaluation.py"),
    ),
    _of_langchain("comparison", "unit_tests/evaluation/comparison/test_eval_chain.py"),
    _of_langchain("criteria", "unit_tests/evaluation/criteria/test_eval_chain.py"),
    _of_langchain("scoring", "unit_tests/evaluation/scoring/test_eval_chain.py"),
    _of_langchain(
        "answers to questions, loading",
        "unit_tests/evaluation/qa/test_eval_chain.py",
        dict.fromkeys(("test_eval_chain", "test_context_eval_chain"), "a chain's raw answers, which are no scores"),
    ),
    _of_langchain("exact match", "unit_tests/evaluation/exact_match/test_base.py"),
    _of_langchain("regex", "unit_tests/evaluation/regex_match/test_base.py"),
    _of_langchain("JSON", "unit_tests/evaluation/parsing/test_base.py"),
    _of_langchain("JSON, distance", "unit_tests/evaluation/parsing/test_json_distance.py"),
    _of_langchain("JSON, schema", "unit_tests/evaluation/parsing/test_json_schema.py"),
    _of_langchain("string distance", "unit_tests/evaluation/string_distance/test_base.py"),
    _of_langchain("embedding distance", "integration_tests/evaluation/embedding_distance/test_embedding.py"),
    _of_langchain("trajectories", "unit_tests/evaluation/agents/test_eval_chain.py"),
    _of_langchain(
        "names",
        "unit_tests/evaluation/test_imports.py",
        reason="the names here are of one module, with others",
    ),
)

MOVED = {
    "langfuse": (r"langfuse\b", "evalflows.compat.langfuse"),
    "langsmith": (r"langsmith\b", "evalflows.compat.langsmith"),
    "langchain": (r"langchain_classic\.evaluation[\w.]*", "evalflows.compat.langchain"),
}
"""What import lines name, as a pattern, and what instead."""


def changed(text: str, suite: Suite) -> str:
    """Return the text of a file of tests with our package in its import lines, and what it has beside it."""
    theirs, ours = MOVED[suite.peer]
    text = re.sub(rf"(?m)^(\s*(?:from|import) ){theirs}", rf"\1{ours}", text)
    for path in map(PurePosixPath, suite.beside):
        text = text.replace(".".join(path.with_suffix("").parts), path.stem)
    return text


def run(suite: Suite, clone: Path) -> bool:
    """Run a suite, print what came of it, and return whether all tests passed that are not left out."""
    found = next((path for path in suite.paths if (clone / path).is_file()), None)
    if found is None:
        print(f"{suite.name}: got {clone} without {' or '.join(suite.paths)}, wanted a clone of {suite.peer}")
        return False
    if suite.reason:
        count = len(re.findall(r"(?m)^(?:async )?def test_", (clone / found).read_text("utf-8")))
        print(f"{suite.name}: 0 of {count}, left out: {suite.reason}")
        return True
    with tempfile.TemporaryDirectory(prefix="evalflows-peers-") as name:
        folder = Path(name)
        (folder / "test_theirs.py").write_text(changed((clone / found).read_text("utf-8"), suite), "utf-8")
        for path in suite.beside:
            shutil.copy(clone / found.partition("tests/")[0] / path, folder)
        (folder / "conftest.py").write_text((SUPPORT / f"tests_of_{suite.peer}.py").read_text("utf-8"), "utf-8")
        (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
        paths = os.pathsep.join(map(str, (ROOT, ROOT / "tests" / "support")))
        environment = {**os.environ, "PYTHONPATH": paths, "LANGSMITH_TRACING": "false"}
        environment |= {"EVALFLOWS_STORE": f"{name}/store", "EVALFLOWS_HOME": f"{name}/home"}
        plugins = ("-p", "no:cacheprovider", "-p", "benchmarks.peer_programs.async_tests")
        command = [sys.executable, "-m", "pytest", "-q", *plugins, "--junitxml", "results.xml"]
        done = subprocess.run([*command, "test_theirs.py"], cwd=folder, env=environment, capture_output=True, text=True)
        if not (folder / "results.xml").is_file():
            print(f"{suite.name}: the tests did not start\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
            return False
        cases = [*ElementTree.parse(folder / "results.xml").iter("testcase")]
    failed = {case.attrib["name"]: _reason(case) for case in cases if _reason(case)}
    print(f"{suite.name}: {len(cases) - len(failed)} of {len(cases)}", flush=True)
    for test, reason in failed.items():
        known = suite.left_out.get(test.partition("[")[0])
        print(f"  {test}: {'left out: ' + known if known else reason}", flush=True)
    return {test.partition("[")[0] for test in failed} <= {*suite.left_out}


def _reason(case: ElementTree.Element) -> str | None:
    """Return the message of a test that failed; one that skips itself has passed."""
    for kind in ("failure", "error"):
        if (found := case.find(kind)) is not None:
            return (found.get("message") or kind).partition("\n")[0][:200]
    return None


def parse_arguments() -> Namespace:
    parser = new_parser("peer_suites", __doc__)
    for peer in sorted({suite.peer for suite in SUITES}):
        variable = peer.upper()  # of `make peers LANGFUSE=PATH`
        said = f"a clone of its repository, or its source distribution; default: {variable}"
        parser.add_argument(f"--{peer}", type=Path, metavar="PATH", default=os.environ.get(variable) or None, help=said)
    return parser.parse_args()


def main() -> None:
    arguments = vars(parse_arguments())
    clones = {suite.peer: arguments[suite.peer] for suite in SUITES}
    if not any(clones.values()) and not arguments["smallest"]:
        sys.exit(f"peers: got no clone, wanted at least one of {', '.join(f'{peer.upper()}=PATH' for peer in clones)}")
    held = True
    for peer, suites in grouped((suite.peer, suite) for suite in SUITES).items():
        if clone := clones[peer]:
            held &= not [suite for suite in suites if not run(suite, clone)]
        else:
            print(f"{', '.join(suite.name for suite in suites)}: not run; wanted --{peer} PATH of a clone")
    if not held:
        sys.exit(1)


if __name__ == "__main__":
    main()
