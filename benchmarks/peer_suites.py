"""The peers' own tests of evaluation, run against our counterparts of their APIs: *n of m* of each suite.

Run by `make peers`, before a release; or from the repository's root by `python -m benchmarks.peer_suites --langfuse
PATH --langsmith PATH`, with clones of their repositories, since their source distributions have no such tests. Their
files are copied into a temporary folder with changed import lines; benchmarks/peer_programs/tests_of_*.py replaces what
needs their server: traces are sent to a receiver of ours, and public datasets are made. Tests that are left out are
listed with the reason, other failures with their last line.
"""

import os
import re
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.arguments import new_parser

SUPPORT = Path(__file__).parent / "peer_programs"
ROOT = Path(__file__).parents[1]
HOSTED, PRIVATE = "needs their hosted service", "tests a private function"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A file of a peer's tests, and the tests in it that are left out, each with the reason."""

    name: str
    peer: str  # the argument that names its clone, and the package whose imports change
    paths: tuple[str, ...]  # in the clone: the first that exists
    left_out: Mapping[str, str] = field(default_factory=dict)


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
)


def changed(text: str, package: str) -> str:
    """Return the text of a file of tests with our package in its import lines."""
    return re.sub(rf"(?m)^(\s*(?:from|import) ){package}\b", rf"\1evalflows.compat.{package}", text)


def run(suite: Suite, clone: Path) -> bool:
    """Run a suite, print what came of it, and return whether all tests passed that are not left out."""
    found = next((path for path in suite.paths if (clone / path).is_file()), None)
    if found is None:
        print(f"{suite.name}: got {clone} without {' or '.join(suite.paths)}, wanted a clone of {suite.peer}")
        return False
    with tempfile.TemporaryDirectory(prefix="evalflows-peers-") as name:
        folder = Path(name)
        (folder / "test_theirs.py").write_text(changed((clone / found).read_text("utf-8"), suite.peer), "utf-8")
        (folder / "conftest.py").write_text((SUPPORT / f"tests_of_{suite.peer}.py").read_text("utf-8"), "utf-8")
        (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "LANGSMITH_TRACING": "false"}
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
        said = f"a clone of its repository; default: {variable}"
        parser.add_argument(f"--{peer}", type=Path, metavar="PATH", default=os.environ.get(variable), help=said)
    return parser.parse_args()


def main() -> None:
    arguments = vars(parse_arguments())
    held = True
    for suite in SUITES:
        if clone := arguments[suite.peer]:
            held &= run(suite, clone)
        else:
            print(f"{suite.name}: not run: its source distribution has no tests; wanted --{suite.peer} PATH of a clone")
    if not held:
        sys.exit(1)


if __name__ == "__main__":
    main()
