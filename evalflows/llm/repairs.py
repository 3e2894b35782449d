"""What a model of an endpoint refuses of OpenAI's form and can be sent otherwise: learned from its first refusal."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from evalflows.llm.endpoint_errors import BOUNDS, refuses_schema
from evalflows.specs.escaping import print_note

Request = Mapping[str, Any]

_NEVER_TAKEN = re.compile(
    r"(un|not )support|unknown|unrecogni[sz]ed|unavailable|deprecated|not (allowed|permitted)|extra|\bonly\b", re.I
)
_OF_A_RANGE = re.compile(r"\b(between|range|less|greater|at (most|least)|max|min|maximum|minimum)\b|[<>≤≥]", re.I)
_OTHER_NAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_PARTS, _BY_NAME = ("items", "not"), ("properties", "$defs", "definitions")
_LISTS = ("anyOf", "allOf", "oneOf", "prefixItems")


class Repairs:
    """The repairs of one endpoint's requests, by model. A model is asked as the spec says until it refuses that."""

    def __init__(self, who: str) -> None:
        """Args: who: names the endpoint in notes."""
        self._who = who
        self._learned: dict[str, list[str]] = {}

    def repaired(self, request: Request) -> Request:
        """Return a request as its model takes it, as far as is known."""
        for name in self._learned.get(request["model"], ()):
            request = _repaired(request, name)
        return request

    def learn(self, sent: Request, message: str) -> bool:
        """Return whether a request that was refused can be sent otherwise, and note so the first time.

        A value that is out of its range is left to who wrote it, and what is refused again stays refused.
        """
        model = sent["model"]
        if self.repaired(sent) != sent:  # learned while this call was on its way
            return True
        learned = self._learned.setdefault(model, [])
        name = _repairable(sent, message)
        if name is None or name in learned or _OTHER_NAME.get(name) in learned:
            return False
        learned.append(name)
        print_note(f"{self._who}: model {model!r} is asked {_how(name, sent)}: {message.rstrip('.')}")
        return True


def _repairable(request: Request, message: str) -> str | None:
    """Return which parameter a message refuses that can be sent otherwise; None if there is none."""
    if _NEVER_TAKEN.search(message) and not _OF_A_RANGE.search(message):
        named = re.findall(r"[a-z_]+", message)
        found = [name for name in ("temperature", *_OTHER_NAME) if request.get(name) is not None and name in named]
        if found:
            return found[0]
    is_refused = refuses_schema(request, message)
    return "response_format" if is_refused and _repaired(request, "response_format") != request else None


def _repaired(request: Request, name: str) -> Request:
    if request.get(name) is None:
        return request
    rest = {key: value for key, value in request.items() if key != name}
    if name in _OTHER_NAME:
        return {_OTHER_NAME[name]: request[name]} | rest
    return rest if name == "temperature" else _with_strict_schema(request)


def _how(name: str, sent: Request) -> str:
    if name in _OTHER_NAME:
        return f"with {_OTHER_NAME[name]} in place of {name}"
    if name == "temperature":
        return f"without the temperature {sent[name]:g}, so with its default"
    return "with strict schemas, whose bounds are checked here"


def _with_strict_schema(request: Request) -> Request:
    """Return a request with a strict schema; as it is, if it has none or the schema cannot be strict."""
    form = request["response_format"]
    named = form.get("json_schema") if isinstance(form, Mapping) else None
    if not isinstance(named, Mapping) or named.get("strict") or not _can_be_strict(named["schema"]):
        return request
    strict = {**named, "strict": True, "schema": strict_schema(named["schema"])}
    return {**request, "response_format": {**form, "json_schema": strict}}


def strict_schema(schema: Any) -> Any:
    """Return a schema as strict ones are: closed objects that have all their fields, and no bounds.

    The bounds stand in descriptions, where the model reads them. A field that may be left out may be null instead.
    """
    if not isinstance(schema, dict):
        return schema
    made = {key: value for key, value in schema.items() if key not in BOUNDS}
    if bounds := {key: schema[key] for key in BOUNDS if key in schema}:
        said = json.dumps(bounds, ensure_ascii=False)[1:-1].replace('"', "")
        made["description"] = f"{made['description']} ({said})" if made.get("description") else said
    made |= {key: strict_schema(made[key]) for key in _PARTS if key in made}
    made |= {key: [strict_schema(part) for part in made[key]] for key in _LISTS if key in made}
    made |= {key: {name: strict_schema(part) for name, part in made[key].items()} for key in _BY_NAME if key in made}
    if isinstance(fields := made.get("properties"), dict):
        required = set(made.get("required", ()))
        made["properties"] = {
            name: field if name in required else {"anyOf": [field, {"type": "null"}]} for name, field in fields.items()
        }
        made |= {"required": [*fields], "additionalProperties": False}
    return made


def _can_be_strict(schema: Any) -> bool:
    """Return whether no object of a schema has fields of any name."""
    return all(
        isinstance(part.get("properties"), dict) and part.get("additionalProperties") in (None, False)
        for part in _all_in(schema)
        if part.get("type") == "object"
    )


def _all_in(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and all schemas in it."""
    if not isinstance(schema, dict):
        return
    yield schema
    inner = [schema.get(key) for key in _PARTS]
    inner += [part for key in _LISTS for part in schema.get(key, ())]
    inner += [part for key in _BY_NAME for part in schema.get(key, {}).values()]
    for part in inner:
        yield from _all_in(part)
