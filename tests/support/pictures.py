"""The pictures of docs/pages, from one store that this fills: `make pictures`.

A shop's assistant of five weekly versions, the last of which charges for returns; two prompts against each other; and
two weeks of production. An endpoint on this machine stands in for the models, so that nothing is paid, and every time
the same is answered.
"""

import json
import os
import random
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

from endpoint import Endpoint, Reply, Request, completion, serving
from plain_flows import plain_flows
from production import produce, trace

PICTURES = Path(__file__).parents[2] / "docs" / "pages"
NAVIGATION = PICTURES / "navigation.json"
"""Of each picture its hash and the navigation that it shows, which a test compares with today's."""

CONTEXT = "The shop takes goods back within 30 days, free of charge. "
AREAS: Mapping[str, Mapping[str, str]] = {
    "returns": {
        "How do I return {thing} that I have opened?": "You can return it within 30 days, free of charge.",
        "I bought {thing} two weeks ago. Can I still send it back?": "Yes, returns are possible for 30 days.",
        "What does it cost to return {thing}?": "Returns are free of charge.",
    },
    "delivery": {
        "When does {thing} arrive if I order today?": "It arrives within 3 working days.",
        "Can {thing} be delivered to a parcel shop?": "Yes, choose a parcel shop at the checkout.",
        "My order with {thing} has not come. What now?": "We send it again after 7 days without a delivery.",
    },
    "payment": {
        "Can I pay for {thing} by invoice?": "Yes, by invoice within 14 days.",
        "When do I get my money back for {thing}?": "The money is back within 5 working days.",
        "Is there a discount if I buy {thing} twice?": "No, there are no discounts on quantities.",
    },
    "repairs": {
        "{thing} is broken after a year. Who repairs it?": "The shop repairs it: the warranty lasts 2 years.",
        "Do you have spare parts for {thing}?": "Yes, they are listed on the page of the product.",
        "How long does it take to repair {thing}?": "A repair takes up to 10 working days.",
    },
}
THINGS = (
    "a desk lamp",
    "a kettle",
    "an office chair",
    "a coffee grinder",
    "a bread knife",
    "a rug",
    "a radio",
    "a mirror",
)
POLITE = "Happy to help! "
DEFECTS: Mapping[str, tuple[str, str]] = {
    "invented_fee": ("A handling fee of 4.90 euros is deducted.", "It names a fee that the shop does not charge."),
    "sends_away": ("Please call our hotline about this.", "It sends the customer to the hotline instead of answering."),
    "denies_service": ("I am afraid that this is not possible.", "It says that something is impossible which is not."),
}
NOTES = {
    "invented_fee": "The answer names a fee of 4.90 euros, but the reference says that it is free of charge.",
    "sends_away": "The answer says nothing but to call a hotline, and leaves out what the reference says.",
    "denies_service": "The answer says that it is not possible; the reference says how it is done.",
}
RATES: Mapping[str, Mapping[str, float]] = {
    "2.0": {"sends_away": 0.25, "denies_service": 0.2},
    "2.1": {"sends_away": 0.14, "denies_service": 0.16},
    "2.2": {"sends_away": 0.08, "denies_service": 0.08},
    "2.3": {"sends_away": 0.05, "denies_service": 0.06},
    "2.4": {"sends_away": 0.03, "denies_service": 0.04, "invented_fee": 0.95},
}
"""How often each version makes which mistake; a fee is invented for returns only."""

TAXONOMY = {
    "modes": [
        {"name": name, "definition": definition, "examples": [said]} for name, (said, definition) in DEFECTS.items()
    ]
}
PRICES = {"usd_per_million_input_tokens": 2.0, "usd_per_million_output_tokens": 8.0}
TRACES_A_DAY, DAYS, RELEASED = 80, 14, 4
"""Traces on each day of production, its days, and how many days ago the last version was released."""


