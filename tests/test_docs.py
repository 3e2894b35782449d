"""What the documents say is so."""

import csv
import json
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from endpoint import Endpoint, Reply, completion, serving

from benchmarks.simulation.cells import Held
from evalflows import evaluate, run
from evalflows.dashboard.rendering import SECTIONS
from evalflows.specs import ExperimentSpec, load_experiment
from evalflows.specs.comparison import ComparisonSpec, load_comparison
from evalflows.specs.reference import refer
from evalflows.specs.traces import TraceEvaluationSpec, load_trace_evaluation
from evalflows.store.queries.traces import condition
from evalflows.store.sql import rows_from
from evalflows.store.store import Store

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pages"
PAGES = sorted((ROOT / "docs").rglob("*.md"))


SPEC = """
name: planned
dataset: questions.jsonl
targets:
  - {kind: chat, connection: openai, model: gpt-4o-mini, user: "{question}"}
evaluators: [contains]
"""


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text(name), flags=re.S)


@pytest.mark.slow
def test_the_program_in_the_readme_runs(tmp_path: Path, prefect_environment: dict[str, str]) -> None:
    program = tmp_path / "program.py"
    program.write_text(blocks("README.md", "python")[0])
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=os.environ | prefect_environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("[1.0, 1.0]")


def answered(request: dict[str, Any]) -> Reply:
    """Answer in the shape that is asked for, with the first of what is allowed."""
    schema = request.get("response_format", {}).get("json_schema", {}).get("schema", {})
    values = {"string": "x", "boolean": True, "integer": 1, "number": 1.0, "array": []}
    fields = schema.get("properties", {})
    said = {name: one.get("enum", [values.get(one.get("type"))])[0] for name, one in fields.items()}
    return completion(json.dumps(said) if said else "Paris")


@pytest.mark.slow
def test_every_python_block_runs(tmp_path: Path, without_prefect: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder with questions, experiments of the names in them, and a model; unless a comment says why not."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"inputs": {"question": f"Please say {n}"}, "outputs": {"answer": str(n)}, "split": ("easy", "hard")[n % 2]}
        for n in range(24)
    ]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "spec.yaml").write_text(SPEC)
    given = {"before": lambda question: question[-1], "after": lambda question: question, "search": lambda text: [text]}
    for name in ("support", "support", "small-low", "small-up"):
        evaluate(given["after"], "questions.jsonl", ["contains"], experiment_prefix=name)
    targets = [{"kind": "python", "name": name, "function": refer(given[name])} for name in ("before", "after")]
    quality = {"name": "quality", "weights": {"contains": 2, "exact_match": 1}}
    settings = {"evaluators": ["contains", "exact_match"], "composites": [quality], "dataset": "questions.jsonl"}
    run(ExperimentSpec.model_validate({"name": "demo", "targets": targets, **settings}))
    with serving(Endpoint(answer=answered)) as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-test")
        for page in ("README.md", *(str(page.relative_to(ROOT)) for page in PAGES)):
            names = {"__name__": "page", **given}
            for number, (why_not, block) in enumerate(
                re.findall(r"(<!-- not run: .+ -->\n)?```python\n(.*?)```", text(page), flags=re.S)
            ):
                code = compile(block, f"{page}, block {number + 1}", "exec")
                if not why_not:
                    exec(code, names)


def test_the_specs_that_are_shown_are_specs() -> None:
    whole, *others = [yaml.safe_load(block) for block in blocks("docs/reference/specs.md", "yaml")]
    comparisons = [other for other in others if "experiments" in other]
    assert [len(ComparisonSpec.model_validate(one).evaluators) for one in comparisons] == [2]
    specs = [ExperimentSpec.model_validate(whole | part) for part in others if part not in comparisons]
    assert len(specs) == 11
    assert [gate.name for spec in specs for gate in spec.gates] == ["release"]
    assert max(len(spec.connections) for spec in specs) == 4
    assert [spec.compare.both_orders for spec in specs if spec.compare] == [True]


