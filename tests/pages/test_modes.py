"""Failure modes: which members stand for a mode, and its rate over time, by version and by slice."""

import re
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from page_client import page_client
from past import Past
from production import BEGAN, produce, score, trace
from store_rows import make_row

from evalflows.analysis.typical import typical
from evalflows.store.store import Store
from evalflows.store.trace_records import evaluation_id

N, A_DAY = 60, 20


def fill() -> list[str]:
    """Two runs, in the second of which half of the answers in one area are rude; and two days of production, of which
    the second has another version, a fifth of whose answers are."""
    past = Past(fields=[{"metadata": {"area": ("shop", "bank")[place % 2]}} for place in range(N)])
    rude = np.arange(N) % 4 == 0
    made = [
        past.experiment({"mode.rude": rude & (version == "v2")}, name="bot", application_version=version)
        for version in ("v1", "v2")
    ]
    store, scores, traces = Store(), [], []
    for number in range(2 * A_DAY):
        day, name = number // A_DAY, f"t{number}"
        began = BEGAN + timedelta(days=day, minutes=number)
        is_rude = day == 1 and number % 5 == 0
        asked = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": f"What is {number}?"}]
        traces.append(trace(name, asked, f"You fool, {number}!", began=began, version=f"p{day + 1}"))
        said = {"comment": f"It calls somebody a fool, in {number}."} if is_rude else {}
        scores.append(score(name, "mode.rude", float(is_rude), evaluation="live", began=began, **said))
    produce(store, *traces, scores=scores)
    of = {"evaluation_id": evaluation_id("live"), "batch_id": "b", "name": "live", "spec": '{"evaluators": []}'}
    store.append("watermarks", of["evaluation_id"], "b", [make_row("watermarks", **of)])
    return [row.experiment_id for row in made]


def shown(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def test_members_and_rates_by_version_slice_and_day(
    filled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    client = page_client()
    listed = client.get("/modes").text
    text = shown(listed)
    for said in ("25.0% 15 of 60", "4 of 40", "What is 35? You fool, 35! It calls somebody a fool"):
        assert said in text, said
    assert listed.count('class="said"') == 3 * (3 + 3) and 'rowspan="3"' in listed
    assert 'href="/modes/rude?name=live"' in listed and 'href="/production/traces/' in listed

    page = client.get("/modes/rude").text
    text = shown(page)
    for said in (
        "bot: 25.0%",
        "v2 15 of 60",
        "v1 0 of 60",
        "shop 15 of 30 50%",
        "bank 0 of 30",
        "15 answers with rude",
    ):
        assert said in text, said
    assert page.count('class="said"') == 3 * 15 and f"in={filled[0]}" in page
    assert "None in these runs" in client.get(f"/modes/rude?in={filled[0]}").text

    text = shown(page := client.get("/modes/rude?name=live").text)
    for said in ("20% [8%, 42%] 4 of 20 items on the newest day", "p2 4 of 20", "p1 0 of 20", "What is 25?"):
        assert said in text, said
    (address,) = re.findall(r'href="(/production/traces\?where=[^"]+)">p2<', page)
    assert client.get(address.replace("&amp;", "&")).text.count('href="/production/traces/') == 4
    assert {client.get(f"/modes/rude?{wrong}").status_code for wrong in ("name=nothing", "in=nothing")} == {404}
    assert "no failure mode &#39;polite&#39;, wanted one of" in client.get("/modes/polite").text


def test_members_nearest_to_the_middle_say_most_of_what_the_others_say() -> None:
    texts = ["the fee is invented", "an invented fee", "a fee is invented", "no such bank", "a fee is invented"]
    assert typical(texts, 2) == [2, 0], "equal texts stand once"
    assert typical(texts, 5)[-1] == 4 and typical(["", ""], 2) == [0, 1] and typical([], 3) == []
