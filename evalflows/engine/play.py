"""Play one conversation, and tell each message as it is said: with the spec's user, or with another one."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from evalflows.engine.dialogue import Said, User, conversation
from evalflows.engine.may_call_models import evaluator_may_call_unrecorded, records_calls
from evalflows.engine.preflight import check_conversations
from evalflows.engine.prepare import PreparedExperiment, prepare
from evalflows.engine.running import EvaluatorFactory
from evalflows.engine.spec_targets import fields_of_all, posts_of
from evalflows.engine.views import example_view, target_arguments
from evalflows.evaluators.score import Judgement, normalise
from evalflows.evaluators.views import Evaluation, Evaluations, RunView, offer_run
from evalflows.llm import loop
from evalflows.llm.budget import Budget
from evalflows.llm.ledger import Ledger, Recorder, Usage, recording
from evalflows.llm.wrapped import plain
from evalflows.specs.code_versions import fault_text
from evalflows.specs.connections import ConnectionSpec
from evalflows.specs.errors import CallError, InputError, names_to_choose
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.protocols import Message
from evalflows.specs.target import ConversationTarget
from evalflows.store.records import ExampleRow, from_json, new_id
from evalflows.store.spool import Spool, recover, spool_folder
from evalflows.store.store import Store
from evalflows.targets import Answer, awaited

Tell = Callable[[Message], None]


class Held(NamedTuple):
    """A conversation that was held: its answer, why it is invalid, what it cost, and its scores."""

    answer: Answer
    invalid: CallError | None
    spent: Usage
    scores: Sequence[Judgement]


def play_conversation(
    spec: ExperimentSpec,
    name: str | None,
    example: ExampleRow,
    tell: Tell,
    says: Callable[[], str | None] | None = None,
) -> Held:
    """Hold a conversation of a spec's target on an example, and score it by the evaluators that call no model.

    Paid calls are stored in the ledger under an id of this trial, and cached ones are reused; nothing else is stored.

    Args:
        spec: The spec; all else but one target and the evaluators is ignored.
        name: The name of the target. Default: the only one that holds conversations.
        example: The example.
        tell: Called with each message, as soon as it is said.
        says: Returns what the user says instead of the spec's user; None ends the conversation.

    Raise InputError for a spec without such a target, and CallError for a conversation that fails.
    """
    targets = {target.name: target for target in spec.targets if isinstance(target, ConversationTarget)}
    if (name is None and len(targets) > 1) or (name is not None and name not in targets) or not targets:
        wanted = names_to_choose(name or "", targets) if targets else "a target of kind conversation"
        raise InputError(f"--target: got {name or 'none'}, wanted {wanted}")
    prepared = prepare(spec.model_copy(update={"targets": [targets[name or next(iter(targets))]]}))
    (target,) = prepared.spec.targets
    assert isinstance(target, ConversationTarget)
    if says is not None:
        target = target.model_copy(update={"user_check": None})  # a person is not judged
    check_conversations(target, [example])
    store, trial = Store(), new_id("trial")
    ledger, budget = Ledger(store, trial), Budget()
    factory = EvaluatorFactory(prepared.spec, ledger, budget)
    user = None if says is None else _speaking(says)
    made = conversation(target, factory.complete, posts_of, fields_of_all([example]), tell=tell, user=user)
    with recorded_trial(store, trial, ledger, budget, factory.connections) as recorder:
        invalid = None
        try:
            answer = loop.run(awaited(made.call(target_arguments(example_view(example), 0))))
        except CallError as error:
            if error.kind != "invalid_trial":
                raise
            answer, invalid = Answer(from_json(error.received)), error
        scores = [*_scores(prepared, example, answer.outputs, plain(recorder.steps))]
    spent = sum((other.totals() for other in recorder.others.values()), recorder.totals())
    return Held(answer, invalid, spent, scores)


def _scores(
    prepared: PreparedExperiment, example: ExampleRow, outputs: dict[str, Any], steps: list[dict[str, Any]]
) -> Iterator[Judgement]:
    """Yield the scores of the evaluators that call no model; an error is one too."""
    view, before = example_view(example), list[Evaluation]()
    run = RunView(id="trial", inputs=view.inputs, outputs=outputs, steps=steps)
    free = (
        evaluator
        for evaluator in prepared.evaluators
        if not any(judge.connection or judge.bound.is_async for judge in evaluator.judges)
        and not (evaluator_may_call_unrecorded(evaluator) or records_calls(evaluator.bound.function))
    )
    for evaluator in sorted(free, key=lambda evaluator: evaluator.bound.asks_for("scores", "evaluations")):
        available = offer_run(view, run, Evaluations(before))
        try:
            found = normalise(evaluator.bound.call(available), evaluator.name)
        except Exception as error:  # of a setting, a path, or the user's code
            found = [Judgement(metric=evaluator.name, error=fault_text(error))]
        before += [
            Evaluation(name=each.metric, value=each.value if each.label is None else each.label) for each in found
        ]
        yield from found


def take_up_trials(store: Store) -> None:
    """Keep the calls that trials whose process was killed have paid, so that the ledger has them."""
    for folder in spool_folder(store).glob("trial-*"):
        if recover(store, folder.name):
            store.seal(folder.name, ["calls"])


@contextmanager
def recorded_trial(
    store: Store, trial: str, ledger: Ledger, budget: Budget, connections: Sequence[ConnectionSpec]
) -> Iterator[Recorder]:
    """Record the calls of a block under the id of a trial, and keep those that were paid, also if it fails."""
    try:
        with Spool(store, trial, "trial") as spool:
            recorder = Recorder(
                keep=spool.add_call,
                note=spool.note_sent,
                drop=spool.drop_sent,
                experiment_id=trial,
                subject_id=trial,
                budget=budget,
                ledger=ledger,
                connections=connections,
            )
            with recording(recorder):
                yield recorder
    finally:
        store.seal(trial, ["calls"])


def _speaking(says: Callable[[], str | None]) -> User:
    async def speak(trial: object, turn: int) -> Said:
        text = await asyncio.to_thread(says)
        return Said(None if text is None else {"role": "user", "content": text})

    return speak
