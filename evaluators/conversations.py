"""Judges of conversations: each turn, the whole, the origin of errors, and the use of earlier statements; a long
conversation loses its oldest messages.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from evalflows.evaluators.agents.transcript import entry_of, lines
from evalflows.evaluators.declarations import Direction, declares, on_the_scale, share, zero_to_one
from evalflows.evaluators.fence import fenced
from evalflows.evaluators.judges.rubric import rubric as by_rubric
from evalflows.evaluators.judging import Temperature, ask, prompt_hash
from evalflows.evaluators.paths import pick
from evalflows.evaluators.prompt_texts import shipped
from evalflows.evaluators.scales import SCALE, Combine, Reasoning, verdict_schema
from evalflows.evaluators.score import Score
from evalflows.evaluators.settings import checked_count, checked_text, is_number
from evalflows.specs.columns import SYSTEM, Turn, checked_messages, turns_of
from evalflows.specs.errors import short
from evalflows.specs.frozen import dataclass
from evalflows.specs.protocols import Complete, Message

__all__ = [
    "Conversation", "Truncated", "context_use", "conversation", "conversation_quality", "estimated_tokens",
    "role_adherence", "truncated", "turn_errors", "turn_quality",
]  # fmt: skip

BYTES_PER_TOKEN = 3
"""The same rate as in cost estimates: it overestimates tokens rather than underestimating them."""
TOKENS_PER_MESSAGE = 4
"""Tokens for the number of a message's turn and the end of its line."""

Count = Callable[[Mapping[str, Any]], int]

USES = ("used", "ignored", "contradicted")
CONTRADICTED = "context_contradicted"

GOOD, OWN_FAULT = "good", "own fault"
MOST_TURNS = 40
"""The maximum number of turns: each turn can follow every earlier turn, and providers allow about 1000 enum values per
schema."""