def questions() -> list[dict[str, Any]]:
    """Return the dataset: each question about each thing."""
    return [
        {
            "id": f"{area}-{number:02}",
            "inputs": {"question": _begun(question.format(thing=thing))},
            "reference_outputs": {"answer": answer},
            "metadata": {"area": area, "channel": ("mail", "chat")[number % 2]},
        }
        for area, asked in AREAS.items()
        for number, (thing, (question, answer)) in enumerate(
            ((thing, pair) for thing in THINGS for pair in asked.items()), start=1
        )
    ]


def _begun(text: str) -> str:
    return text[:1].upper() + text[1:]


KNOWN = {row["inputs"]["question"]: row for row in questions()}


def answer_of(question: str, version: str) -> tuple[str, str | None]:
    """Return what a version answers, and which mistake it makes. A question that is hard for one is so for the next."""
    row = KNOWN[question]
    for mistake, rate in RATES[version].items():
        applies = mistake != "invented_fee" or row["metadata"]["area"] == "returns"
        if applies and _chance(question, mistake) < rate:
            said = DEFECTS[mistake][0]
            return (f"{row['reference_outputs']['answer']} {said}" if mistake == "invented_fee" else said), mistake
    return row["reference_outputs"]["answer"], None


def _chance(*of: str) -> float:
    return int(sha256("|".join(of).encode()).hexdigest()[:8], 16) / 0xFFFFFFFF


def says(request: Request) -> Reply:
    """Reply as the assistant, whose system prompt names its version, or as a judge of an answer."""
    system, text = request["messages"][0]["content"], request["messages"][-1]["content"]
    fields = request.get("response_format", {}).get("json_schema", {}).get("schema", {}).get("properties", {})
    if not fields:
        version = next((one for one in RATES if f"version {one}" in system), "2.3")
        said = answer_of(text, version)[0]
        return _completion(request, said if "brief" in system else POLITE + said)
    if "preference" in fields:
        return _completion(request, json.dumps(_preferred(text)))
    judged = text.rpartition("nswer to judge:")[2]
    made = next((mistake for mistake, (said, _) in DEFECTS.items() if said in judged), None)
    note = NOTES[made] if made else "The answer says what the reference says."
    verdict: dict[str, Any] = {"reasoning": note} | {name: name == made for name in fields if name != "reasoning"}
    if "correct" in fields:
        knows = next((row for question, row in KNOWN.items() if question in text), None)
        right = knows is None or knows["reference_outputs"]["answer"] in judged
        verdict["correct"] = made is None and right
    return _completion(request, json.dumps(verdict))


