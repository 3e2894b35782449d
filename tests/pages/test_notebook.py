"""Results in a notebook: tables with the figures of the store, plots, and nothing that acts."""

import zipfile
from pathlib import Path
from xml.etree import ElementTree

from full_store import Filler, freeze_questions
from page_tables import table_rows
from store_rows import make_row

from evalflows.api.comparisons import ComparativeResult
from evalflows.api.results import ExperimentResult, diff
from evalflows.dashboard.charts import Estimate, domain, forest
from evalflows.dashboard.notebook import shown
from evalflows.reports.results import means_of, results_of
from evalflows.specs.errors import StorageError
from evalflows.store.files import FORMAT
from evalflows.store.store import Store

HOSTILE = "<script>alert(1)</script> \u202ered"


ROOT = Path(__file__).parent.parent.parent


def fill() -> Store:
    """Two experiments, a decision and a comparison."""
    store = Store()
    with zipfile.ZipFile(ROOT / f"tests/store/kept/format_{FORMAT}.zip") as archive:
        archive.extractall(store.layout.root)
    return store


def ids(store: Store, table: str, column: str) -> list[str]:
    return [row[0] for row in store.query(f"select {column} from source.{table} order by 1")]


def test_an_experiment_shows_its_metrics(filled: Store) -> None:
    for identity in ids(filled, "experiments", "experiment_id"):
        page = table_rows(ExperimentResult(identity)._repr_html_())
        results = [one for one in results_of(filled, [identity]) if one.has_rows]
        page = [row for row in page if row[0] != "Metric"]
        assert [row[0].split(" ")[0] for row in page] == [one.metric for one in results] != []
        for row, one in zip(page, results, strict=True):
            if one.baseline:
                of_pairs = means_of(one, None)
                assert of_pairs and row[1].partition(" → ")[2].startswith((one.mean_text, of_pairs.candidate))
                assert row[2].startswith(one.difference_text) and row[-1].startswith(one.verdict_text)
            else:
                assert row[1].split(" ")[0] == (one.mean_text.split(" ")[0] if one.scored else "no")
                assert (row[2], row[3]) == (one.scored_text, str(one.missing))


def test_a_difference_and_a_comparison_show_verdicts(filled: Store) -> None:
    old, new = ids(filled, "experiments", "experiment_id")
    compared = diff(old, new)
    html = compared._repr_html_()
    page = {row[0].split(" ")[0]: row for row in table_rows(html)}
    assert page["Metric"][3:] == ["Examples", "Verdict (p adjusted over 3)"]
    counts = {one.metric: f"{one.regressed} worse · {one.improved} better" for one in compared.report.counts}
    for one in compared.report.results:
        if one.conclusion and one.has_rows:
            assert page[one.metric][3].startswith(counts[one.metric]), "as in Compare"
            assert page[one.metric][4].startswith(one.verdict_text)
    assert html.count('class="chart shares"') == html.count('class="chart whisker') == len(page) - 1
    result = ComparativeResult(ids(filled, "comparison_sets", "comparison_id")[0])
    rows = table_rows(result._repr_html_())[1:]
    assert [row[4] for row in rows] == [rate.rate_text for rate in result.report.win_rates] != []
    for plot in (compared.plot(), result.plot(), ExperimentResult(old).plot()):
        svg = ElementTree.fromstring(str(plot))
        assert svg.tag == "{http://www.w3.org/2000/svg}svg", "a browser draws it from a file"
        assert svg.get("role") == "img" and svg.findall(".//{*}circle" if "}" in svg.tag else ".//circle")
        assert plot._repr_svg_() == plot._repr_html_() == str(plot)


def test_texts_are_escaped() -> None:
    drawn = Estimate(label=HOSTILE, value=1.0, low=0.0, high=2.0, scale=domain([0.0, 2.0]), text=HOSTILE)
    svg = str(forest([drawn], HOSTILE))
    assert "<script" not in svg and "\u202e" not in svg and "&lt;script&gt;" in svg

    def fail() -> None:
        raise StorageError(HOSTILE)

    assert shown(fail) == "<p><b>evalflows:</b> &lt;script&gt;alert(1)&lt;/script&gt; \\u202ered</p>"  # type: ignore[arg-type]


def test_a_frame_has_readable_columns(store_root: Path) -> None:
    store = Store()
    filler = Filler(store, make_row)
    snapshot, (first, second) = freeze_questions(store, "questions", 2)
    filler.experiment("exp-1", snapshot, 2, 1, state="completed")
    failed = {"outputs": None, "status": "failed", "error": "boom"}
    answers = [filler.output("exp-1", first, 0, **failed), filler.output("exp-1", second, 0)]
    store.append("outputs", "exp-1", "p", answers)
    scored = {"status": "scored"}
    filler.scores(
        "exp-1",
        filler.score("exp-1", first, 0, "zeal", status="failed", value=None, error="no output"),
        filler.score("exp-1", second, 0, "accuracy", value=1.0, comment="as wanted", metadata='{"by": 2}', **scored),
        filler.score("exp-1", second, 0, "zeal", value=0.5, **scored),
    )
    frame = ExperimentResult("exp-1").to_pandas()
    names = ("score.zeal", "score.accuracy", "comment.accuracy", "score_metadata.accuracy", "score_error.zeal")
    assert list(frame.columns) == [
        *("example_id", "repetition", "inputs.question", "outputs.answer", "reference.answer"),
        *names,
        *("status", "error", "latency_s", "cost_usd"),
    ]
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    assert [rows[0][name] for name in names] == [None, None, None, None, "no output"]
    assert [rows[1][name] for name in names] == [0.5, 1.0, "as wanted", {"by": 2}, None]
    assert [row["error"] for row in rows] == ["boom", None]