TURN_QUALITY_PROMPT = shipped("turns")
GOOD_TURN = (
    "A good turn does what the user has just asked for, is right as far as that can be seen, agrees with all that was "
    "said before, and asks back where something that it needs is missing. It leaves nothing out that the user needs "
    "now, and adds nothing that the user does not."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A conversation. The first `n_given` messages come from the example, the others from the target."""

    messages: list[Message]
    turns: list[Turn]
    n_given: int = 0

    def judged(self, given: bool) -> list[Turn]:
        """Return the target's turns, with `given` also the example's. Raise ValueError if there are none."""
        turns = [turn for turn in self.turns if given or turn.ends > self.n_given]
        if not turns:
            raise ValueError("messages: got no turn of the assistant in the outputs, wanted at least one to judge")
        return turns

    def user_messages_before(self, turn: Turn) -> range:
        """Return the indices of the user's messages directly before a turn."""
        begins = turn.begins
        while begins and self.messages[begins - 1]["role"] == "user":
            begins -= 1
        return range(begins, turn.begins)

    def user_speaks_before(self, turn: Turn) -> bool:
        """Return whether the user says something between a turn and the one before it."""
        begins = self.turns[turn.number - 2].ends if turn.number > 1 else 0
        return any(message["role"] == "user" for message in self.messages[begins : turn.begins])

    def turn_at(self, index: int) -> int | None:
        """Return the number of the turn that the message at an index belongs to or precedes; None after the last."""
        return next((turn.number for turn in self.turns if index < turn.ends), None)


def conversation(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Conversation | None:
    """Return the conversation of a run; None if neither inputs nor outputs have messages.

    `outputs["messages"]` is the whole conversation if it begins with the inputs' messages (system messages aside), and
    otherwise their continuation. Without it, the answer is one more message of the assistant after the inputs'
    messages: their `messages`, or their only field if that is a list of messages. Raise ValueError for invalid
    messages.
    """
    before = _given(inputs)
    if outputs.get("messages") is None:
        return None if before is None else _conversation([*before, _answer(outputs)], len(before))
    return _joined(before or [], checked_messages(outputs["messages"]))


def _given(inputs: Mapping[str, Any]) -> list[Message] | None:
    if inputs.get("messages") is not None:
        return checked_messages(inputs["messages"])
    only = next(iter(inputs.values())) if len(inputs) == 1 else None
    has_roles = isinstance(only, list) and only and all(isinstance(item, Mapping) and "role" in item for item in only)
    return checked_messages(only) if has_roles else None


def _answer(outputs: Mapping[str, Any]) -> Message:
    """Return the answer as a message, with the tool calls of a chat target."""
    calls, rest = outputs.get("tool_calls"), {name: outputs[name] for name in outputs if name != "tool_calls"}
    value = pick(rest, None) if rest else None
    content = value if value is None or isinstance(value, str) else [{"output": value}]
    message = {"role": "assistant", "content": content}
    return checked_messages([message | ({"tool_calls": calls} if calls else {})])[0]


def _joined(before: list[Message], added: list[Message]) -> Conversation:
    known = [_identity(message) for message in before if message["role"] not in SYSTEM]
    spoken = [index for index, message in enumerate(added) if message["role"] not in SYSTEM]
    if [_identity(added[index]) for index in spoken[: len(known)]] != known:
        return _conversation([*before, *added], len(before))
    present = [_identity(message) for message in added]
    head = [message for message in before if message["role"] in SYSTEM and _identity(message) not in present]
    n_known = spoken[len(known) - 1] + 1 if known else 0
    return _conversation([*head, *added], len(head) + n_known)


def _conversation(messages: list[Message], n_given: int) -> Conversation:
    return Conversation(messages=messages, turns=turns_of(messages), n_given=n_given)


def _identity(message: Message) -> str:
    """Return what identifies a message: what a judge reads of it."""
    return lines([entry_of(message)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated:
    """The kept messages of a conversation, in order."""

    messages: list[Message]
    kept: list[int]  # their indices in the whole conversation, from 0
    left_out: int  # the number of dropped messages


def estimated_tokens(message: Mapping[str, Any]) -> int:
    """Return an upper estimate of a message's tokens: one for every 3 bytes of its line, and a few for its turn."""
    return TOKENS_PER_MESSAGE - -len(lines([entry_of(message)]).encode()) // BYTES_PER_TOKEN


def truncated(messages: Sequence[Message], budget_tokens: int | None, count: Count = estimated_tokens) -> Truncated:
    """Keep the system messages and as many of the newest exchanges as fit into the budget; None is no limit.

    An exchange is consecutive user messages and everything until the user speaks again. It is kept whole or not at all,
    and nothing older than the first exchange that does not fit is kept. System messages and the newest exchange are
    kept even if they exceed the budget, since without them there is nothing to judge. A tool message is dropped if the
    call that it answers is not kept or does not exist. Raise ValueError for an invalid budget.
    """
    system = [index for index, message in enumerate(messages) if message["role"] in SYSTEM]
    remaining = None if budget_tokens is None else checked_count("budget_tokens", budget_tokens)
    if remaining is not None:
        remaining -= sum(count(messages[index]) for index in system)
    newest: list[int] = []
    for exchange in reversed(_exchanges(messages)):
        cost = sum(count(messages[index]) for index in exchange)
        if remaining is not None:
            if newest and cost > remaining:
                break
            remaining -= cost
        newest = [*exchange, *newest]
    kept = _answered(messages, sorted([*system, *newest]))
    return Truncated(messages=[messages[index] for index in kept], kept=kept, left_out=len(messages) - len(kept))


def _exchanges(messages: Sequence[Message]) -> list[list[int]]:
    """Return the indices of each exchange; system messages are in no exchange."""
    exchanges: list[list[int]] = []
    before = None
    for index, message in enumerate(messages):
        if message["role"] in SYSTEM:
            continue
        if not exchanges or (message["role"] == "user" and before != "user"):
            exchanges.append([])
        exchanges[-1].append(index)
        before = message["role"]
    return exchanges


def _answered(messages: Sequence[Message], kept: Sequence[int]) -> list[int]:
    """Return the kept indices without tool messages whose call is not kept before them."""
    called: set[str] = set()
    answered = []
    for index in kept:
        message = messages[index]
        answers = {"tool": message.get("tool_call_id"), "function": message.get("name")}
        if message["role"] in answers and answers[message["role"]] not in called:
            continue
        called |= {call.get("id", "") for call in message.get("tool_calls") or []}
        called |= {(message.get("function_call") or {}).get("name", "")}
        answered.append(index)
    return answered


def shown_messages(dialogue: Conversation, indices: Iterable[int], left_out: int = 0) -> str:
    """Return the messages at some indices, each as a line with its turn: the one that it belongs to or precedes."""
    gap = [{"messages_left_out": left_out}] if left_out else []
    return lines([*gap, *(_entry(dialogue, index) for index in indices)])


def shown_whole(dialogue: Conversation) -> str:
    return shown_messages(dialogue, range(len(dialogue.messages)))


def shown_within(dialogue: Conversation, end: int, budget_tokens: int | None) -> str:
    """Return the newest messages before an index that fit into a budget."""
    newest = truncated(dialogue.messages[:end], budget_tokens)
    return shown_messages(dialogue, newest.kept, newest.left_out)


def _entry(dialogue: Conversation, index: int) -> dict[str, Any]:
    message = dialogue.messages[index]
    turn = None if message["role"] in SYSTEM else dialogue.turn_at(index)
    return ({} if turn is None else {"turn": turn}) | entry_of(message)


CONTEXT_USE_PROMPT = shipped("context_use")


def _metrics(name: str, settings: Mapping[str, Any]) -> dict[str, Direction]:
    return {name: zero_to_one(), CONTRADICTED: zero_to_one(higher_is_better=False)}


@declares(_metrics)
async def context_use(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    complete: Complete,
    *,
    given: bool = False,
    instructions: str = "",
    prompt: str = CONTEXT_USE_PROMPT,
    temperature: Temperature = 0.0,
) -> list[Score] | None:
    """Whether the answers use what the user said earlier, where it matters. Higher is better, 0 to 1.

    In one call over the whole conversation a model lists the facts that the user stated before one turn and that matter
    for a later one, each as used, ignored or contradicted. The score is the share that is used; `context_contradicted`
    is the share that is contradicted, for which lower is better. The metadata has the facts, the comment is the model's
    reasoning. The target's turns are judged, with `given` also those in the inputs. `instructions` are added to the
    prompt; a custom `prompt` uses {conversation}, {turns} and {instructions}.

    None if neither inputs nor outputs have messages, if only the directly preceding messages come before the turns to
    judge (no call is made), and if the model finds that nothing said earlier matters. The answer is a list, which a
    connection with `answer_form: text` cannot give. Raise ValueError if the outputs have no turn, and for a fact that
    the model places where the user says nothing. It cannot see what the assistant itself said or read earlier, facts
    that its model overlooks, nor whether what the user said is true.
    """
    dialogue = conversation(inputs, outputs)
    if dialogue is None:
        return None
    numbers = [turn.number for turn in dialogue.judged(given)]
    user_turns = _user_turns(dialogue, max(numbers))
    if not user_turns:
        return None
    reply = await ask(
        complete,
        prompt,
        {"conversation": fenced(shown_whole(dialogue)), "turns": ", ".join(map(str, numbers))},
        verdict_schema("context_use", {"facts": _facts(max(user_turns))}, "before"),
        needed=["conversation"],
        temperature=temperature,
        spec_texts={"instructions": instructions},
    )
    facts = _checked(reply.verdict["facts"], user_turns)
    if not facts:
        return None
    used, contradicted = (fmean(fact["use"] == use for fact in facts) for use in ("used", "contradicted"))
    reasoning, hashed = reply.verdict.get("reasoning"), prompt_hash(prompt, instructions)
    return [
        Score(value=used, comment=reasoning, metadata={"facts": facts}, prompt_hash=hashed),
        Score(value=contradicted, key=CONTRADICTED, comment=reasoning, prompt_hash=hashed),
    ]


def _user_turns(dialogue: Conversation, last: int) -> set[int]:
    """Return the numbers of the turns, before the last one to judge, that directly follow a message of the user."""
    return {turn.number for turn in dialogue.turns if turn.number < last and dialogue.user_speaks_before(turn)}


def _facts(last: int) -> dict[str, Any]:
    fields = {
        "fact": {"type": "string"},
        "before_turn": {"type": "integer", "minimum": 1, "maximum": last},
        "use": {"type": "string", "enum": [*USES]},
    }
    fact = {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}
    return {"type": "array", "items": fact}


def _checked(facts: Sequence[Mapping[str, Any]], user_turns: set[int]) -> list[dict[str, Any]]:
    for fact in facts:
        if fact["before_turn"] not in user_turns:
            where = ", ".join(map(str, sorted(user_turns)))
            got = f"{short(fact['fact'])} before turn {fact['before_turn']}"
            raise ValueError(f"facts: the judge says {got}, wanted one of the turns {where}")
        if fact["use"] not in USES:
            raise ValueError(f"facts: the judge says {short(fact['use'])}, wanted {', '.join(USES)}")
    return [dict(fact) for fact in facts]


CONVERSATION_QUALITY_PROMPT = shipped("conversation")
GOOD_CONVERSATION = (
    "In a good conversation the user gets in the end what he or she came for, in no more turns than that takes. The "
    "assistant keeps to one line from beginning to end, does not contradict itself, takes up what the user said and "
    "corrected, keeps what it promised, and owns up to what it cannot do."
)


@declares(on_the_scale)
async def conversation_quality(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    complete: Complete,
    *,
    rubric: str = GOOD_CONVERSATION,
    criteria: Mapping[str, Mapping[str, Any] | str | None] | None = None,
    scale: Sequence[int] = SCALE,
    labels: Sequence[str] | Mapping[str, float] | None = None,
    prompt: str = CONVERSATION_QUALITY_PROMPT,
    budget_tokens: int | None = None,
    reasoning: Reasoning = "before",
    temperature: Temperature = "auto",
    repeats: int = 1,
    combine: Combine | None = None,
) -> Score | list[Score] | None:
    """How well a whole conversation meets a rubric, as judged by a model. Higher is better.

    This is the evaluator `rubric` applied to the whole conversation, with the same settings `rubric`, `criteria`,
    `scale`, `labels`, `reasoning`, `temperature`, `repeats` and `combine`. A custom `prompt` uses {outputs} (the
    conversation), {rubric} and {scale}. With `budget_tokens` only the system messages and the newest exchanges that fit
    are shown, and the prompt says how many messages are left out; without it, everything is shown.

    None if neither inputs nor outputs have messages. Raise ValueError for an invalid setting, and if the outputs have
    no turn. It cannot see which turns were already in the inputs: they are judged with the others, so use
    `turn_quality` for conversations that the target only continues. Nor can it see the target's own system message,
    images and files, or what the user would have said to other answers.
    """
    dialogue = conversation(inputs, outputs)
    if dialogue is None:
        return None
    dialogue.judged(given=False)
    budget = None if budget_tokens is None else checked_count("budget_tokens", budget_tokens)
    return await by_rubric(
        {},
        {"output": shown_within(dialogue, len(dialogue.messages), budget)},
        None,
        None,
        complete,
        rubric=rubric,
        prompt=prompt,
        criteria=criteria,
        scale=scale,
        labels=labels,
        reasoning=reasoning,
        temperature=temperature,
        repeats=repeats,
        combine=combine,
    )


def weights_of(judged: Sequence[Turn], n_turns: int, early_weight: float) -> list[float]:
    """Return `early_weight` for turns of the first half (number <= n_turns / 2), else 1. A single turn is not early."""
    return [early_weight if 2 * turn.number <= n_turns else 1.0 for turn in judged]


def checked_weight(setting: str, got: Any, most: float | None = None) -> float:
    """Return a number above 0, or from 0 to `most` if that is set. Raise ValueError otherwise."""
    wanted = "above 0" if most is None else f"from 0 to {most:g}"
    if not is_number(got) or got < 0 or (most is None and got == 0) or (most is not None and got > most):
        raise ValueError(f"{setting}: got {short(got)}, wanted a number {wanted}")
    return float(got)


TURN_ERRORS_PROMPT = shipped("turn_errors")


@declares(share)
async def turn_errors(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    complete: Complete,
    *,
    early_weight: float = 1.5,
    following_weight: float = 0.5,
    given: bool = False,
    instructions: str = "",
    prompt: str = TURN_ERRORS_PROMPT,
    temperature: Temperature = 0.0,
) -> list[Score] | None:
    """Which turns of the assistant are wrong, and whether by their own fault or by following an earlier error.

    A model sees the whole conversation with numbered turns in one call. Each turn has a score with its number: `good`
    is 1, `own fault` is 0, `follows turn N` is 1 - `following_weight`. The run's score is

        sum(w * score) / sum(w),  w = `early_weight` for a turn of the first half (number <= turns / 2), else 1

    over the target's turns, with `given` also those in the inputs; an error can follow from any turn. 1 is a
    conversation without errors, 0 one with an own fault in every turn; early errors cost more, and errors that only
    follow cost less. The comment is the model's reasoning. `instructions` are added to the prompt; a custom `prompt`
    uses {conversation} and {instructions}.

    None if neither inputs nor outputs have messages. Raise ValueError for an invalid setting, if the outputs have no
    turn, for more than 40 turns, and if the model says that a turn follows one that is good or not earlier. It cannot
    see an error if its model lacks the knowledge to recognise it; and since it knows how the conversation continued, it
    may fault what was reasonable at the time.
    """
    early = checked_weight("early_weight", early_weight)
    following = checked_weight("following_weight", following_weight, 1.0)
    dialogue = conversation(inputs, outputs)
    if dialogue is None:
        return None
    turns = dialogue.judged(given)
    if len(dialogue.turns) > MOST_TURNS:
        raise ValueError(f"messages: got {len(dialogue.turns)} turns of the assistant, wanted at most {MOST_TURNS}")
    reply = await ask(
        complete,
        prompt,
        {"conversation": fenced(shown_whole(dialogue))},
        verdict_schema("turn_errors", {_field(turn.number): _choice(turn.number) for turn in dialogue.turns}, "before"),
        needed=["conversation"],
        temperature=temperature,
        spec_texts={"instructions": instructions},
    )
    hashed = prompt_hash(prompt, instructions)
    labels = _checked_errors(reply.verdict, dialogue.turns)
    values = {GOOD: 1.0, OWN_FAULT: 0.0}
    numbers = [values.get(labels[turn.number], 1 - following) for turn in turns]
    mean = fmean(numbers, weights_of(turns, len(dialogue.turns), early))
    turn_scores = [
        Score(value=value, label=labels[turn.number], turn=turn.number, prompt_hash=hashed)
        for turn, value in zip(turns, numbers, strict=True)
    ]
    return [Score(value=mean, comment=reply.verdict.get("reasoning"), prompt_hash=hashed), *turn_scores]


def _field(number: int) -> str:
    return f"turn_{number}"


def _follows(number: int) -> str:
    return f"follows turn {number}"


def _choice(number: int) -> dict[str, Any]:
    return {"type": "string", "enum": [GOOD, OWN_FAULT, *map(_follows, range(1, number))]}


def _checked_errors(verdict: Mapping[str, Any], turns: Sequence[Turn]) -> dict[int, str]:
    """Return the label of each turn by number. Raise ValueError for an answer that contradicts itself."""
    labels = {turn.number: verdict.get(_field(turn.number)) for turn in turns}
    wrong = {_follows(number) for number, label in labels.items() if label != GOOD}
    for number, label in labels.items():
        earlier = {_follows(earlier_number) for earlier_number in range(1, number)}
        if label not in (GOOD, OWN_FAULT) and label not in earlier:
            raise ValueError(f"turn {number}: the judge says {short(label)}, wanted one of its choices")
        if label in earlier and label not in wrong:
            raise ValueError(f"turn {number}: the judge says {label!r}, but rates that turn good")
    return {number: str(label) for number, label in labels.items()}


ROLE_ADHERENCE_PROMPT = shipped("role_adherence")


@declares(share)
async def role_adherence(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    metadata: dict[str, Any] | None,
    complete: Complete,
    *,
    role: str | None = None,
    given: bool = False,
    prompt: str = ROLE_ADHERENCE_PROMPT,
    reasoning: bool = True,
    temperature: Temperature = 0.0,
) -> list[Score] | None:
    """The share of the assistant's turns that keep to its role, 0 to 1, with a score for each turn.

    The role is the text `role`, else the example's own (the field `role` of the inputs or the metadata), else the
    system messages of the conversation. A model sees the whole conversation in one call; the comment is its reasoning.
    The target's turns are judged, with `given` also those in the inputs. A custom `prompt` uses {role} and
    {conversation}.

    None if neither inputs nor outputs have messages, and without a role. Raise ValueError if the outputs have no turn,
    and for more than 40 turns. It cannot see whether a turn is right or helpful, nor a system message that the target
    does not return, and is only as good as its model.
    """
    dialogue = conversation(inputs, outputs)
    if dialogue is None:
        return None
    texts, spec_texts = {"conversation": fenced(shown_whole(dialogue))}, dict[str, str]()
    if role is not None:
        spec_texts["role"] = fenced(checked_text("role", role))
    elif own := inputs.get("role") or (metadata or {}).get("role") or _told(dialogue):
        texts["role"] = fenced(own)
    else:
        return None
    turns = dialogue.judged(given)
    if len(dialogue.turns) > MOST_TURNS:
        raise ValueError(f"messages: got {len(dialogue.turns)} turns of the assistant, wanted at most {MOST_TURNS}")
    fields = {_field(turn.number): {"type": "boolean"} for turn in dialogue.turns}
    reply = await ask(
        complete,
        prompt,
        texts,
        verdict_schema("role_adherence", fields, "before" if reasoning else "none"),
        needed=["role", "conversation"],
        temperature=temperature,
        spec_texts=spec_texts,
    )
    hashed = prompt_hash(prompt, *spec_texts.values())
    kept = {turn.number: bool(reply.verdict[_field(turn.number)]) for turn in turns}
    whole = Score(value=fmean(kept.values()), comment=reply.verdict.get("reasoning"), prompt_hash=hashed)
    return [whole, *(Score(value=value, turn=number, prompt_hash=hashed) for number, value in kept.items())]


def _told(dialogue: Conversation) -> str | None:
    """Return what the system messages of a conversation say; None without any."""
    told = [str(entry_of(message).get("content", "")) for message in dialogue.messages if message["role"] in SYSTEM]
    return "\n\n".join(told) or None


@declares(on_the_scale)
async def turn_quality(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    complete: Complete,
    *,
    rubric: str = GOOD_TURN,
    criteria: Mapping[str, Mapping[str, Any] | str | None] | None = None,
    scale: Sequence[int] = SCALE,
    prompt: str = TURN_QUALITY_PROMPT,
    segments: bool = False,
    given: bool = False,
    budget_tokens: int = 6000,
    early_weight: float = 1.0,
    temperature: Temperature = 0.0,
) -> list[Score] | None:
    """How well each turn of the assistant meets a rubric, given what came before it, as judged by a model.

    Higher is better. Each turn is judged in its own call, without what comes after it. Each turn has a score with
    its number; the run has their weighted mean, with the comment of the worst turn. A turn of the first half (number <=
    turns / 2) has the weight `early_weight`, the others 1. `rubric`, `criteria`, `scale` and `temperature` are those of
    the evaluator `rubric`; a custom `prompt` uses {outputs} (the turn), {inputs} (what came before), {rubric} and
    {scale}.

    The target's turns are judged, with `given` also those in the inputs. With `segments` only the user's messages
    directly before a turn are shown with it: nothing earlier, and no system message. Otherwise the system messages and
    the newest exchanges that fit into `budget_tokens` (estimated at 3 bytes per token) are shown. The turn itself is
    always shown whole.

    None if neither inputs nor outputs have messages. If one turn's call fails, the judgement fails. Raise ValueError
    for an invalid setting, and if the outputs have no turn. It cannot see the target's own system message, images and
    files, nor whether what a turn says about the world is true, unless its model knows.
    """
    dialogue = conversation(inputs, outputs)
    if dialogue is None:
        return None
    turns = dialogue.judged(given)
    weights = weights_of(turns, len(dialogue.turns), checked_weight("early_weight", early_weight))
    checked_count("budget_tokens", budget_tokens)

    async def judged(turn: Turn) -> list[Score]:
        scores = await by_rubric(
            {"input": _before(dialogue, turn, segments, budget_tokens)},
            {"output": shown_messages(dialogue, range(turn.begins, turn.ends))},
            None,
            None,
            complete,
            rubric=rubric,
            prompt=prompt,
            criteria=criteria,
            scale=scale,
            temperature=temperature,
        )
        return [replace(score, turn=turn.number) for score in (scores if isinstance(scores, list) else [scores])]

    by_turn = await _all([judged(turn) for turn in turns])
    by_metric = list(zip(*by_turn, strict=True))
    return [
        *(_of_the_run(scores, weights) for scores in by_metric),
        *(score for scores in by_metric for score in scores),
    ]


def _before(dialogue: Conversation, turn: Turn, segments: bool, budget_tokens: int) -> str:
    if segments:
        return shown_messages(dialogue, dialogue.user_messages_before(turn))
    return shown_within(dialogue, turn.begins, budget_tokens)


async def _all(judgements: Sequence[Coroutine[Any, Any, list[Score]]]) -> list[list[Score]]:
    """Wait for all, even if one fails, so that their cost counts for this judgement; then raise the first failure."""
    results = await asyncio.gather(*judgements, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


def _of_the_run(scores: Sequence[Score], weights: Sequence[float]) -> Score:
    """Return the weighted mean of one metric's scores, with the comment of the first worst turn."""
    values = [float(score.value or 0) for score in scores]
    worst = scores[values.index(min(values))]
    comment = f"turn {worst.turn}: {worst.comment}" if worst.comment else None
    return replace(worst, value=fmean(values, weights), turn=None, comment=comment)