def _preferred(text: str) -> dict[str, Any]:
    """Prefer the answer without a mistake, else the shorter one."""
    first, _, second = text.rpartition("Answer A:")[2].partition("Answer B:")
    costs = [(any(said in answer for said, _ in DEFECTS.values()), len(answer) // 20) for answer in (first, second)]
    preference = 0 if costs[0] == costs[1] else 1 if costs[0] < costs[1] else 2
    better = ("Both answers say the same.", "Answer A", "Answer B")[preference]
    reasoning = f"{better} answers what was asked, and in fewer words." if preference else better
    return {"reasoning": reasoning, "preference": preference}


def _completion(request: Request, content: str) -> Reply:
    """A completion with the tokens that it would have, about four characters each."""
    asked = sum(len(str(message["content"])) for message in request["messages"]) // 4
    reply = completion(content)
    usage = {"prompt_tokens": asked, "completion_tokens": max(1, len(content) // 4)}
    usage["total_tokens"] = sum(usage.values())
    return Reply(reply.body | {"model": request["model"], "usage": usage})


def fill() -> None:
    """Fill the store of the environment: weekly runs, two prompts, labels, production. Its clock is set back."""
    from evalflows import approve, evaluate_traces, run
    from evalflows.specs import ExperimentSpec
    from evalflows.specs.traces import TraceEvaluationSpec
    from evalflows.store import Store

    Path("failure_modes.yaml").write_text(json.dumps(TAXONOMY), encoding="utf-8")
    with serving(Endpoint(latency_s=0.02, answer=says)) as endpoint:
        shared = {"connections": {name: _connection(endpoint, name) for name in ("assistant", "judge")}}
        for weeks, version in zip((4, 3, 2, 1, 0), RATES, strict=True):
            with days_ago(7 * weeks + 0.1):
                gates = [] if weeks == 4 else [GATE, STRICT]
                spec = {"name": "shop", "targets": [_target("assistant", version)], "gates": gates} | SPEC | shared
                (made,) = run(ExperimentSpec.model_validate(spec))
                if weeks in (4, 2, 1):
                    approve(made, "shop", reason="released", by="ada")
        prompts = [_target("friendly", "2.3"), _target("brief", "2.3", " Be brief.")]
        compared = {"evaluators": {"use": "pairwise_preference", "connection": "judge"}, "both_orders": True}
        spec = {"name": "prompts", "targets": prompts, "gates": [STRICT], "compare": compared} | SPEC | shared
        with days_ago(0.05):
            experiments = run(ExperimentSpec.model_validate(spec))
        _label(experiments[0])
        produce(Store(), *_produced())
        watch = {"name": "assistant", "settle_s": 0} | shared
        watch |= {"watch": [{"threshold": "answered", "minimum": 0.85, "late_s": 0}]}
        watch["evaluators"] = ["pictures:answered", _modes({"answered": False})]
        evaluate_traces(TraceEvaluationSpec.model_validate(watch))


SPEC: Mapping[str, Any] = {
    "dataset": {"rows": questions(), "name": "shop-questions"},
    "evaluators": [
        {"use": "correctness", "name": "correct", "connection": "judge", "controls": 6},
        {"use": "length_between", "name": "short", "args": {"most": 60}},
        {
            "use": "failure_modes",
            "connection": "judge",
            "args": {"taxonomy": "failure_modes.yaml", "needs": {"correct": False}},
        },
    ],
}
GATE: Mapping[str, Any] = {"name": "release", "non_inferiority": {"correct": 0.05}}
STRICT: Mapping[str, Any] = {"name": "strict", "superiority": ["correct"]}


def _modes(needs: Mapping[str, Any]) -> dict[str, Any]:
    args = {"taxonomy": "failure_modes.yaml", "needs": dict(needs)}
    return {"use": "failure_modes", "connection": "judge", "args": args}


def _connection(endpoint: Endpoint, name: str) -> dict[str, Any]:
    return {"kind": "endpoint", "base_url": endpoint.base_url, "model": f"{name}-small", "max_in_flight": 16} | PRICES


def _target(name: str, version: str, more: str = "") -> dict[str, Any]:
    system = f"You are the assistant of a shop, version {version}. {CONTEXT}{more}"
    return {
        "name": name,
        "kind": "chat",
        "connection": "assistant",
        "version": version,
        "system": system,
        "user": "{question}",
    }


def answered(outputs: dict[str, Any]) -> dict[str, Any]:
    """Whether an answer makes none of the mistakes."""
    made = next((mistake for mistake, (said, _) in DEFECTS.items() if said in str(outputs)), None)
    return {"score": made is None, "comment": NOTES[made] if made else None}


def _label(experiment: str) -> None:
    """Two people label some of the judge's answers; they disagree with it about a few."""
    from evalflows.store import connect
    from evalflows.store.labels import import_labels
    from evalflows.store.store import Store

    with connect() as catalog:
        scored = catalog.execute(
            "select example_id, value from scores where experiment_id = ? and metric = 'correct' order by 1",
            [experiment],
        ).fetchall()
    rows = [
        f"{experiment},{example},correct,{int(value if _chance(example, 'people') > 0.07 else 1 - value)},{by}"
        for by in ("ada", "ben")
        for example, value in scored[:40]
    ]
    file = Path("labels.csv")
    file.write_text("\n".join(["experiment,example_id,metric,value,labeller", *rows]), encoding="utf-8")
    import_labels(Store(), file)


def _produced() -> Iterator[Any]:
    """Two weeks of traces; the last version was released a few days ago."""
    asked, luck = list(KNOWN), random.Random(1)
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for day in range(DAYS, 0, -1):
        version = "2.4" if day <= RELEASED else "2.3"
        for number in range(TRACES_A_DAY):
            question, name = luck.choice(asked), f"{day}-{number}"
            said = answer_of(question, version)[0]
            yield trace(
                name,
                [{"role": "user", "content": question}],
                POLITE + said,
                began=midnight - timedelta(days=day, minutes=-15 * number),
                session=f"session-{day}-{number // 2}",
                version=version,
                **{"user.id": f"user-{number % 23}", "tag.tags": [KNOWN[question]["metadata"]["area"]]},
            )


@contextmanager
def days_ago(days: float) -> Iterator[None]:
    """Set the clock of the store back within the block."""
    from evalflows.store import records

    clock: Callable[[tzinfo | None], datetime] = records._clock
    records._clock = lambda zone=None: clock(zone) - timedelta(days=days)
    try:
        yield
    finally:
        records._clock = clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A page as the documents show it."""

    name: str
    address: str | None
    width: int = 1280
    height: int = 720
    scheme: str = "light"


def pictures(store: Path) -> list[Picture]:
    """Return the pictures of the filled store."""
    from evalflows.dashboard.links import Links
    from evalflows.store import connect

    links = Links()
    with connect(store) as catalog:
        before, after = (
            identity
            for (identity,) in catalog.execute(
                "select experiment_id from (from experiments where name = 'shop' order by started_at desc limit 2) "
                "order by started_at"
            ).fetchall()
        )
        ((decision,),) = catalog.execute(
            "select decision_id from gate_decisions where gate = 'release' and candidate_experiment_id = ?", [after]
        ).fetchall()
        ((friendly, comparison),) = catalog.execute(
            "select experiment_id, comparison_id from experiments, comparison_sets where experiments.name = ?",
            ["prompts-friendly"],
        ).fetchall()
    compared = links.compare(before, after)
    review = links.page("review", friendly, metric="correct", by="ann", reference="yes")
    return [
        Picture(name="home", address=links.page("home"), height=600),
        Picture(name="experiments", address=links.page("experiments"), height=460, scheme="dark"),
        Picture(name="experiment", address=links.experiment(after), height=1100),
        Picture(name="compare", address=compared, width=1400, height=1000),
        Picture(name="compare-narrow", address=compared, width=400, height=1000),
        Picture(name="pairwise", address=links.comparison(comparison), height=900),
        Picture(name="decision", address=links.decision(decision), height=800),
        Picture(name="failure-modes", address=links.page("modes", name="shop"), height=690),
        Picture(name="failure-mode", address=links.page("modes", "invented_fee", name="shop"), height=900),
        Picture(name="over-time", address=links.page("over-time", name="shop", metric="correct")),
        Picture(name="judges", address=links.page("judges"), height=420),
        Picture(name="production", address=links.evaluation("assistant"), scheme="dark"),
        Picture(name="traces", address=links.traces()),
        Picture(name="review", address=review),
    ]


def draw(store: Path, folder: Path) -> None:
    """Write each picture, and with which navigation and content it was made."""
    from dashboards import dashboard
    from PIL import Image
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(flag)
    made = {}
    with dashboard(store) as url, webdriver.Chrome(options=options) as browser:
        for one in pictures(store):
            scheme = {"features": [{"name": "prefers-color-scheme", "value": one.scheme}]}
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)
            size = {"width": one.width, "height": one.height, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            browser.get(f"{url}{one.address}")
            file = folder / f"{one.name}.png"
            with Image.open(BytesIO(browser.get_screenshot_as_png())) as shot:
                shot.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)
            made[file.name] = {
                "navigation": [link.text for link in browser.find_elements("css selector", ".top nav a")],
                "sha256": sha256(file.read_bytes()).hexdigest(),
            }
    (folder / NAVIGATION.name).write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="evalflows-pictures-") as root, chdir(root), plain_flows():
        folder = Path(root)
        os.environ |= {
            "EVALFLOWS_HOME": f"{root}/home",
            "EVALFLOWS_STORE": f"{root}/store",
            "EVALFLOWS_SPOOL": f"{root}/spool",
            "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")]),  # as messages say
        }
        fill()
        draw(folder / "store", PICTURES)


if __name__ == "__main__":
    main()
