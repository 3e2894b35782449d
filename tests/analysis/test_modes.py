"""Failure modes that are found: planted ones, by meaning alone and with a model that names them."""

import json
from collections import Counter
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from catalog_rows import one
from click.testing import CliRunner
from endpoint import Endpoint, completion, serving
from failing_service import connection
from planted_failures import TERMS, planted
from scipy.spatial.distance import pdist

from evalflows import run
from evalflows.analysis.modes import find_modes, map_of
from evalflows.cli.main import cli
from evalflows.llm import local
from evalflows.specs import ExperimentSpec, InputError
from evalflows.specs.failure_modes import TaxonomySpec, adding, edited, load_taxonomy
from evalflows.specs.reference import refer
from evalflows.stats.groups import plane
from evalflows.store import Store
from evalflows.store.queries.failures import Failure


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def adjusted_rand(first: list[object], second: list[object]) -> float:
    """Hubert & Arabie 1985."""
    both, rows, columns = (
        sum(comb(n, 2) for n in Counter(of).values()) for of in (zip(first, second, strict=True), first, second)
    )
    expected = rows * columns / comb(len(first), 2)
    return (both - expected) / ((rows + columns) / 2 - expected)


@pytest.mark.slow
def test_planted_modes_are_found_and_named_by_what_they_say(store: Store) -> None:
    sentences, terms = planted(600)
    failures = [Failure(id=f"r{number:03}", notes=[sentence]) for number, sentence in enumerate(sentences)]
    found = find_modes(store, failures, None)
    group = {failure: place for place, of in enumerate(found.proposed) for failure in of.failures}
    assert adjusted_rand(terms, [group.get(failure.id) for failure in failures]) >= 0.9
    assert all(any(term in of.name for of in found.proposed) for term in TERMS)
    again = find_modes(store, failures[::-1], None)
    files = [edited("", adding([of.mode for of in each.proposed]), "it") for each in (found, again)]
    assert files[0] == files[1]


NOTED = [*["it insults the user"] * 4, *["an insult of the user"] * 3, *["the refund is twice the price"] * 5, "odd"]


def noted(metadata: dict[str, str]) -> dict[str, object]:
    return {"score": "note" not in metadata, "comment": metadata.get("note")}


@pytest.mark.usefixtures("without_prefect")
def test_a_file_gets_new_modes_and_a_second_search_adds_and_pays_nothing() -> None:
    notes = [{"a": "x", "note": note} for note in NOTED] + [{"a": "x"}] * 20
    rows = [{"inputs": {"q": number}, "metadata": note} for number, note in enumerate(notes)]
    target = {"kind": "recorded", "column": "a"}
    spec = {"name": "noted", "dataset": {"rows": rows}, "targets": [target], "evaluators": [refer(noted)]}
    run(ExperimentSpec.model_validate(spec))
    Path("failure_modes.yaml").write_text("# ours\nmodes:\n- {name: late, definition: It is late.}\n")
    answers = iter(
        ['{"name": "Rude! \\n- x: y", "definition": "It insults."}', '{"name": "late", "definition": "Too much."}']
    )
    with serving(Endpoint(answer=lambda request: completion(next(answers)))) as endpoint:
        Path("connections.yaml").write_text(yaml.safe_dump({"judge": connection(endpoint)}))
        command = ["modes", "find", "noted", "--connection", "judge"]
        first = CliRunner(env={"EVALFLOWS_CONNECTIONS": "connections.yaml"}).invoke(cli, command)
        assert first.exit_code == 0, first.output
        assert "13 failures, 13 with a note; 1 are unlike any other" in first.output
        text = Path("failure_modes.yaml").read_text()
        assert text.startswith("# ours\nmodes:\n- {name: late, definition: It is late.}\n- name: rude_x_y\n")
        assert load_taxonomy("failure_modes.yaml").names == ["late", "rude_x_y", "late_2"]
        again = CliRunner(env={"EVALFLOWS_CONNECTIONS": "connections.yaml"}).invoke(cli, command)
        assert "nothing to add" in again.output and endpoint.calls == 2
    assert Path("failure_modes.yaml").read_text() == text
    assert one("select count(*) from calls where evaluator = 'modes'") == (2,)
    with pytest.raises(InputError, match="got no failures, wanted 1 to"):
        find_modes(Store(), [], None)


def test_a_map_keeps_what_is_alike_together() -> None:
    places = map_of(NOTED)
    assert places[0] == pytest.approx(places[1]) and len(places) == len(NOTED)
    insult, paraphrase, refund = places[0], places[4], places[7]
    assert np.linalg.norm(insult - paraphrase) < np.linalg.norm(insult - refund)
    flat = np.random.default_rng(3).normal(size=(20, 2))
    basis, _ = np.linalg.qr(np.random.default_rng(4).normal(size=(5, 2)))
    assert pdist(plane(flat @ basis.T + 1)) == pytest.approx(pdist(flat)), "nothing is lost of what has two dimensions"
    assert plane(np.ones((3, 4))).tolist() == [[0, 0]] * 3
    assert plane(np.ones((1, 1))).tolist() == [[0, 0]]


def silent(outputs: dict[str, str]) -> bool:
    return "fine" in str(outputs)


def says_what_went_wrong(request: dict[str, Any]) -> Any:
    said = request["messages"][-1]["content"]
    if said.startswith("Name"):
        return completion(json.dumps({"name": "a group", "definition": "Alike."}))
    wrong = "it insults the user" if "fool" in said else "the refund is twice the price" if "refund" in said else None
    return completion(json.dumps({"is_found": wrong is not None, "sentence": wrong or ""}))


