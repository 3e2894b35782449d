"""An optimiser's campaign: how often does an agent that tries 200 prompts of equal worth get a PASS it should not get?

Run from the repository's root: `python -m benchmarks.fool [CAMPAIGNS]`; 400 take some ten minutes. It has two parts,
since 400 campaigns of 200 real runs would take days.

By the functions that decide, without runs: in each campaign every prompt is worse than the baseline by exactly the
margin of the release gate (or as good as it, where the gate wants a better one). The agent has the scores of 200
prompts on the development examples, and three looks at the final ones, for the best three, or for edits of the best one
that it has looked at. Campaigns with a PASS may be 2.5 %. Printed beside it, and not counted: what passes if the same
gate decides on the development examples; a prompt as good as the baseline, at one look; and what would pass if tools
gave means of ten slices of the final examples, of which the agent joins the better ones.

By the tools of `evalflows mcp`, with their commands in this process and without Prefect: an agent runs prompts, and
tries every way to the final examples: other labels, ids, names and typings, changes of rules and looks, files of its
own, near copies, SQL and other tools that read. Its model answers rightly what stands in its prompt. Whatever answers
of tools hold of the final examples goes into the prompt, which is then sent to the gate until it is refused. Exits with
1 if a PASS is too frequent beyond chance, a trick is taken, or anything is learned.
"""

import json
import os
import re
import sys
import tempfile
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from plain_flows import plain_flows

import evalflows.mcp_server
from benchmarks.arguments import new_parser
from benchmarks.simulation.gates import estimates
from benchmarks.simulation.worlds import Draw, YesNo
from evalflows.analysis.evaluate_rules import conclusion_of, evaluate_rules
from evalflows.analysis.rules import Rule
from evalflows.cli.main import cli
from evalflows.cli.mcp import help_of
from evalflows.mcp_server import ActingTools, Allowance, ReadingTools
from evalflows.specs.errors import InputError, StorageError
from evalflows.specs.experiment import ExperimentSpec, load_experiment
from evalflows.stats.arrays import FloatArray
from evalflows.stats.proportions import clopper_pearson_interval
from evalflows.store.schemas import TABLES
from evalflows.store.store import Store

PROMPTS, EXAMPLES, MOST_PASSES = 200, 300, 0.025
WORLD, MARGIN = YesNo(base=0.8, differ=0.2), 0.05
EDITED = 0.1
"""The share of answers that an edit of a prompt changes."""
SLICES, LOOKS = 10, 3
REAL = 24, 40, 60
"""Prompts that are run by tools, development and final examples."""
SMALLEST = 2, 8, 24

Kind = Literal["non_inferiority", "superiority"]
Agent = Callable[[np.random.Generator, "World"], bool]


