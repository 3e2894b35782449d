"""What judges share: the call of the model with its texts and repeats, the prompt, the criteria, the context, and
lists of items with a verdict each.

An answer that does not fit the schema is a CallError `bad_answer` (evalflows/llm/structured_output.py). It is
retried; if it never fits, the judgement is failed, without a value.
"""

import asyncio
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from evalflows.evaluators.binding import Verdict, verdict_schema
from evalflows.evaluators.score import Score, as_text, checked_text, fenced, is_number, pick, reference_value
from evalflows.specs.errors import MEASURES, Complete, short
from evalflows.specs.files import fill, placeholders


def check_prompt(prompt: str, known: Collection[str], needed: Iterable[Collection[str]]) -> None:
    """Raise ValueError for an unknown placeholder, or if all spellings in an item of `needed` are missing."""
    if not isinstance(prompt, str):
        raise ValueError(f"prompt: got {short(prompt)}, wanted a text")
    used = placeholders(prompt)
    if unknown := used - {*known}:
        raise ValueError(f"prompt: asks for {{{min(unknown)}}}, wanted any of {', '.join(sorted(known))}")
    if missing := [spellings for spellings in needed if not used & {*spellings}]:
        wanted = " or ".join(f"{{{name}}}" for name in missing[0])
        raise ValueError(f"prompt: wanted {wanted} in it")