def test_the_filters_that_are_shown_are_filters() -> None:
    shown = [part for block in blocks("docs/guides/production.md", "yaml") for part in yaml.safe_load_all(block)]
    whole, *filters = shown
    assert TraceEvaluationSpec.model_validate(whole).composites
    assert len([condition(one["filter"], "traces") for one in filters]) == 3


def test_the_specs_that_ship_are_specs() -> None:
    data = ROOT / "data"
    for path in (*(data / "experiments").glob("*.yaml"), *(ROOT / "examples").glob("*.yaml")):
        dataset = load_experiment(path).dataset
        where = dataset.path or ""
        assert "${EVALFLOWS_PUBLISHED_DATA}" in where or dataset.function or (ROOT / where).is_file(), path
    for load, folder in ((load_comparison, "comparisons"), (load_trace_evaluation, "trace_evaluations")):
        paths = [*(data / folder).glob("*.yaml")]
        assert paths and all(load(path).name for path in paths)


def test_the_queries_on_traces_run() -> None:
    queries = blocks("docs/guides/traces.md", "sql")
    assert len(queries) == 3
    for query in queries:
        assert rows_from(Store(), query) == []


LINK = re.compile(r"\]\((?!https?:)([^)\s#]*)#?([^)\s]*)\)")


@cache
def anchors(page: Path) -> set[str]:
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S), flags=re.M
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    links = [
        (page, *link)
        for page in (*ROOT.glob("*.md"), *PAGES)
        for link in LINK.findall(page.read_text(encoding="utf-8"))
    ]
    assert len(links) > 100
    for page, path, anchor in links:
        linked = page.parent / path if path else page
        assert linked.exists(), (page.name, path)
        assert not anchor or anchor in anchors(linked), (page.name, path, anchor)


def test_pictures_of_pages_show_the_navigation_of_today() -> None:
    made = json.loads((PICTURES / "navigation.json").read_text(encoding="utf-8"))
    shown = "".join(page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
    assert {*made} == {file.name for file in PICTURES.glob("*.png")} == {*re.findall(r"pages/([\w-]+\.png)", shown)}
    for name, record in made.items():
        assert record["sha256"] == sha256((PICTURES / name).read_bytes()).hexdigest(), f"{name}: wanted `make pictures`"
        assert record["navigation"] == [title for _, title in SECTIONS], f"{name}: wanted `make pictures`"


def test_each_page_is_in_one_group_of_the_navigation() -> None:
    index = text("docs/index.md")
    listed = [line for line in index.replace("\n  ", " ").splitlines() if line.startswith("- ")]
    assert [line for line in text("docs/llms.txt").splitlines() if line.startswith("- ")] == listed
    groups = re.findall(r"```{toctree}\n(.*?)```", index, flags=re.S)
    listed = [line for group in groups for line in group.splitlines() if line and not line.startswith(":")]
    pages = [str(page.relative_to(ROOT / "docs").with_suffix("")) for page in PAGES]
    assert sorted([*listed, "index"]) == pages
    assert [line for line in listed if f"]({line}.md)" not in index] == []


def test_the_summary_of_the_simulation_is_that_of_its_table() -> None:
    folder = ROOT / "docs" / "explanation"
    rows = re.findall(
        r"^\| (\w+) \| ([^|]*) \| ([^|]*) \| (\d+) \|(.*) \|", text("docs/explanation/simulation.md"), flags=re.M
    )
    with (folder / "simulation.csv").open(encoding="utf-8", newline="") as file:
        cells = [row for row in csv.DictReader(file) if row["held"]]
    assert sum(int(count) for *_, count, _ in rows) == len(cells)
    for kind, figure, target, _, rest in rows:
        found = [row for row in cells if [row["kind"], row["figure"], row["target"]] == [kind, figure, target]]
        *counts, worst = rest.split("|")
        statuses = Counter(row["held"] for row in found)
        assert [statuses[status] for status in get_args(Held)] == [int(count.strip() or 0) for count in counts]
        assert worst.strip() in {row["mean"] for row in found}
