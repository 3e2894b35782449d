"""Where links lead: to pages of the dashboard, or nowhere in a report that stands alone; and proofs that one of our own
pages sent a condition in SQL."""

import hmac
import secrets
from collections.abc import Mapping, Sequence
from hashlib import sha256
from urllib.parse import quote, urlencode

PROOF = "proof"
"""The parameter of an address, and the field of a form."""

PAGE_PROOF = "x-evalflows-page"
"""The header by which a page says that it is one of ours."""

Value = str | int | Sequence[str] | None


class Proofs:
    """What proves conditions and pages, by a secret of this process: other pages cannot make a proof, nor read one."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    @property
    def of_form(self) -> str:
        """What a form carries: it proves whatever condition is sent with it. It should not stay in an address."""
        return self._code(b"form")

    @property
    def of_page(self) -> str:
        """What a page proves that it was loaded from here, before what is sent from it counts as a person's."""
        return self._code(b"page")

    def of(self, condition: str) -> str:
        """Return what proves exactly this condition, for addresses."""
        return self._code(b"condition:" + condition.encode(errors="surrogatepass"))

    def hold(self, given: str | None, condition: str) -> bool:
        """Return whether the given proof is one of this condition."""
        return given is not None and _is_same(given, self.of(condition))

    def is_of_page(self, given: str | None) -> bool:
        return given is not None and _is_same(given, self.of_page)

    def is_of_form(self, given: str | None) -> bool:
        return given is not None and _is_same(given, self.of_form)

    def _code(self, text: bytes) -> str:
        return hmac.new(self._secret, text, sha256).hexdigest()


def _is_same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(errors="surrogatepass"), wanted.encode())


class Links:
    """Links between the pages of a dashboard. Each method returns an address, or None where there is no such page.

    Args:
        base: What addresses begin with, such as `http://127.0.0.1:4280`, for links from elsewhere.
        prefect_ui: The address of Prefect's UI; None if it is not known.
        proofs: What conditions in SQL are proved with; without it, no page runs one.
    """

    def __init__(self, base: str = "", prefect_ui: str | None = None, proofs: Proofs | None = None) -> None:
        self._base, self._prefect_ui = base, prefect_ui
        self.proofs = proofs

    def page(self, *parts: str, **query: Value) -> str | None:
        """Return the address of a page: `page("experiments", identity)`; without a query's empty values."""
        path = f"{self._base}/" + "/".join(quote(part, safe="") for part in parts)
        return f"{path}?{text}" if (text := query_text(**query)) else path

    def experiment(self, identity: str) -> str | None:
        return self.page("experiments", identity)

    def example(self, experiment: str, example: str, repetition: int | None = None) -> str | None:
        return self.page("experiments", experiment, "example", id=example, repetition=repetition)

    def compare(self, baseline: str, *candidates: str, **query: Value) -> str | None:
        return self.page("compare", baseline=baseline, candidate=candidates, **query)

    def comparison(self, identity: str, **query: Value) -> str | None:
        return self.page("pairwise", identity, **query)

    def dataset(self, name: str, **query: Value) -> str | None:
        return self.page("datasets", name, **query)

    def dataset_example(self, name: str, example: str | None = None, version: str | None = None) -> str | None:
        """Return the page of an example of a dataset; without one, the form of a new example."""
        return self.page("dataset-example", dataset=name, id=example, version=version)

    def decision(self, identity: str) -> str | None:
        return self.page("decisions", identity)

    def judge(self, evaluator: str, **query: Value) -> str | None:
        return self.page("judges", evaluator, **query)

    def evaluation(self, name: str, **query: Value) -> str | None:
        """Return the page of a trace evaluation."""
        return self.page("production", "evaluations", name, **query)

    def traces(self, where: str | None = None, since: str | None = None) -> str | None:
        """Return the list of traces since a day, or of those that meet a condition of ours, with its proof."""
        proof = None if where is None or self.proofs is None else self.proofs.of(where)
        return self.page("production", "traces", where=where, since=since, proof=proof)

    def trace(self, identity: str) -> str | None:
        return self.page("production", "traces", identity)

    def incident(self, identity: str) -> str | None:
        return self.page("production", "incidents", identity)

    def flow_run(self, identity: str | None) -> str | None:
        """Return the address of a flow run in Prefect's UI; None if one of them is not known."""
        if self._prefect_ui is None or identity is None:
            return None
        return f"{self._prefect_ui}/runs/flow-run/{quote(identity, safe='')}"


class NoLinks(Links):
    """The links of a report that is one file: none."""

    def page(self, *parts: str, **query: Value) -> str | None:
        return None


class FileLinks(NoLinks):
    """The links of a report of several pages in one file: to the pages in it, by anchors.

    Args:
        anchors: The anchor of each page in the file, by its address in the dashboard.
    """

    def __init__(self, anchors: Mapping[str, str]) -> None:
        super().__init__()
        self._anchors = anchors

    def page(self, *parts: str, **query: Value) -> str | None:
        anchor = self._anchors.get(Links().page(*parts, **query) or "")
        return None if anchor is None else f"#{anchor}"


def query_text(**query: Value) -> str:
    """Return a query string; lists give a name several times, None and empty texts are left out."""
    pairs = [
        (name, str(value)) for name, values in query.items() for value in _listed(values) if value not in (None, "")
    ]
    return urlencode(pairs)


def _listed(value: Value) -> Sequence[str | int | None]:
    return value if isinstance(value, list | tuple) else [value]  # type: ignore[list-item]
