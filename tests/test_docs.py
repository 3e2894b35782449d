"""What the documents say is so."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from evalflows.evaluators import SHORT_NAMES
from evalflows.evaluators.call import OFFERED
from evalflows.specs import CompositeSpec, EvaluatorSpec, ExperimentSpec, MetricSpec, load_experiment
from evalflows.specs.comparison import CompareSpec, ComparisonSpec, load_comparison
from evalflows.specs.evaluator import TierSpec
from evalflows.specs.gate import GateSpec, RecalibrationSpec
from evalflows.specs.score_config import ScoreConfigSpec
from evalflows.specs.trace_columns import TraceColumns
from evalflows.specs.trace_evaluation import TraceEvaluationSpec, load_trace_evaluation
from evalflows.store.catalog import SQL, select_from, view_files
from evalflows.store.parquet import Store
from evalflows.store.queries.trace_filter import condition
from evalflows.store.schemas import TABLES

ROOT = Path(__file__).parent.parent


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


def test_every_python_block_compiles() -> None:
    for name in ("README.md", *(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))):
        for block in blocks(name, "python"):
            compile(block, name, "exec")


def test_the_specs_that_are_shown_are_specs() -> None:
    whole, *others = [yaml.safe_load(block) for block in blocks("docs/specs.md", "yaml")]
    comparisons = [other for other in others if "experiments" in other]
    assert [len(ComparisonSpec.model_validate(one).evaluators) for one in comparisons] == [2]
    specs = [ExperimentSpec.model_validate(whole | part) for part in others if part not in comparisons]
    assert len(specs) == 9
    assert [gate.name for spec in specs for gate in spec.gates] == ["release"]
    assert max(len(spec.connections) for spec in specs) == 2
    assert [spec.compare.both_orders for spec in specs if spec.compare] == [True]


FIELDS = {
    field
    for model in (
        *(ExperimentSpec, EvaluatorSpec, TierSpec, CompositeSpec, MetricSpec, ScoreConfigSpec),
        *(CompareSpec, ComparisonSpec, GateSpec, RecalibrationSpec),
    )
    for field in model.model_fields
}


@pytest.mark.parametrize("field", sorted(FIELDS))
def test_every_field_of_a_spec_is_described(field: str) -> None:
    assert f"`{field}`" in text("docs/specs.md")


def test_every_field_of_a_trace_evaluation_is_described() -> None:
    told = text("docs/production.md")
    assert [field for field in TraceEvaluationSpec.model_fields if f"`{field}`" not in told] == []


def test_the_filters_that_are_shown_are_filters() -> None:
    shown = [part for block in blocks("docs/production.md", "yaml") for part in yaml.safe_load_all(block)]
    whole, *filters = shown
    assert TraceEvaluationSpec.model_validate(whole).composites
    assert len([condition(one["filter"], "traces") for one in filters]) == 3


@pytest.mark.parametrize("path", sorted((ROOT / "data" / "trace_evaluations").glob("*.yaml")), ids=lambda one: one.name)
def test_the_trace_evaluations_that_ship_are_specs(path: Path) -> None:
    assert load_trace_evaluation(path).name


def test_a_comparison_s_fields_are_told_apart_from_an_experiment_s() -> None:
    told = text("docs/specs.md").partition("## Comparisons")[2].partition("\n## ")[0]
    assert [field for field in ComparisonSpec.model_fields if f"`{field}`" not in told] == []


SHIPPED = sorted([*(ROOT / "data" / "experiments").glob("*.yaml"), *(ROOT / "examples").glob("*.yaml")])


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_the_experiments_that_ship_are_specs(path: Path) -> None:
    spec = load_experiment(path)
    where = spec.dataset.path or ""
    assert "${EVALFLOWS_PUBLISHED_DATA}" in where or spec.dataset.function or (ROOT / where).is_file()


@pytest.mark.parametrize("path", sorted((ROOT / "data" / "comparisons").glob("*.yaml")), ids=lambda path: path.name)
def test_the_comparisons_that_ship_are_specs(path: Path) -> None:
    assert load_comparison(path).name


def test_the_tables_and_their_keys_are_those_of_the_store() -> None:
    listed = re.findall(r"^\| (\w+) \| ([\w, ]+) \| (\w+) \|$", text("docs/store.md"), flags=re.M)
    assert listed[1:] == [(table.name, ", ".join(table.key), table.owner) for table in TABLES.values()]


def test_the_marts_are_listed() -> None:
    marts = {path.stem for path in view_files() if path.is_relative_to(SQL / "marts")}
    assert marts == set(re.findall(r"^\| (\w+) \| [^|]+ \|$", text("docs/store.md"), flags=re.M)) - {"view"}


def test_the_queries_on_traces_run(tmp_path: Path) -> None:
    queries = blocks("docs/traces.md", "sql")
    assert len(queries) == 3
    for query in queries:
        assert select_from(Store(tmp_path / "store"), query).fetchall() == []


def test_every_column_of_a_trace_is_described() -> None:
    assert [name for name in TraceColumns.model_fields if f"`{name}`" not in text("docs/traces.md")] == []


def test_what_an_evaluator_may_ask_for_is_listed() -> None:
    for name in {*OFFERED["item"], *OFFERED["run"]}:
        assert f"`{name}`" in text("docs/evaluators.md"), name
    for name in OFFERED["pair"]:
        assert f"`{name}`" in text("docs/pairwise.md"), name
    for name in SHORT_NAMES:
        assert f"- `{name}`" in text("docs/evaluators.md")


def test_the_folders_are_listed() -> None:
    tracked = {path.name for path in ROOT.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert {f"`{name}/`" in text("CONTRIBUTING.md") for name in tracked} == {True}


def anchors(page: Path) -> set[str]:
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S), flags=re.M
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page", [*ROOT.glob("*.md"), *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), link
        assert not anchor or anchor in anchors(linked), link


def test_every_page_is_linked_from_the_readme_or_contributing() -> None:
    linked = set(re.findall(r"\(docs/(\w+)\.md\)", text("README.md") + text("CONTRIBUTING.md")))
    assert {page.stem for page in (ROOT / "docs").glob("*.md")} == linked


def test_constraints_are_plain_pins() -> None:
    lines = text("constraints.txt").splitlines()
    assert len(lines) > 50
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line) for line in lines)