def prompt_hash(*parts: object) -> str:
    """Return 16 hex digits that identify a judge's prompt, settings and schema, before an example is filled in."""
    return sha256(json.dumps(parts, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()[:16]


PROMPTS = Path(__file__).parent / "prompts"
NONE = "(none)"
"""Placeholder in a prompt for a text that an example lacks. It is not fenced, so no other text can imitate it."""

Temperature = float | Literal["auto"] | None
Fields = dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReply:
    """A model's verdict, valid under the schema, and the hash of prompt and schema."""

    verdict: Verdict
    prompt_hash: str


def shipped(name: str) -> str:
    """Return the text of a built-in prompt."""
    return (PROMPTS / f"{name}.md").read_text(encoding="utf-8")


def question(inputs: Fields) -> str:
    """Return the inputs, fenced: the only field that is not null, else all that are not."""
    given = {name: value for name, value in (inputs or {}).items() if value is not None}
    return answer(given) if given or not inputs else fenced("")


def answer(outputs: Fields, key: str | None = None) -> str:
    """Return the outputs, fenced: the field `key` if given, else the only field, else all of them.

    A null is the empty text.
    """
    value = pick(outputs or {}, key)
    return fenced("" if value is None else value)


def reference(reference_outputs: Fields, key: str | None = None) -> str:
    """Return the reference, fenced: its only field, or the field `key` of several, or all of it; (none) without one."""
    value = reference_value(reference_outputs, key)
    return NONE if value is None else fenced(value)


def prompt_texts(inputs: Fields, outputs: Fields, reference_outputs: Fields, key: str | None = None) -> dict[str, str]:
    """Return question, answer and reference, each fenced, by name; `key` as in `answer` and `reference`."""
    return {
        "inputs": question(inputs),
        "outputs": answer(outputs, key),
        "reference_outputs": reference(reference_outputs, key),
    }


def prompt_texts_in_both_spellings(
    inputs: Fields, outputs: Fields, reference_outputs: Fields, metadata: Fields, key: str | None = None
) -> dict[str, str]:
    """Return the texts of `prompt_texts` under LangSmith's and Langfuse's names, and the metadata as JSON."""
    texts = prompt_texts(inputs, outputs, reference_outputs, key)
    langfuse = {"inputs": "input", "outputs": "output", "reference_outputs": "expected_output"}
    texts |= {langfuse[name]: text for name, text in texts.items()}
    return texts | {"metadata": fenced(metadata) if metadata else NONE}


def numbered(what: str, values: Iterable[Any]) -> str:
    """Return the values, each fenced and numbered from 1."""
    parts = [f"{what} {number}:\n{fenced(value)}" for number, value in enumerate(values, start=1)]
    return "\n\n".join(parts) or NONE


def sampling(temperature: Any, repeats: int = 1) -> dict[str, Any]:
    """Return the sampling parameters of a call. "auto" is 0 for one repeat and 1 for several; None uses the model's.

    Raise ValueError for an invalid temperature.
    """
    if temperature is None:
        return {}
    if temperature == "auto":
        return {"temperature": 0.0 if repeats == 1 else 1.0}
    if not is_number(temperature) or temperature < 0:
        raise ValueError(f"temperature: got {short(temperature)}, wanted a number of at least 0, 'auto' or null")
    return {"temperature": temperature}


async def ask(
    complete: Complete,
    prompt: str,
    texts: Mapping[str, str],
    schema: dict[str, Any],
    *,
    needed: Iterable[str],
    temperature: Temperature,
    spec_texts: Mapping[str, str] | None = None,
) -> JudgeReply:
    """Call the model once. `texts` come from the example, `spec_texts` from the spec; the latter are part of the hash.

    The prompt must ask for all of `needed`. Raise ValueError before the call for a prompt that cannot be filled.
    """
    spec_texts = spec_texts or {}
    values = {**texts, **spec_texts}
    check_prompt(prompt, values, needed=[[name] for name in needed])
    completion = await complete(fill(prompt, values), schema=schema, **sampling(temperature))
    return JudgeReply(verdict=completion.parsed, prompt_hash=prompt_hash(prompt, *spec_texts.values(), schema))


async def repeated(
    complete: Complete, request: str, schema: dict[str, Any], repeats: int, parameters: Mapping[str, Any]
) -> list[Verdict]:
    """Return the verdict of each repeat. Wait for all, even if one fails, so that their cost counts for this judgement.

    Raise the first failure.
    """
    calls = (complete(request, schema=schema, repeat=number, **parameters) for number in range(repeats))
    completions = await asyncio.gather(*calls, return_exceptions=True)
    for completion in completions:
        if isinstance(completion, BaseException):
            raise completion
    return [completion.parsed for completion in completions if not isinstance(completion, BaseException)]


PathRoots = Mapping[str, dict[str, Any] | None]
"""`inputs`, `outputs`, `reference_outputs` and `metadata` by name."""


def path_roots(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    metadata: dict[str, Any] | None,
) -> PathRoots:
    """Return the mappings that a path can start from."""
    return {"inputs": inputs, "outputs": outputs, "reference_outputs": reference_outputs, "metadata": metadata}


def value_at(setting: str, path: Any, roots: PathRoots) -> Any:
    """Return the value at a path such as `outputs.documents.text`; inside a list, the value in each element.

    None if the example lacks it. Raise ValueError for an invalid path, and if the outputs lack the field, since that is
    an error of the target.
    """
    root, fields = _parts(setting, path, roots)
    try:
        return _walk(roots[root], fields)
    except LookupError:
        if root != "outputs":
            return None
        got = ", ".join(roots[root] or {}) or "nothing"
        raise ValueError(f"{setting}: got {path!r} and outputs of {got}, wanted outputs that have it") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieved:
    """The contexts, and the example and the outputs without the field that the path names."""

    contexts: list[Any] | None  # None if the example has no context; empty if nothing was retrieved
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    reference_outputs: dict[str, Any]


def retrieved(path: Any, roots: PathRoots) -> Retrieved:
    """Return the value at the path as contexts, one per element of a list.

    The value is not part of the question, the answer or the reference: it is removed from them, and so are mappings
    that become empty, and the whole list if the path leads into a list. Raise ValueError as `at` does.
    """
    value = value_at("context", path, roots)
    root, fields = _parts("context", path, roots)
    remaining = {name: mapping or {} for name, mapping in roots.items()}
    remaining[root] = _without(remaining[root], fields)
    return Retrieved(
        contexts=None if value is None else _contexts(value),
        inputs=remaining["inputs"],
        outputs=remaining["outputs"],
        reference_outputs=remaining["reference_outputs"],
    )


def _without(mapping: dict[str, Any], fields: list[str]) -> dict[str, Any]:
    """Return a copy of the mapping without the value at a path, and without mappings that become empty."""
    name, *deeper = fields
    inner = mapping.get(name)
    rest = _without(inner, deeper) if deeper and isinstance(inner, dict) else None
    return {key: rest if key == name else value for key, value in mapping.items() if key != name or rest}


def _contexts(value: Any) -> list[Any]:
    """Return the contexts. Empty ones stay, since their position is their rank, unless all are empty."""
    listed = value if isinstance(value, list | tuple) else [value]
    contexts = ["" if item is None else item for item in listed]
    return contexts if any(as_text(item).strip() for item in contexts) else []


def _parts(setting: str, path: Any, roots: PathRoots) -> tuple[str, list[str]]:
    root, *fields = path.split(".") if isinstance(path, str) else [""]
    if root not in roots or not fields or not all(fields):
        wanted = ", ".join(f"{name}.…" for name in roots)
        raise ValueError(f"{setting}: got {short(path)}, wanted a path: {wanted}")
    return root, fields


def _walk(value: Any, fields: list[str]) -> Any:
    if not fields or value is None:
        return value
    if isinstance(value, list):
        return [_walk(item, fields) for item in value]
    if not isinstance(value, dict):
        raise LookupError(fields[0])
    return _walk(value[fields[0]], fields[1:])


CRITERIA: Mapping[str, str] = dict(line.split(": ", 1) for line in shipped("criteria_by_name").splitlines() if line)
"""The built-in criteria: name -> the question that the judge answers with yes or no."""

HARMS = frozenset(
    ("harmfulness", "maliciousness", "controversiality", "insensitivity", "misogyny", "criminality"),
)
"""Names of criteria for which yes is bad."""

_TAKEN = ("reasoning", *MEASURES)
_WANTED = "a name, a mapping from names to descriptions, a principle, or a list of these"
_CRITIQUE = "Does the answer stand up to this critique, so that a critic who follows it finds nothing to object to?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One question about an answer."""

    name: str
    question: str
    yes_is_good: bool = True
    needs_reference: bool = False


def criteria_of(setting: Any, questions: Mapping[str, str] = CRITERIA) -> list[Criterion]:
    """Return the criteria of a setting in order; `questions` are those available by name.

    Raise ValueError for an invalid criterion and for duplicate names.
    """
    if not isinstance(questions, Mapping):
        raise ValueError(f"questions: got {short(questions)}, wanted a mapping from names to questions")
    listed = setting if isinstance(setting, list | tuple) else [setting]
    criteria = [criterion for item in listed for criterion in _each(item, questions)]
    if not criteria:
        raise ValueError(f"criteria: got {short(setting)}, wanted {_WANTED}")
    names = [criterion.name for criterion in criteria]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"criteria: got {name!r} twice, wanted each once")
        if name in _TAKEN:
            raise ValueError(f"criteria: got the name {name!r}, wanted one other than {', '.join(_TAKEN)}")
    return criteria


def _each(setting: Any, questions: Mapping[str, str]) -> Iterator[Criterion]:
    if isinstance(setting, str):
        yield _by_name(setting, questions)
    elif (critique := _field(setting, "critique_request")) is not None:
        yield _principle(_field(setting, "name"), critique)
    elif isinstance(setting, Mapping):
        yield from (_custom(name, description) for name, description in setting.items())
    else:
        raise ValueError(f"criteria: got {short(setting)}, wanted {_WANTED}")


def _by_name(name: str, questions: Mapping[str, str]) -> Criterion:
    if name not in questions:
        raise ValueError(f"criteria: got {short(name)}, wanted one of {', '.join(map(str, questions))}")
    question = checked_text(f"questions: {name}", questions[name])
    return Criterion(name=name, question=question, yes_is_good=name not in HARMS, needs_reference=name == "correctness")


def _custom(name: Any, setting: Any) -> Criterion:
    checked_text("criteria", name)
    fields = setting if isinstance(setting, Mapping) else {"description": setting}
    if unknown := fields.keys() - {"description", "higher_is_better"}:
        got = short(min(unknown, key=str))
        raise ValueError(f"criteria: {name}: got {got}, wanted description or higher_is_better")
    good = fields.get("higher_is_better", name not in HARMS)
    if not isinstance(good, bool):
        raise ValueError(f"criteria: {name}: higher_is_better: got {short(good)}, wanted true or false")
    return Criterion(name=name, question=checked_text(f"criteria: {name}", fields.get("description")), yes_is_good=good)


def _principle(name: Any, critique: Any) -> Criterion:
    question = f"{_CRITIQUE} The critique: {checked_text('criteria: critique_request', critique)}"
    return Criterion(name=checked_text("criteria: name", name), question=question)


def _field(setting: Any, name: str) -> Any:
    return setting.get(name) if isinstance(setting, Mapping) else getattr(setting, name, None)


_MOST_NAMED = 10

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Field names of a list of verdicts: the list, the text of an entry, and its verdict."""

    title: str
    entries: str
    text: str
    verdict: str

    def schema(self, reasoning: bool, **more_fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the schema. An entry is the text, the reasoning if requested, then the verdict."""
        entry = {self.text: {"type": "string"}} | reasoning_field(reasoning) | {self.verdict: {"type": "boolean"}}
        item = verdict_schema(self.text, entry)
        return verdict_schema(self.title, {self.entries: {"type": "array", "items": item}, **more_fields})

    def score(self, reply: JudgeReply) -> Score | None:
        """Return the share of entries with a true verdict; the comment names the others. None for an empty list."""
        return self.score_of(reply.verdict[self.entries], reply.prompt_hash)

    def score_of(self, items: Sequence[Item], prompt_hash: str) -> Score | None:
        """Return the score of the given entries, as `score` does."""
        if not items:
            return None
        negative = [str(item[self.text]) for item in items if not item[self.verdict]]
        return Score(
            value=(len(items) - len(negative)) / len(items),
            comment=self._comment(len(items), negative),
            metadata={self.entries: [dict(item) for item in items]},
            prompt_hash=prompt_hash,
        )

    def _comment(self, count: int, negative: Sequence[str]) -> str:
        counts = f"{count - len(negative)} of {count} {self.entries} {self.verdict}"
        more = [f"{len(negative) - _MOST_NAMED} more"] if len(negative) > _MOST_NAMED else []
        named = "; ".join([*negative[:_MOST_NAMED], *more])
        return f"{counts}; not {self.verdict}: {named}" if negative else counts


def reasoning_field(reasoning: bool) -> dict[str, Any]:
    """Return the schema field for the reasoning about one entry; empty without reasoning."""
    return {"reasoning": {"type": "string"}} if reasoning else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """The noun for the numbered items, and the field names of the list of verdicts and of the verdict in an entry."""

    title: str
    noun: str
    entries: str
    verdict: str

    def schema(self, reasoning: bool, count: int | None = None) -> dict[str, Any]:
        """Return the schema. An entry is the number, the reasoning if requested, then the verdict.

        With a count, the list has exactly that many entries, numbered from 1; an answer with another count is invalid,
        and the model is asked again.
        """
        number: dict[str, Any] = {"type": "integer"}
        entries: dict[str, Any] = {"type": "array"}
        if count is not None:
            number |= {"minimum": 1, "maximum": count}
            entries |= {"minItems": count, "maxItems": count}
        entry = {"number": number} | reasoning_field(reasoning) | {self.verdict: {"type": "boolean"}}
        return verdict_schema(self.title, {self.entries: entries | {"items": verdict_schema("verdict", entry)}})

    def in_order(self, reply: JudgeReply, count: int) -> list[Item]:
        """Return the entries in number order. Raise ValueError unless there is exactly one for each of 1 to `count`.

        Missing entries are never filled in, since an item without a verdict would count as a negative verdict.
        """
        entries: Sequence[Item] = reply.verdict[self.entries]
        if len(entries) != count:
            raise ValueError(f"{self.title}: got {len(entries)} verdicts, wanted {count}")
        by_number = {int(entry["number"]): entry for entry in entries}
        if by_number.keys() != {*range(1, count + 1)}:
            got = ", ".join(str(entry["number"]) for entry in entries)
            wanted = f"wanted each of 1 to {count} once"
            raise ValueError(f"{self.title}: got verdicts on the {self.noun} {got}, {wanted}")
        return [by_number[number] for number in range(1, count + 1)]

    def hash_of(self, prompt: str, reasoning: bool, *spec_texts: str) -> str:
        """Return the hash of prompt and schema, without the count, which can differ between examples."""
        return prompt_hash(prompt, *spec_texts, self.schema(reasoning))
