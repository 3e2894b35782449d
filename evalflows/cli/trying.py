"""Try a prompt in place of an experiment's own, and compare the two; try an agent on one example, turn by turn."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalflows.cli.diff import print_brief
from evalflows.cli.late_commands import CHANGES, FORMAT, VERBOSE_RUN, one_line_errors, print_json, stdout_for
from evalflows.cli.output import console, echo
from evalflows.cli.running import find_modules_here, prepare_runs
from evalflows.cli.sections import IN_BRIEF_SHOWN
from evalflows.cli.show import links_here, print_next
from evalflows.specs import hints
from evalflows.specs.errors import (
    NOT_ATTEMPTED,
    UNREACHABLE,
    CallError,
    IncompleteError,
    InputError,
    NotFoundError,
)
from evalflows.specs.escaping import json_text, one_line
from evalflows.specs.protocols import Message
from evalflows.store.queries.conclusions import approved
from evalflows.store.queries.looks import look_of, newest_without_look
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.store import Store, existing_store

if TYPE_CHECKING:
    from evalflows.api.playing import Played
    from evalflows.specs.experiment import ExperimentSpec
    from evalflows.store.records import ExperimentRow


@click.command("try")
@click.argument("tried", metavar="PROMPT_FILE|EXAMPLE")
@click.option(
    "--against", metavar="EXPERIMENT", help="Try a prompt: the experiment to change, or the name of a baseline."
)
@click.option(
    "--field",
    type=click.Choice(["system", "user"]),
    help="Prompt of the chat target that the file replaces. Default: system, or user if there is no system prompt.",
)
@click.option("--spec", metavar="SPEC", help="Try an example: the spec, with a target of kind conversation.")
@CHANGES
@click.option("--target", metavar="NAME", help="The target to talk to, if the spec has several.")
@click.option("--user", type=click.Choice(["me"]), help="me: you are the user. An empty line ends the conversation.")
@FORMAT
@VERBOSE_RUN
def try_out(
    tried: str,
    against: str | None,
    field: str | None,
    spec: str | None,
    changes: tuple[str, ...],
    target: str | None,
    user: str | None,
    form: str,
    verbose: bool,
) -> None:
    """Try a prompt on an experiment's examples, or an agent on one example.

    With --against, run the experiment again with the prompt in PROMPT_FILE, and show what changed. Everything else is
    as in the experiment: examples, model, parameters and evaluators; identical calls are reused. The output shows the
    difference, the slices that deviate from it, and the examples that got worse. No gate decides.

    With --spec, hold the conversation of EXAMPLE in this terminal, turn by turn, with the spec's user or with you as
    the user. Only the paid calls are stored.
    """
    with one_line_errors(verbose):
        if (against is None) == (spec is None):
            raise InputError(
                f"try: got {'both' if spec else 'neither'}, wanted --against (a prompt) or --spec (an example)"
            )
        if spec is not None:
            _play(tried, spec, changes, target, user, form)
        else:
            _try_prompt(Path(tried), str(against), field, form, verbose)


def _try_prompt(prompt: Path, against: str, field: str | None, form: str, verbose: bool) -> None:
    store = existing_store()
    (row,) = store.read("experiments", _experiment(store, against))
    incomplete = None
    with stdout_for(form), prepare_runs(verbose) as watch:
        from evalflows import run

        try:
            (identity,) = run(_changed(row, prompt, field), None, watch)
        except IncompleteError as error:
            if not error.experiments:
                raise
            (identity,), incomplete = error.experiments, error
    _print(store, row.experiment_id, identity, form)
    if incomplete is not None:
        raise incomplete


def _play(example: str, path: str, changes: Sequence[str], target: str | None, user: str | None, form: str) -> None:
    from evalflows.api.playing import play
    from evalflows.specs.experiment import load_experiment

    find_modules_here()

    typed: list[str | None] = []

    def tell(message: Message) -> None:
        if form == "table" and not (message["role"] == "user" and message["content"] in typed):
            echo("\n".join(_said(message)))

    def ask() -> str | None:
        typed[:] = [_ask()]
        return typed[0]

    try:
        played = play(load_experiment(path, changes), example, target, tell, ask if user == "me" else None)
        if played.invalid is not None:
            if form == "table":
                _print_end(played)
            raise played.invalid
    except CallError as error:
        failed = IncompleteError if error.kind in UNREACHABLE | NOT_ATTEMPTED else InputError
        raise failed(f"example {example!r}: {error.kind}: {error}") from error
    if form == "json":
        scores = {score.metric: score.value if score.label is None else score.label for score in played.scores}
        others = {"changes": played.changes, "scores": scores, "cost_usd": played.spent.cost_usd}
        print_json({**played.outputs, **others})
        return
    _print_end(played)


def _print_end(played: "Played") -> None:
    """Print what ended a conversation, and what the tools changed."""
    calls = "an unknown number of" if played.spent.calls is None else played.spent.calls
    echo(f"ended: {played.outputs['ended']}; {calls} paid calls")
    for line in played.changes:
        echo(f"  {line}")
    for score in played.scores:
        value = "failed" if score.error else score.label if score.value is None else f"{score.value:g}"
        why = score.error or score.comment
        echo(f"{score.metric}: {value or 'does not apply'}{f' ({one_line(why)})' if why else ''}")


def _said(message: Message) -> list[str]:
    """Return a message in lines: who says it, and what; calls of tools and their results indented."""
    content, role = message.get("content"), str(message["role"])
    text = content if isinstance(content, str) else "" if content is None else json_text(content)
    if role == "tool":
        return [f"    {one_line(text)}"]
    calls = [call.get("function") or call for call in message.get("tool_calls") or ()]
    lines = [f"  {call.get('name')}({call.get('arguments') or ''})" for call in calls]
    return ([f"{role}: {text}"] if text else []) + lines


def _ask() -> str | None:
    """Return what is typed as the user; None for an empty line, or at the end of the input."""
    try:
        return input("you: ").strip() or None
    except EOFError:
        return None


def _experiment(store: Store, reference: str) -> str:
    """Return the experiment that a reference or a baseline means; by a name, one that ran no final examples."""
    try:
        found = find_experiments(store, reference, just_one=True)[0]
    except NotFoundError:
        if (approval := approved(store, reference)) is None:
            raise
        found = approval.experiment_id
    (row,) = store.read("experiments", found)
    if look_of(store, row.run_group) is None:
        return found
    other = newest_without_look(store, row.name)
    if other is None or reference == found:
        instead = f"such as {other}" if other else f"which {hints.run().code} makes"
        raise InputError(f"try: got {reference!r}, which ran the final examples, wanted one without them, {instead}")
    return other


def _changed(row: "ExperimentRow", prompt: Path, field: str | None) -> "ExperimentSpec":
    """Return the spec of an experiment with another prompt, and without its gates and other targets."""
    from evalflows.specs.target import ChatTarget  # late: the other imports are enough to refuse
    from evalflows.store.row_specs import experiment_spec

    spec = experiment_spec(row)
    target = next(target for target in spec.targets if target.name == row.target)
    if not isinstance(target, ChatTarget):
        raise InputError(
            f"try: got {row.name!r}, whose target is of kind {target.kind}, wanted a chat target, whose prompt is in "
            "its spec"
        )
    try:
        text = prompt.read_text(encoding="utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{prompt}: {error}, wanted a text in UTF-8") from error
    replaced = field or ("user" if target.system is None and target.user is not None else "system")
    fields: dict[str, Any] = target.model_dump() | {replaced: text, "name": prompt.stem}
    name = f"{row.name}-{prompt.stem}"
    changes = {"name": name, "targets": [ChatTarget.model_validate(fields)], "baseline": None, "run_key": None}
    return spec.model_copy(update={**changes, "gates": [], "compare": None})


def _print(store: Store, baseline: str, candidate: str, form: str) -> None:
    from evalflows.reports.diff import diff_document, diff_of

    with store.reading(once=True):
        compared = diff_of(store, baseline, [candidate], slices=True)
    if form == "json":
        print_json(diff_document(compared))
        return
    out = console()
    print_brief(out, compared, f"{hints.diff(baseline, candidate).command} --all", IN_BRIEF_SHOWN)
    out.print()
    print_next(out, hints.diff(baseline, candidate), links_here().compare(baseline, candidate))
