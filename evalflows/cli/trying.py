"""Try a prompt: run it in place of an experiment's own, and compare the two."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalflows.cli.diff import print_brief
from evalflows.cli.late_commands import FORMAT, VERBOSE_RUN, one_line_errors, print_json, stdout_for
from evalflows.cli.output import console
from evalflows.cli.running import prepare_runs
from evalflows.cli.sections import IN_BRIEF_SHOWN
from evalflows.cli.show import links_here, print_next
from evalflows.specs import hints
from evalflows.specs.errors import IncompleteError, InputError, NotFoundError
from evalflows.store.queries.conclusions import approved
from evalflows.store.queries.looks import look_of, newest_without_look
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.store import Store, existing_store

if TYPE_CHECKING:
    from evalflows.specs.experiment import ExperimentSpec
    from evalflows.store.records import ExperimentRow


@click.command("try")
@click.argument("prompt", metavar="PROMPT_FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--against", metavar="EXPERIMENT", required=True, help="The experiment to change, or the name of a baseline."
)
@click.option(
    "--field",
    type=click.Choice(["system", "user"]),
    help="Which prompt of the chat target the file replaces. Default: the system prompt, unless it has only the other.",
)
@FORMAT
@VERBOSE_RUN
def try_prompt(prompt: Path, against: str, field: str | None, form: str, verbose: bool) -> None:
    """Run an experiment again with another prompt, from PROMPT_FILE, and show what changed.

    Everything else is as in the experiment: examples, model, parameters and evaluators; calls that are alike are
    reused. Then follow the difference, the slices that depart from it, and the examples that got worse. No gate
    decides.
    """
    with one_line_errors(verbose):
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
        raise InputError(f"try: got {reference!r}, which ran the final examples, wanted one that ran others, {instead}")
    return other


def _changed(row: "ExperimentRow", prompt: Path, field: str | None) -> "ExperimentSpec":
    """Return the spec of an experiment with another prompt, and without its gates and other targets."""
    from evalflows.specs.target import ChatTarget  # late: the other imports are enough to refuse
    from evalflows.store.described import experiment_spec

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