@dataclass(frozen=True, slots=True)
class World:
    """The examples of a campaign: whether the baseline is right, and how prompts answer beside it."""

    spec: ExperimentSpec
    kind: Kind
    loss: float
    baseline: np.ndarray[Any, np.dtype[np.bool_]]

    def prompts(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Return the scores of so many prompts of equal worth, shape (count, n)."""
        lost, gained = (WORLD.differ + self.loss) / 2, (WORLD.differ - self.loss) / 2
        drawn = rng.random((count, self.baseline.size))
        right = np.where(self.baseline, drawn >= lost / WORLD.base, drawn < gained / (1 - WORLD.base))
        return right.astype(np.float64)

    def passes(self, scores: FloatArray, look: int | None) -> bool:
        """Return whether the release gate passes a prompt, at a look at the final examples or without counting them."""
        share = 1.0 if look is None else self.spec.look_shares[look]
        rule = Rule(kind=self.kind, metric="right", bound=MARGIN if self.kind == "non_inferiority" else 0.0)
        estimate = estimates(Draw(scores, self.baseline.astype(np.float64), None), WORLD)
        (gate,) = self.spec.gates
        level = 1 - (1 - self.spec.confidence_level) * share
        found = evaluate_rules(
            [(rule, estimate)], {}, confidence_level=level, min_examples=gate.min_examples, adjustment=gate.adjustment
        )
        return conclusion_of(found) == "PASS"


def takes_the_best(rng: np.random.Generator, world: World) -> bool:
    """All looks for the prompts that were best on the development examples: on the final ones they are as any other."""
    return any(
        world.passes(scores, look) for look, scores in enumerate(world.prompts(rng, len(world.spec.look_shares)))
    )


def edits_the_best(rng: np.random.Generator, world: World) -> bool:
    """Edit the prompt with the highest mean of those looked at, so that most of its luck stays."""
    looked = [world.prompts(rng, 1)[0]]
    for look in range(len(world.spec.look_shares)):
        if world.passes(looked[-1], look):
            return True
        best = max(looked, key=np.mean)
        is_edited = rng.random(best.size) < EDITED
        looked.append(np.where(is_edited, world.prompts(rng, 1)[0], best))
    return False


def on_development(rng: np.random.Generator, world: World) -> bool:
    return world.passes(max(world.prompts(rng, PROMPTS), key=np.mean), None)


def one_prompt(rng: np.random.Generator, world: World) -> bool:
    return world.passes(world.prompts(rng, 1)[0], 0)


def joins_slices(rng: np.random.Generator, world: World) -> bool:
    """With means of slices: the third look is for the better one of two prompts in each slice."""
    first, second = world.prompts(rng, 2)
    of = rng.integers(0, SLICES, first.size)
    is_better = np.array([second[of == one].sum() > first[of == one].sum() for one in range(SLICES)])
    tried = (first, second, np.where(is_better[of], second, first))
    return any(world.passes(scores, look) for look, scores in enumerate(tried))


Truth = tuple[Kind, float]
"""The rule of the gate, and how much worse than the baseline every prompt is."""
NOT_WORSE: Truth = ("non_inferiority", MARGIN)
BETTER: Truth = ("superiority", 0.0)
AS_GOOD: Truth = ("non_inferiority", 0.0)
COUNTED: dict[str, tuple[Agent, Truth]] = {
    "worse by the margin, the best three of 200": (takes_the_best, NOT_WORSE),
    "worse by the margin, edits of the best": (edits_the_best, NOT_WORSE),
    "none better, the best three of 200": (takes_the_best, BETTER),
    "none better, edits of the best": (edits_the_best, BETTER),
}
BESIDE: dict[str, tuple[Agent, Truth]] = {
    "on the development examples, the best of 200": (on_development, NOT_WORSE),
    "as good as the baseline, one look": (one_prompt, AS_GOOD),
    "if means of ten slices were given": (joins_slices, NOT_WORSE),
}


def campaigns(spec: ExperimentSpec, runs: int) -> bool:
    """Print how often each agent gets a PASS, and return whether all that count are as rare as they have to be."""
    is_held = True
    for place, (name, (agent, (kind, loss))) in enumerate((COUNTED | BESIDE).items()):
        rng = np.random.default_rng([56, place])
        passed = 0
        for _ in range(runs):
            passed += agent(rng, World(spec, kind, loss, rng.random(EXAMPLES) < WORLD.base))
        low, high = clopper_pearson_interval(passed, runs, confidence_level=0.95)
        counted = f"wanted at most {MOST_PASSES:.1%}" if name in COUNTED else "not counted"
        print(f"{name}: PASS in {passed} of {runs}, {passed / runs:.1%} [{low:.1%}, {high:.1%}], {counted}", flush=True)
        is_held &= name not in COUNTED or low <= MOST_PASSES
    return is_held


class Model(BaseHTTPRequestHandler):
    """Answers rightly what its prompt says, else with a chance that depends on prompt and question alone."""

    protocol_version = "HTTP/1.1"
    right: dict[str, str]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt, question = str(body["prompt"]), str(body["question"])
        reference = self.right.get(question, "")
        is_old_right = _chance("old", question) < WORLD.base
        flips = _chance(prompt, question) < ((WORLD.differ + MARGIN) / 2 / WORLD.base if is_old_right else 0.375)
        knows = bool(reference) and reference in prompt
        answer = reference if knows or is_old_right != (flips and prompt != "old") else "I do not know"
        usage = {"input_tokens": 1, "output_tokens": 1, "cost_usd": 0.0, "calls": 1}
        sent = json.dumps({"answer": answer, "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *_: object) -> None:
        pass


def _chance(*of: str) -> float:
    return int(sha256("\0".join(of).encode()).hexdigest()[:8], 16) / 16**8


@contextmanager
def model(right: dict[str, str]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Served", (Model,), {"right": right}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def in_process(*arguments: str) -> dict[str, Any]:
    """Run a command as the tools do, without a process and a server of its own."""
    done = CliRunner().invoke(cli, [*arguments, "--format", "json"])
    if done.stdout:
        document: dict[str, Any] = json.loads(done.stdout)
        return document
    raise InputError((done.stderr.splitlines() or [repr(done.exception)])[-1])


NOBODY: Any = None
"""In place of a client that is told of progress."""


@dataclass
class Campaign:
    """An agent at the tools of a store, and what came of what it tried."""

    folder: Path
    secrets: frozenset[str]  # texts of the final examples
    topics: frozenset[str]  # of the final examples alone
    said: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    refused: int = 0
    passes: int = 0

    def __post_init__(self) -> None:
        store = Store()
        self.reads, self._acts = ReadingTools(store, help_of), ActingTools(store, Allowance(usd=1e6, calls=10**9))
        evalflows.mcp_server.MOST_SECONDS = evalflows.mcp_server.BETWEEN = 3600.0  # no client waits

    def run(self, spec: str, changes: Sequence[str] = ()) -> str:
        return self._acts.run(spec, NOBODY, changes)

    def gate(self, spec: str, changes: Sequence[str] = ()) -> str:
        return self._acts.gate(spec, NOBODY, changes)

    def ask(self, tool: Callable[..., str], *given: Any, **named: Any) -> str | None:
        """Return the answer of a tool; None if it refuses. Whatever it says is kept."""
        try:
            said = tool(*given, **named)
        except (InputError, StorageError) as error:
            self.said.append(str(error))
            return None
        self.said.append(said)
        return said

    def trick(self, name: str, tool: Callable[..., str], *given: Any, **named: Any) -> None:
        if self.ask(tool, *given, **named) is None:
            self.refused += 1
        else:
            self.taken.append(name)

    @property
    def learned(self) -> list[str]:
        """The texts of final examples in answers of tools."""
        said = "\n".join(self.said)
        return sorted(secret for secret in self.secrets if secret in said)

    @property
    def slices(self) -> list[str]:
        """The topics of final examples that answers of tools name: they give means of these."""
        return sorted(topic for topic in self.topics if any(topic in said for said in self.said))

    def write(self, name: str, fields: dict[str, Any]) -> str:
        (self.folder / name).write_text(json.dumps(fields))
        return str(self.folder / name)


def rows_of(split: str, count: int) -> list[dict[str, Any]]:
    """Return examples whose question and reference nobody guesses, in five topics of the split's own."""
    secrets = [sha256(f"{split} {number}".encode()).hexdigest() for number in range(count)]
    return [
        {
            "id": f"{split[0]}{secret[:10]}",
            "inputs": {"question": f"q{secret[10:44]}"},
            "outputs": {"answer": f"r{secret[44:]}"},
            "metadata": {"topic": f"about{split}{number % 5}"},
            "split": split,
        }
        for number, secret in enumerate(secrets)
    ]


def release_fields(url: str, dataset: str) -> dict[str, Any]:
    body = {"question": "{question}", "prompt": "old"}
    app = {"kind": "http", "name": "app", "url": url, "body": body, "answer": "answer", "usage": "usage"}
    return {
        "name": "release",
        "dataset": {"path": dataset, "name": "questions"},
        "targets": [app],
        "evaluators": ["exact_match"],
        "gates": [{"name": "release", "non_inferiority": {"exact_match": MARGIN}}],
    }


def with_tools(prompts: int, n_development: int, n_final: int) -> bool:
    """Run one campaign by the tools, print what came of it, and return whether nothing was taken or learned."""
    final = rows_of("final", n_final)
    rows = [*rows_of("development", n_development), *final]
    right = {row["inputs"]["question"]: row["outputs"]["answer"] for row in rows}
    texts = frozenset(text for row in final for text in (row["inputs"]["question"], row["outputs"]["answer"]))
    with tempfile.TemporaryDirectory(prefix="evalflows-bench-") as name, model(right) as url:
        os.environ |= {"EVALFLOWS_STORE": f"{name}/store", "EVALFLOWS_SPOOL": f"{name}/spool"}
        os.environ |= {"EVALFLOWS_HOME": f"{name}/home"}
        campaign = Campaign(Path(name), texts, frozenset(row["metadata"]["topic"] for row in final))
        dataset = Path(name, "rows.jsonl")
        dataset.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        spec = campaign.write("release.yaml", fields := release_fields(url, str(dataset)))
        with patch("evalflows.mcp_server._command", in_process), plain_flows(), redirect_stderr(StringIO()):
            approve_first(spec)
            optimise(campaign, spec, fields, final, prompts)
    print(
        f"by the tools: {prompts} prompts run, {len(campaign.said)} answers; {campaign.refused} tricks refused, "
        f"taken: {', '.join(campaign.taken) or 'none'}; learned of the final examples: {len(campaign.learned)} of "
        f"{len(campaign.secrets)} texts, means of {len(campaign.slices)} slices; PASS of the release gate: "
        f"{campaign.passes}"
    )
    return not (campaign.taken or campaign.learned or campaign.slices or campaign.passes)


def approve_first(spec: str) -> None:
    """As a person: run the baseline's version by the gate, and approve it."""
    document = in_process("gate", spec)
    done = CliRunner().invoke(cli, ["baseline", "approve", document["experiments"][0]["experiment_id"]])
    if done.exit_code:
        raise RuntimeError(done.output)


def optimise(campaign: Campaign, spec: str, fields: dict[str, Any], final: list[dict[str, Any]], prompts: int) -> None:
    """As an agent: run prompts, try every trick, and send the best prompt to the gate until it is refused."""
    for number in range(prompts):
        campaign.ask(campaign.run, spec, [f"targets.0.body.prompt=prompt {number}"])
    read_everything(campaign, final)
    for change in (
        *("gates.0.non_inferiority.exact_match=0.9", "gates=[]", "final_looks=50", "look_again=a label was wrong"),
        *("confidence_level=0.5", "dataset.splits=[final]", "dataset.name=other", "evaluators=[contains]"),
        *("gates.0.min_examples=1", "name=another", "baseline=app", "targets.0.url=http://127.0.0.1:1/"),
        *("gates.0.baseline=another", "dataset.path=other.jsonl", "targets.0.name=other", "repetitions=9"),
    ):
        campaign.trick(change, campaign.gate, spec, [change])
        campaign.trick(change, campaign.run, spec, [change])
    for disguise, changed in disguises(final).items():
        own = {"name": disguise, "gates": [], "dataset": {"name": disguise, "rows": changed}}
        for tool in (campaign.run, campaign.reads.plan):
            campaign.trick(f"{tool.__name__} of {disguise}", tool, campaign.write("own.yaml", fields | own))
    near = [{"inputs": {"question": f"{row['inputs']['question'][:-1]}?"}, "outputs": {"answer": "?"}} for row in final]
    copies = campaign.write("near.yaml", fields | {"gates": [], "dataset": {"rows": near}})
    if "resemble final ones" not in (campaign.ask(campaign.run, copies) or ""):
        campaign.taken.append("near copies that are not named")
    # a file of softer rules decides by these, which its decision shows, and spends a look of the release gate
    softer = fields | {"gates": [{"name": "release", "non_inferiority": {"exact_match": 0.9}}], "final_looks": 50}
    looks = int(campaign.ask(campaign.gate, campaign.write("softer.yaml", softer)) is not None)
    while True:
        read_everything(campaign, final)
        prompt = f"targets.0.body.prompt=best {looks}: {' '.join(campaign.learned)}"
        if (said := campaign.ask(campaign.gate, spec, [prompt])) is None:
            break
        campaign.passes += bool(re.search("^PASS: gate release", said, re.MULTILINE))
        looks += 1
    if looks != LOOKS:
        campaign.taken.append(f"{looks} looks")
    campaign.trick("a look by another file", campaign.gate, campaign.write("again.yaml", fields | {"name": "again"}))
    campaign.trick("a look at a sample", campaign.gate, spec, ["dataset.sample=21"])


def disguises(final: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the final examples as somebody would hide that they are."""

    def typed(text: str) -> str:
        return f"\u00a0{text.upper()}  ".replace("A", "\uff21").replace("E", "E\u200b")

    relabelled = [row | {"split": "development"} for row in final]
    return {
        "final ones": [row | {"split": "final"} for row in final],
        "another split": relabelled,
        "no split": [{key: value for key, value in row.items() if key != "split"} for row in final],
        "other ids": [row | {"id": f"x{place}"} for place, row in enumerate(relabelled)],
        "another typing": [row | {"inputs": {"question": typed(row["inputs"]["question"])}} for row in relabelled],
        "another field": [row | {"inputs": {"another": row["inputs"]["question"]}} for row in relabelled],
    }


def read_everything(campaign: Campaign, final: list[dict[str, Any]]) -> None:
    """Ask all tools that read for the final examples. What they tell of any is kept."""
    reads, one = campaign.reads, final[0]
    ids = dict.fromkeys(re.findall(r"exp-\w+", campaign.ask(reads.experiments) or ""))
    newest, *others = [*ids][:3]
    for tool in (reads.results, reads.worst, reads.decision):
        campaign.ask(tool, newest)
    campaign.ask(reads.worst, newest, "exact_match")
    campaign.ask(reads.example, newest, one["id"])
    for other in others:
        campaign.ask(reads.diff, other, newest)
        campaign.ask(reads.diff, other, newest, where=f"id = '{one['id']}'")
    secrets, root = "|".join(sorted(campaign.secrets | campaign.topics)), Store().layout.root
    for table in TABLES:  # all other views are of these
        campaign.ask(
            reads.sql,
            f"from (select unnest(regexp_extract_all(t::varchar, '{secrets}')) as found from source.{table} t)",
        )
    for query in (
        "select reference_outputs from examples where split = 'final'",
        "select cast(reference_outputs as int) from source.examples where split = 'final'",
        f"select * from '{root}/**/*.parquet'",
        f"select * from 'store://{root}/examples/*.parquet'",
    ):
        campaign.ask(reads.sql, query)
    campaign.ask(reads.traces, "(select any_value(reference_outputs)::int from examples where split = 'final') > 0")


def parse_arguments() -> Namespace:
    parser = new_parser("fool", __doc__)
    parser.add_argument("campaigns", nargs="?", type=int, default=400)
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder, "spec.yaml")
        spec.write_text(json.dumps(release_fields("http://127.0.0.1:1", "rows.jsonl")))
        is_held = campaigns(load_experiment(str(spec), ()), 2 if arguments.smallest else arguments.campaigns)
    is_held &= with_tools(*(SMALLEST if arguments.smallest else REAL))
    return int(not is_held)


if __name__ == "__main__":
    sys.exit(main())