@pytest.mark.usefixtures("without_prefect")
def test_a_model_says_what_went_wrong_and_topics_are_those_of_a_random_share() -> None:
    """Nothing is a valid answer; a plan and too few calls pay nothing, and a second search neither."""
    answers = ["fine"] * 4 + ["you fool"] * 4 + ["a refund of 200"] * 3 + ["no idea"]
    asked = ["How much is the invoice for May?", "Will it rain tomorrow, and how warm is it?"]
    rows = [{"inputs": {"q": f"{asked[n % 2]} {n}"}, "metadata": {"a": a}} for n, a in enumerate(answers)]
    target = {"kind": "recorded", "column": "a"}
    spec = {"name": "silent", "dataset": {"rows": rows}, "targets": [target], "evaluators": [refer(silent)]}
    run(ExperimentSpec.model_validate(spec))
    with serving(Endpoint(answer=says_what_went_wrong)) as endpoint:
        Path("connections.yaml").write_text(yaml.safe_dump({"judge": connection(endpoint)}))

        def find(*options: str) -> str:
            command = ["modes", "find", "silent", "--connection", "judge", "--describe", *options]
            return CliRunner(env={"EVALFLOWS_CONNECTIONS": "connections.yaml"}).invoke(cli, command).output

        assert "calls to judge: 8 to describe failures without a note" in find("--plan")
        assert "8 to describe, got at most 7 calls" in find("--max-calls", "7")
        assert endpoint.calls == 0
        first = " ".join(find().split())
        assert "8 failures, 7 with a note; 0 are unlike any other in 1 the model found nothing to say" in first, first
        assert load_taxonomy("failure_modes.yaml").names == ["a_group", "a_group_2"] and endpoint.calls == 8 + 2
        assert "nothing to add" in find() and endpoint.calls == 10
    topics = ["modes", "find", "silent", "--topics"]
    assert "6 tasks, 6 that say something" in CliRunner().invoke(cli, [*topics, "0.5", "--file", "half.yaml"]).output
    found = CliRunner().invoke(cli, [*topics, "1"]).output
    taxonomy = load_taxonomy("topics.yaml")
    assert (taxonomy.kind, len(taxonomy.modes)) == ("topic", 2) and "2 added to topics.yaml" in found, found
    assert "nothing to add to topics.yaml" in CliRunner().invoke(cli, [*topics, "1"]).output
    refused = CliRunner().invoke(cli, [*topics, "1", "--file", "failure_modes.yaml"])
    assert (refused.exit_code, refused.output) == (
        2,
        "evalflows: the taxonomy: got kind modes, wanted topic, or another file\n",
    )


def test_calls_with_their_arguments_do_not_tell_failures_apart_unless_a_tool_is_usual(store: Store) -> None:
    subjects = ["circle_area", "bank.balance", "sushi-places", "chess_rating", "rain_in_town", "dna_sequence"] * 3
    notes = [
        f'no call of {of}_{n}({{"{of}": {n}}}); not wanted: find_{n}({{"q": "{of}"}})' for n, of in enumerate(subjects)
    ]
    notes += [
        f'argument {of} is missing: wanted {of}_{n}({{"{of}": 1}}), got {of}_{n}({{}})' for n, of in enumerate(subjects)
    ]
    notes += ['not wanted: transfer_to_human({"why": "lost"})'] * 4
    found = find_modes(store, [Failure(id=f"r{n:02}", notes=[note]) for n, note in enumerate(notes)], None)
    largest, *_ = found.proposed
    assert {*largest.sentences} == {"no call of (call); not wanted: (call)"} and len(largest.failures) == len(subjects)
    assert ["not wanted: transfer_to_human(…)"] * 4 in [of.sentences for of in found.proposed]


@pytest.mark.parametrize("by_meaning", [True, False])
def test_notes_of_one_template_are_one_mode_and_usual_values_tell_modes_apart(
    store: Store, monkeypatch: pytest.MonkeyPatch, by_meaning: bool
) -> None:
    """Without the local embedding model too."""
    if not by_meaning:
        monkeypatch.setattr(local, "_PACKAGES", ("no_such_package",))
    things = ["gold", "iron", "Mozart", "Bach", "Nile", "Amazon", "tiger", "oxygen", "Kenya", "blue", "red", "six"]
    notes = [f'got "{of} in {n}", wanted "{things[-n]}"' for n, of in enumerate(things)]
    notes += [f"the argument {of} has the wrong type" for of in things]
    notes += [f'{{"expected": {{"name": "{of}"}}, "found": [{n}]}}' for n, of in enumerate(things)]
    usual = [note for tool in ("search", "book") for note in [f"wrong tool: {tool}", f"tool '{tool}' is slow"]]
    notes += [f"{note} in step {n % 2}" if "slow" in note else note for note in usual for n in range(10)]
    notes += ["it is rude (code 7)"]
    found = find_modes(store, [Failure(id=f"r{n:03}", notes=[note]) for n, note in enumerate(notes)], None)
    assert found.by_meaning == by_meaning
    assert {(group.definition.partition(": ")[2], len(group.failures)) for group in found.proposed} == {
        ("got …, wanted …", 12),
        ("the argument … has the wrong type", 12),
        ('{"expected": {"name": …}, "found": […]}', 12),
        *((note.replace(" slow", " slow in step …"), 10) for note in usual),
    }
    assert all({*group.sentences} <= {*notes} for group in found.proposed) and found.n_alone == 1
    again = TaxonomySpec(modes=[group.mode for group in found.proposed])
    others = [Failure(id=f"s{n}", notes=[f'got "{n} of these", wanted "{n}"']) for n in range(5)]
    assert find_modes(store, others, again).covered["got_wanted"] == 5, "other values are of the same mode"
