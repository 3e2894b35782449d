"""Judge whether a summary says what matters in its text."""

from typing import Any

from evalflows.evaluators.declarations import declares, share
from evalflows.evaluators.fence import fenced
from evalflows.evaluators.judged_items import Listing
from evalflows.evaluators.judging import Temperature, ask
from evalflows.evaluators.paths import answer_text, as_text, path_roots, value_at
from evalflows.evaluators.prompt_texts import answer, question, shipped
from evalflows.evaluators.score import Score
from evalflows.evaluators.settings import checked_count
from evalflows.specs.protocols import Complete

PROMPT = shipped("summary_coverage")

_POINTS = Listing(title="summary_coverage", entries="points", text="point", verdict="covered")


@declares(share)
async def summary_coverage(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    metadata: dict[str, Any] | None,
    complete: Complete,
    *,
    source: str | None = None,
    most: int = 15,
    key: str | None = None,
    prompt: str = PROMPT,
    reasoning: bool = True,
    temperature: Temperature = 0.0,
) -> Score | None:
    """The share of what matters in a text that its summary says: covered / all, 0 to 1.

    The model lists up to `most` points of the text, each with its verdict; the comment names the points that are not
    covered, the metadata has all. `source` is a dotted path to the text in inputs, outputs, reference_outputs or
    metadata, such as `inputs.article`; by default the text is the inputs. `key` names the summary's field. An empty
    summary is 0 without a call.

    None without a text, and if the text says nothing. A connection with `answer_form: text` cannot give a list: each
    judgement fails (bad_request). It cannot see what the summary makes up (`faithfulness` does, with the text as its
    context), nor whether it is short, and what matters is the model's own opinion: it is only as good as its model.
    """
    roots = path_roots(inputs, outputs, reference_outputs, metadata)
    given = {name: value for name, value in inputs.items() if value is not None}
    text = (given or None) if source is None else value_at("source", source, roots)
    if text is None or not as_text(text).strip():
        return None
    if not answer_text(outputs, key).strip():
        return Score(value=0.0, comment="the summary is empty")
    reply = await ask(
        complete,
        prompt,
        {"source": question(inputs) if source is None else fenced(text), "outputs": answer(outputs, key)},
        _POINTS.schema(reasoning),
        needed=("source", "outputs"),
        temperature=temperature,
        spec_texts={"most": str(checked_count("most", most))},
    )
    return _POINTS.score(reply)
