"""Pages of a store whose texts were erased say so, and show the same figures."""

import re
import zipfile
from pathlib import Path

import pytest
from dashboards import addresses
from starlette.testclient import TestClient

from evalflows.dashboard.app import application
from evalflows.store.erasing import Selection
from evalflows.store.files import FORMAT
from evalflows.store.retention import erase
from evalflows.store.store import Store

KEPT = Path(__file__).parents[1] / "store" / "kept" / f"format_{FORMAT}.zip"


@pytest.mark.slow
def test_all_pages_render_with_the_same_figures(store_root: Path) -> None:
    with zipfile.ZipFile(KEPT) as archive:
        archive.extractall(store_root)
    store = Store(store_root)
    browser = TestClient(application(store), base_url="http://127.0.0.1:4280")
    places = addresses(store_root)
    before = {name: browser.get(place) for name, place in places.items()}
    examples = [name for (name,) in store.query("select distinct example_id from source.examples")]
    assert erase(store, Selection(examples=examples), None).rows["outputs"]
    after = {name: browser.get(place) for name, place in places.items()}
    assert {name: page.status_code for name, page in after.items()} == dict.fromkeys(places, 200)
    for name in ("example", "one example of two", "two experiments"):
        assert "(erased 20" in after[name].text, name
    for name in ("experiments", "over-time", "decisions", "decision", "pairwise", "comparison"):
        assert figures(after[name].text) == figures(before[name].text) != [], name


def figures(page: str) -> list[str]:
    """The numbers with a point on a page, without ids."""
    return re.findall(r"(?<![\w#.])[-+]?\d+\.\d+(?![\w.])", re.sub(r"\(erased [^)]*\)", "", page))
