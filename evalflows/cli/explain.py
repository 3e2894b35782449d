"""Explain a decision, or make it again."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import click

from evalflows.cli.decisions import decisions_section, limits_section, print_decision
from evalflows.cli.late_commands import FORMAT, VERBOSE_RUN, one_line_errors, print_json, stdout_for
from evalflows.cli.output import Console, Text, console, echo, echo_error
from evalflows.cli.sections import IN_BRIEF, lines_section, print_sections
from evalflows.cli.show import links_here, print_next, print_worst, worst_sections
from evalflows.reports.decisions import Decision, explained, find_decision, identities, other_specs, with_limits
from evalflows.reports.markdown_pages import after_experiments, gate_report
from evalflows.reports.results import results_against
from evalflows.reports.worst import Worst, worst_of
from evalflows.specs import hints
from evalflows.specs.errors import InputError, StorageError
from evalflows.specs.escaping import one_line
from evalflows.specs.frozen import dataclass
from evalflows.store.described import rule_outcomes
from evalflows.store.evidence import verify_decision
from evalflows.store.queries.looks import final_ids
from evalflows.store.records import DecisionRow, from_json
from evalflows.store.signatures import is_signed, sign, signature_of
from evalflows.store.store import Store, existing_store


@click.command()
@click.argument("decision")
@click.option("--again", is_flag=True, help="Verify the files behind the decision, and decide again.")
@click.option("--signers", metavar="FILE", help="With --again: the decision must be signed by a key in this file.")
@click.option("--sign", "key", metavar="KEY", help="With --again: sign the same decision with this SSH key.")
@click.option("--all", "is_whole", is_flag=True, help="Print the settings, SQL queries, files and examples too.")
@FORMAT
@VERBOSE_RUN
def explain(
    decision: str, again: bool, signers: str | None, key: str | None, is_whole: bool, form: str, verbose: bool
) -> None:
    """Explain a DECISION: its rules and evidence, and the SQL, files and settings that reproduce it.

    DECISION is an id, an id prefix, the name of a gate, an experiment or its spec, or an experiment's id. Exit code
    with --again: 1 if the result differs, 4 for files that no run wrote, or if a required signature is missing.
    """
    with one_line_errors(verbose):
        if not again and (signers or key):
            raise InputError(f"{'--signers' if signers else '--sign'}: wanted --again too, which verifies the files")
        store = existing_store()
        found = find_decision(store, decision)
        others = other_specs(store, found) if decision == found.gate else []
        if form == "json":
            if others:
                echo_error(_whose(found, others))
            document = gate_report(store, [found]).document
            document["explanation"] = [{"title": title, "lines": lines} for title, lines in explained(store, found)]
            with stdout_for(form):
                result = _again(found, signers, key) if again else None
            document["again"] = None if result is None else asdict(result)
            print_json(document)
            _exit_if_another(result)
            return
        if others:
            echo(one_line(_whose(found, others)))
        result = _again(found, signers, key) if again else None
        (stored,) = with_limits(store, [found])
        results = results_against(
            store, stored.candidate_experiment_id, stored.baseline_experiment_id, [stored.decision_id]
        )
        hidden = final_ids(store, [stored.candidate_experiment_id])
        out, worst = console(), worst_of(store, results, [stored], hidden)
        if is_whole:
            print_decision(out, stored)
            for title, lines in explained(store, stored):
                out.print(Text(f"\n{title}", style="bold", lines=True))
                for line in lines:
                    echo(line)
        else:
            _explain_in_brief(out, store, stored, worst)
        if result is not None:
            echo("")
            for line in result.lines():
                echo(one_line(line))
        if is_whole:
            print_worst(out, worst)
        page = links_here().decision(stored.decision_id)
        print_next(out, after_experiments(store, results, [stored], explained=True), page)
        _exit_if_another(result)


def _whose(found: Decision, others: Sequence[str]) -> str:
    """Say whose gate made a decision that was named by the gate, and how those of other specs are named."""
    have = f"{', '.join(others)} {'have gates' if len(others) > 1 else 'has a gate'} of that name, too"
    return f"the newest decision of a gate {found.gate!r}: of {found.candidate}; {have}: {hints.explain(others[0])}"


def _explain_in_brief(out: Console, store: Store, stored: Decision, worst: Worst | None) -> None:
    """Print the decision, its limits, what was compared, and how to reproduce it."""
    examples = [f"         examples of the first: {stored.where_command}"] if stored.where_command else []
    looks = f"analyses   {stored.interim_analyses} interim; {stored.calls_saved} model calls saved"
    lines = [
        *identities(store, stored),
        *([looks] if stored.calls_saved is not None else []),
        f"reproduce  {hints.explain(stored.decision_id, again=True)}",
        "           its settings, SQL queries and files: --all",
    ]
    sections = [
        decisions_section([stored]),
        lines_section(map(_unwrapped, examples)),
        limits_section([stored]),
        lines_section(map(_unwrapped, lines), is_apart=True),
        *worst_sections(worst, out.width),
    ]
    print_sections(out, sections, IN_BRIEF, "--all")


def _unwrapped(line: str) -> Text:
    """Return a line with a command to copy, or an id."""
    text = Text(line)
    text.no_wrap, text.overflow = True, "ignore"
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """What came of verifying a decision and deciding again."""

    verified: str
    signature: str | None
    decided_again_from_the_store: str
    is_same: bool

    def lines(self) -> Iterator[str]:
        yield f"Verified: {self.verified}"
        yield f"Signature: {self.signature or 'none'}"
        yield f"Decided again from the store: {self.decided_again_from_the_store}"


def _again(stored: Decision, signers: str | None, key: str | None) -> Again:
    """Verify the files of a decision, and decide again. Then sign it, if wanted, and verify its signature.

    Raise StorageError if it is not signed as wanted, and InputError if another decision were to be signed.
    """
    from evalflows import decide_again

    store, identity = Store(), stored.decision_id
    verified = verify_decision(store, identity).text
    again = decide_again(identity)
    (row,) = store.read("decisions", identity)
    if is_same := _are_same(row, again):
        result = "the same figures, the same decision"
    elif again.conclusion == stored.conclusion:
        result = f"different figures now, still {again.conclusion}: {again.summary}"
    else:
        result = f"a different decision now, {again.conclusion}: {again.summary}"
    if key is not None:
        if not is_same:
            raise InputError(f"--sign: got {result}; wanted the same decision")
        sides = [side for side in (stored.candidate_experiment_id, stored.baseline_experiment_id) if side is not None]
        sign(store, row, sides, Path(key).expanduser())
    signature = f"signed with {key}" if key and not signers else _signature(store, row, signers)
    return Again(verified=verified, signature=signature, decided_again_from_the_store=result, is_same=is_same)


def _exit_if_another(result: Again | None) -> None:
    if result is not None and not result.is_same:
        sys.exit(1)


def _are_same(stored: DecisionRow, again: DecisionRow) -> bool:
    """Return whether a decision is as its evidence gives it: its figures by the id, and what else it says of them.

    Texts of another version may be worded otherwise.
    """

    def said(row: DecisionRow) -> list[object]:
        return [row.conclusion, row.n_shared, [replace(rule, text="") for rule in rule_outcomes(row.reasons)]]

    is_worded_alike = stored.evalflows_version != again.evalflows_version or stored.summary == again.summary
    return stored.decision_id == again.decision_id and said(stored) == said(again) and is_worded_alike


def _signature(store: Store, row: DecisionRow, signers: str | None) -> str | None:
    if signers is None:
        wanted = from_json(row.policy).get("signers") or "FILE"
        return f"present, not verified (--signers {wanted})" if is_signed(store, row.decision_id) else None
    if (found := signature_of(store, row, Path(signers).expanduser())) is None:
        raise StorageError(f"{row.decision_id}: is not signed, wanted a signature by a key in {signers}")
    return found.text
