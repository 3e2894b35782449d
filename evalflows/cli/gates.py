"""Release gates on the command line: plan a run, run and explain a gate, approve baselines, backtest, and write the
files of CI systems.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Group, RenderableType
from rich.padding import Padding

from evalflows.analysis.figures import given_figure
from evalflows.cli.late_commands import (
    CHANGES,
    FORMAT,
    FRESH,
    NOT_ENOUGH_EVIDENCE,
    STARTED_ANEW,
    VERBOSE,
    VERBOSE_RUN,
    Detail,
    json_document,
    one_line_errors,
    print_json,
    stdout_for,
    with_detail,
)
from evalflows.cli.output import DECISION_STYLES, Console, Table, Text, console, echo, echo_error, indented_lines, table
from evalflows.cli.running import find_modules_here
from evalflows.cli.sections import IN_BRIEF, Section, lines_section, print_sections
from evalflows.cli.show import (
    links_here,
    print_calls,
    print_experiments,
    print_next,
    print_worst,
    results_sections,
    worst_sections,
)
from evalflows.cli.stores import store_to_list
from evalflows.reports.candidates import CandidatesOfGate
from evalflows.reports.decision_limits import with_limits
from evalflows.reports.decisions import (
    Decision,
    decisions_named,
    decisions_of,
    explained,
    find_decision,
    identities,
    other_specs,
)
from evalflows.reports.junit import junit
from evalflows.reports.markdown_pages import Address, GateReport, after_experiments, gate_page, gate_report
from evalflows.reports.pages_as_text import plain
from evalflows.reports.results import results_against
from evalflows.reports.worst import Worst, worst_of
from evalflows.specs import hints
from evalflows.specs.errors import GateFailedError, IncompleteError, InputError, StorageError, one_line
from evalflows.store.evidence import verify_decision
from evalflows.store.exports import write_whole
from evalflows.store.queries.lookup import approvals, find_experiments, keep_report, run_groups
from evalflows.store.records import DecisionRow, from_json, to_json
from evalflows.store.signatures import is_signed, sign, signature_of
from evalflows.store.sql import existing_store
from evalflows.store.store import Store

if TYPE_CHECKING:
    from evalflows.analysis.backtest import Backtest
    from evalflows.analysis.plan import Plan
    from evalflows.specs.experiment import ExperimentSpec


@click.command()
@click.argument("spec")
@click.option("--gate", "name", help="Name of the gate. Default: every gate of the file.")
@click.option(
    "--replicates",
    type=click.IntRange(0),
    default=200,
    show_default=True,
    help="Simulated replicates per pair, without a difference and with injected losses; 0: none.",
)
@click.option(
    "--limit", type=click.IntRange(1), default=200, show_default=True, help="Maximum number of pairs, newest first."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the replicates.")
@click.option("--all", "is_whole", is_flag=True, help="Print all pairs, and why each was decided as it was.")
@FORMAT
@CHANGES
@VERBOSE_RUN
def backtest(
    spec: str,
    name: str | None,
    is_whole: bool,
    form: str,
    changes: tuple[str, ...],
    verbose: bool,
    **settings: int,
) -> None:
    """Backtest the gates of a SPEC file on all past pairs of experiments.

    Pairs of the same target are included. The result: how often the gates would have blocked a release, their
    false-alarm rate, and which losses they would have detected. Nothing is run or called, and
    nothing but the backtest is stored.
    """
    from evalflows.specs.experiment import load_experiment

    with one_line_errors(verbose):
        experiment = load_experiment(spec, changes)
        documents = []
        for result in _backtests(experiment, name, settings):
            document = plain(result.as_dict())
            identity = keep_report(Store(), "backtest", result.gate, document, "\n".join(document["sentences"]))
            if form == "json":
                documents.append({"backtest_id": identity, **document})
            else:
                print_backtest(console(), document, is_whole=is_whole)
                echo(f"kept: {hints.show(identity)}")
        if form == "json":
            print_json(documents)


def _backtests(spec: "ExperimentSpec", name: str | None, settings: dict[str, int]) -> "list[Backtest]":
    from evalflows.api.planning import backtest_gate

    return backtest_gate(spec, name, **settings)


def print_backtest(out: Console, backtest: Mapping[str, Any], *, is_whole: bool) -> None:
    """Print a summary in sentences and the newest pairs; with `is_whole` all pairs, and the rules that decided.

    `backtest` is the document of `--format json`.
    """
    columns = ["candidate", "baseline", "baseline is", "decision", *(["because"] if is_whole else [])]

    def draw(decisions: Sequence[Mapping[str, Any]]) -> RenderableType:
        rows = table(*columns, headings=2, wrapped=("because",))
        for past in decisions:
            cells = [past["candidate"], past["baseline"], _relation(past), _conclusion(past)]
            rows.add_row(*cells, *([past["because"]] if is_whole else []))
        return rows

    decisions, title = backtest["decisions"], f"gate {backtest['gate']}, backtested on {backtest['experiments']}"
    least = None if is_whole else min(3, len(decisions))
    sections = [
        lines_section([Text(f"{title} experiments", style="bold"), *map(Text, backtest["sentences"])]),
        Section(items=decisions, draw=draw, what="pair", least=least, is_apart=True),
    ]
    print_sections(out, sections, IN_BRIEF, "--all")


def _conclusion(past: Mapping[str, Any]) -> Text:
    if past["is_refused"]:
        return Text("refused", style="yellow")
    return Text(past["conclusion"], style=DECISION_STYLES[past["conclusion"]])


def _relation(past: Mapping[str, Any]) -> str:
    if past["relation"] == "halves":
        return "its other half"
    relation = "approved then" if past["relation"] == "baseline" else "earlier"
    return f"{relation}, same target" if past["is_same_target"] else relation


Command = TypeVar("Command", bound=Callable[..., Any])

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""The environment variable with which GitHub names the file of a step's summary."""

FROM_ENVIRONMENT = f"${STEP_SUMMARY}"
"""The value of `--summary` without a file."""

_OPTIONS = (
    click.option(
        "--junit", metavar="FILE", help="Also write a JUnit report: a testsuite per gate, a testcase per rule."
    ),
    click.option("--json", metavar="FILE", help="Also write the document of --format json."),
    click.option(
        "--summary",
        metavar="FILE",
        is_flag=False,
        flag_value=FROM_ENVIRONMENT,
        help=f"Also append the decisions in Markdown to FILE; without FILE, to the one that {STEP_SUMMARY} names.",
    ),
)


def with_ci_files(command: Command) -> Command:
    """Add the options that name the files; the command gets them as `junit`, `json` and `summary`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class CiFiles:
    """Paths of the files; None: not wanted."""

    junit: Path | None
    json: Path | None
    summary: Path | None

    @classmethod
    def of(cls, *, junit: str | None, json: str | None, summary: str | None) -> "CiFiles":
        """Return the files that options name. Raise InputError if one cannot be written there."""
        given = summary
        page = os.environ.get(STEP_SUMMARY) if given == FROM_ENVIRONMENT else given
        if given == FROM_ENVIRONMENT and not page:
            raise InputError(f"--summary: got no file, and {STEP_SUMMARY} is not set; wanted --summary FILE")
        files = cls(junit=_path(junit), json=_path(json), summary=_path(page))
        for option, path in files._named():
            _check(option, path)
        return files

    def write(self, report: GateReport) -> None:
        """Write the files: each whole or not at all, and the summary at the end of its file.

        Raise InputError if one cannot be written.
        """
        if self.junit:
            write_whole(self.junit, junit(report.decisions, report.incomplete))
        if self.json:
            write_whole(self.json, json_document(report.document))
        if self.summary:
            _append(self.summary, gate_page(report, _address()))

    def _named(self) -> Iterator[tuple[str, Path]]:
        for option, path in (("--junit", self.junit), ("--json", self.json), ("--summary", self.summary)):
            if path is not None:
                yield option, path


def _address() -> Address:
    """Return the addresses of pages of the dashboard that EVALFLOWS_DASHBOARD_URL names, or that runs here."""
    return links_here().page


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)


def _check(option: str, path: Path) -> None:
    """Find before anything is paid what can be found of a file that cannot be written."""
    if path.is_dir():
        raise InputError(f"{option}: got {str(path)!r}, which is a folder, wanted a file")
    if not path.parent.is_dir():
        raise InputError(f"{option}: got {str(path)!r}, wanted a file in a folder that exists")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{option}: got {str(path)!r}, wanted a folder that can be written")


def _append(path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(f"{text}\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


OUTCOMES = {"met": "green", "broken": "bold red", "open": "yellow"}


@click.command()
@click.argument("spec")
@CHANGES
@FRESH
@click.option(
    "--baseline",
    "against",
    help="Compare with this, whatever the file says: a target, an approved baseline, or a window of production such as "
    "production:EVALUATION@24h.",
)
@click.option("--resume", "group", metavar="EXPERIMENT", help="Resume an interrupted or early-stopped EXPERIMENT.")
@click.option(
    "--look-again",
    metavar="REASON",
    help="Run the final examples once more than final_looks allows; every report shows the REASON.",
)
@with_detail
@FORMAT
@with_ci_files
@VERBOSE_RUN
def gate(
    spec: str,
    changes: tuple[str, ...],
    fresh: bool,
    against: str | None,
    group: str | None,
    look_again: str | None,
    detail: Detail,
    form: str,
    verbose: bool,
    **files: str | None,
) -> None:
    """Run the experiment of a SPEC file, compare it with the baseline, and decide the file's gates.

    Exit code: 0 if all gates PASS, 1 if one FAILs, 3 if there is not enough evidence.
    """
    from evalflows.specs.experiment import change_experiment, load_experiment

    with one_line_errors(verbose):
        loaded = load_experiment(spec, [*changes, *(STARTED_ANEW if fresh else ())])
        if against is not None:
            loaded = change_experiment(
                loaded, [f"gates.{n}.baseline={to_json(against)}" for n in range(len(loaded.gates))]
            )
        if look_again is not None:
            loaded = change_experiment(loaded, [f"look_again={to_json(look_again)}"])
        ci_files, store = CiFiles.of(**files), Store()
        run_group = run_groups(store, find_experiments(store, group))[0] if group else None
        _run_gate(loaded, run_group, verbose, detail=detail, form=form, path=spec, files=ci_files)


def _run_gate(
    spec: "ExperimentSpec", group: str | None, verbose: bool, *, detail: Detail, form: str, path: str, files: CiFiles
) -> None:
    from evalflows.cli.running import prepared

    failed = None
    with stdout_for(form), prepared(verbose) as watch:
        from evalflows import gate as run_flow
        from evalflows.llm.ledger import Calls

        calls = Calls()
        try:
            decision_ids = run_flow(spec, group, watch, calls)
        except (GateFailedError, IncompleteError) as error:
            decision_ids, failed = list(error.decisions), error
    store = Store()
    incomplete = str(failed) if isinstance(failed, IncompleteError) else None
    decisions, made = decisions_named(store, decision_ids), calls.made
    report = gate_report(store, decisions, made, spec=path, incomplete=incomplete)
    _print_decided(report, detail=detail, form=form)
    undecided = [decision for decision in decisions if decision.conclusion != "PASS"]
    _write_files(files, report, is_red=failed is not None or bool(undecided))
    if failed is not None:
        raise failed
    if undecided:
        conclusions = "; ".join(f"{decision.title}: {decision.conclusion}" for decision in undecided)
        echo_error(conclusions)
        sys.exit(NOT_ENOUGH_EVIDENCE)


def _write_files(files: CiFiles, report: GateReport, *, is_red: bool) -> None:
    """Write the files for CI. If one cannot be written, a gate that did not pass keeps its exit code."""
    try:
        files.write(report)
    except InputError as error:
        if not is_red:
            raise
        echo_error(str(error))


def _print_decided(report: GateReport, *, detail: Detail, form: str) -> None:
    """Print each candidate against its baseline and the decisions on it, the worst examples, and what to do next."""
    out = console()
    if form == "json":
        print_json(report.document)
        return
    if detail is None:
        sections, limits = [decisions_section(report.candidates)], limits_section(report.candidates)
        for number, one in enumerate(report.reports, start=1):
            rest = (report.calls_made or 0, limits) if number == len(report.reports) else ()
            sections += results_sections(one, out.width, *rest)
        groups = run_groups(Store(), [one.candidate_experiment_id for one in report.decisions])
        print_sections(out, sections, IN_BRIEF, hints.show_all(groups[0]).command)
    else:
        for one in report.reports:
            print_experiments(one, wide=detail == "wide")
        print_decisions(report.candidates)
        for one in report.reports:
            print_worst(out, one.worst)
        print_calls(report.experiments, report.calls_made or 0)
    decided = [one.decision_id for one in report.decisions]
    print_next(out, report.next_command, links_here().page("decisions", *(decided if len(decided) == 1 else ())))


def decisions_section(decisions: Sequence[Decision | CandidatesOfGate]) -> Section:
    """Each decision: the conclusion, then its rules, those that are met last. Several candidates stand in a table."""
    return Section(items=[*decisions], draw=_decisions_in_brief, what="decision")


def _decisions_in_brief(decisions: Sequence[Decision | CandidatesOfGate]) -> RenderableType:
    parts: list[RenderableType] = []
    for one in decisions:
        if isinstance(one, CandidatesOfGate):
            where = [Padding(Text(line), (0, 0, 0, 2)) for line in one.where]
            parts += [Text(one.title, style="bold"), Text(one.standing), _candidates(one), *where]
            continue
        parts.append(Text(one.conclusion, DECISION_STYLES[one.conclusion]).append(f"  {one.title}", "bold"))
        out = indented_lines(7)
        kinds: dict[tuple[str, str], list[str]] = {}  # of the rules with the same outcome and text
        for rule in sorted(one.rules, key=lambda rule: [*OUTCOMES].index(rule["outcome"]), reverse=True):
            kinds.setdefault((rule["outcome"], rule["text"]), []).append(rule["rule"].replace("_", " "))
        for (outcome, text), of_text in kinds.items():
            of_rules = f" ({', '.join(of_text)})" if len(of_text) > 1 else ""
            out.add_row(Text(outcome, style=OUTCOMES[outcome]), Text(f"{text}{of_rules}"))
        for number, line in enumerate(one.where):
            out.add_row("" if number else "where", Text(line))
        parts.append(Padding(out, (0, 0, 0, 2)))
    return Group(*parts)


def limits_section(decisions: Sequence[Decision | CandidatesOfGate]) -> Section:
    """What limits the decisions, each once; never cut."""
    limits = [
        limit for one in decisions for limit in (one.limits if isinstance(one, CandidatesOfGate) else one.what_limits)
    ]
    lines = indented_lines(8)
    for number, limit in enumerate(dict.fromkeys(limits)):
        lines.add_row("" if number else "limits", Text(limit, "yellow"))
    return lines_section([lines] if limits else [], is_apart=True)


def print_decisions(decisions: Iterable[Decision | CandidatesOfGate]) -> None:
    """Print each decision: the conclusion, and the result of every rule; those of one gate on several candidates in one
    table."""
    out = console()
    for decision in decisions:
        out.print()
        if isinstance(decision, CandidatesOfGate):
            _print_candidates(out, decision)
            continue
        print_decision(out, decision)
        echo(f"  why, and how to reproduce it: {hints.explain(decision.decision_id)}")


def _print_candidates(out: Console, candidates: CandidatesOfGate) -> None:
    """Print the decision and each rule by candidate, how the candidates compare, and what limits the decisions."""
    out.print(Text(candidates.title, style="bold"))
    out.print(_candidates(candidates))
    out.print(Text(candidates.standing, style="bold"))
    _print_limits(out, candidates.limits)
    for line in candidates.where:
        out.print(Padding(Text(line), (0, 0, 0, 2)))
    echo(f"why, and how to reproduce it: {hints.explain('DECISION')}")


def _candidates(candidates: CandidatesOfGate) -> Table:
    rows = table("rule", "candidate", "outcome", "value", headings=2, wrapped=("value",))
    for one in candidates.decisions:
        conclusion = Text(one.conclusion, style=DECISION_STYLES[one.conclusion])
        rows.add_row("decision", one.candidate_apart, conclusion, one.decision_id)
    for rule in candidates.rules:
        outcome = Text(rule.outcome, style=OUTCOMES[rule.outcome])
        rows.add_row(rule.rule, rule.candidate, outcome, rule.figures or rule.text)
    return rows


def _print_limits(out: Console, limits: Sequence[str]) -> None:
    if limits:
        out.print("  limits of this decision:")
    for limit in limits:
        out.print(Padding(Text(limit, style="yellow"), (0, 0, 0, 4)))


def print_decision(out: Console, decision: Decision) -> None:
    out.print(Text(f"{decision.title}: ").append(decision.conclusion, style=DECISION_STYLES[decision.conclusion]))
    out.print(_rules(decision))
    _print_limits(out, decision.what_limits)
    for number, line in enumerate(decision.where):
        out.print(Padding(Text(line), (0, 0, 0, 4 if number else 2)))
    if decision.where_command:
        echo(f"    examples of the first: {decision.where_command}")
    if decision.calls_saved is not None:
        out.print(f"  {decision.interim_analyses} interim analyses; {decision.calls_saved} model calls saved")


def _rules(decision: Decision) -> RenderableType:
    """The outcome, kind and text of each rule; long texts are wrapped in their column."""
    out = indented_lines(7, 20)
    for rule in decision.rules:
        mark = Text(rule["outcome"], style=OUTCOMES[rule["outcome"]])
        out.add_row(mark, Text(rule["rule"].replace("_", " ")), Text(rule["text"]))
    return Padding(out, (0, 0, 0, 2))


@click.command()
@click.argument("decision")
@click.option("--again", is_flag=True, help="Verify the files that it rests on, and decide again.")
@click.option("--signers", metavar="FILE", help="With --again: the decision must be signed by a key in this file.")
@click.option("--sign", "key", metavar="KEY", help="With --again: sign the same decision with this SSH key.")
@click.option("--all", "is_whole", is_flag=True, help="Print the settings, SQL queries, files and examples too.")
@FORMAT
@VERBOSE_RUN
def explain(
    decision: str, again: bool, signers: str | None, key: str | None, is_whole: bool, form: str, verbose: bool
) -> None:
    """Explain a DECISION: its rules and evidence, and the SQL, files and settings that reproduce it.

    DECISION is an id, an id prefix, a gate's name, or an experiment's name or id. Exit code with --again: 1 for another
    result, 4 for files that no run wrote, or without a wanted signature.
    """
    with one_line_errors(verbose):
        if not again and (signers or key):
            raise InputError(f"{'--signers' if signers else '--sign'}: wanted --again too, which verifies the files")
        store = existing_store()
        found = find_decision(store, decision)
        if decision == found.gate and (others := other_specs(store, found)):
            echo_error(f"the newest decision of a gate {decision!r}; {', '.join(others)} has a gate of that name, too")
        if form == "json":
            document = gate_report(store, [found]).document
            document["explanation"] = [{"title": title, "lines": lines} for title, lines in explained(store, found)]
            with stdout_for(form):
                result = _again(found, signers, key) if again else None
            document["again"] = None if result is None else asdict(result)
            print_json(document)
            _exit_if_another(result)
            return
        result = _again(found, signers, key) if again else None
        (stored,) = with_limits(store, [found])
        results = results_against(
            store, stored.candidate_experiment_id, stored.baseline_experiment_id, [stored.decision_id]
        )
        out, worst = console(), worst_of(store, results, [stored])
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


def _explain_in_brief(out: Console, store: Store, stored: Decision, worst: Worst | None) -> None:
    """The decision, its limits, what was compared, and how to reproduce it."""
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
    """A line with a command to copy, or an id."""
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
        sides = [one for one in (stored.candidate_experiment_id, stored.baseline_experiment_id) if one is not None]
        sign(store, row, sides, Path(key).expanduser())
    signature = f"signed with {key}" if key and not signers else _signature(store, row, signers)
    return Again(verified=verified, signature=signature, decided_again_from_the_store=result, is_same=is_same)


def _exit_if_another(result: Again | None) -> None:
    if result is not None and not result.is_same:
        sys.exit(1)


def _are_same(stored: DecisionRow, again: DecisionRow) -> bool:
    """Whether a decision is as its evidence gives it: its figures by the id, and what else it says of them. Texts of
    another version may be worded otherwise."""

    def said(row: DecisionRow) -> list[object]:
        return [row.conclusion, row.n_shared, [{**rule, "text": None} for rule in from_json(row.reasons)]]

    is_worded_alike = stored.evalflows_version != again.evalflows_version or stored.summary == again.summary
    return stored.decision_id == again.decision_id and said(stored) == said(again) and is_worded_alike


def _signature(store: Store, row: DecisionRow, signers: str | None) -> str | None:
    if signers is None:
        wanted = from_json(row.policy).get("signers") or "FILE"
        return f"there is one, not verified (--signers {wanted})" if is_signed(store, row.decision_id) else None
    if (found := signature_of(store, row, Path(signers).expanduser())) is None:
        raise StorageError(f"{row.decision_id}: is not signed, wanted a signature by a key in {signers}")
    return found.text


@click.group()
def baseline() -> None:
    """Approve and list baselines: the experiments that gates compare candidates with."""


@baseline.command()
@click.argument("experiment")
@click.option("--name", help="Name of the baseline. Default: the name of the experiment's spec.")
@click.option("--reason", help="Reason for the approval.")
@click.option("--by", help="Who approves it. Default: the current user.")
@click.option("--sign", "key", metavar="KEY", help="Sign the approval with this SSH key.")
@FORMAT
@VERBOSE
def approve(
    experiment: str, name: str | None, reason: str | None, by: str | None, key: str | None, form: str, verbose: bool
) -> None:
    """Approve an EXPERIMENT (id, id prefix, or name) as the baseline that gates compare with from now on."""
    with one_line_errors(verbose):
        store = existing_store()
        (identity,) = find_experiments(store, experiment, just_one=True)
        from evalflows import approve as approve_experiment
        from evalflows.store.row_specs import experiment_spec

        approved = approve_experiment(identity, name, reason=reason, by=by, key=key)
        by = approved.approved_by
        if form == "json":
            print_json(approved)
        else:
            signed = f", signed with {key}" if key else ""
            echo(one_line(f"baseline {approved.name}: {experiment} ({identity}), approved by {by}{signed}"))
        own = experiment_spec(store.read("experiments", identity)[0])
        beside = [one.name for one in own.gates if own.baseline_target(one) is not None]
        if beside and len(beside) == len(own.gates) and approved.name == own.name:
            command = hints.gate_against(approved.name).code
            echo_error(f"its spec's gates compare with a target of each run, not with this: {command} does")
        for decision in decisions_of(store, [identity]):
            if decision.conclusion != "PASS" and decision.candidate_experiment_id == identity:
                said = f"{decision.title} said {decision.conclusion} of this experiment"
                echo_error(f"{said}: {hints.explain(decision.decision_id)}")


@baseline.command(name="ls")
@FORMAT
@VERBOSE
def ls_baselines(form: str, verbose: bool) -> None:
    """List the approved baselines, current and replaced."""
    with one_line_errors(verbose):
        with store_to_list() as store:
            rows = approvals(store)
        if form == "json":
            print_json(rows)
            return
        if not rows:
            echo(f"no baseline is approved yet: {hints.approve_some().code} approves one")
            return
        columns = ("baseline", "experiment", "id", "approved (UTC)", "by", "reason", "")
        out = table(*columns, headings=3, wrapped=("reason",))
        for row in rows:
            when = f"{row.recorded_at:%Y-%m-%d %H:%M}"
            cells = (
                row.name,
                row.experiment or "not in the store",
                row.experiment_id,
                when,
                row.approved_by or "",
                row.reason or "",
            )
            out.add_row(*cells, "" if row.holds else "replaced")
        console().print(out)


@click.command()
@click.argument("spec", metavar="SPEC|EXPERIMENT")
@CHANGES
@click.option("--effect", type=float, help="Difference to detect, such as 0.03.")
@click.option("--metric", "metrics", multiple=True, help="Plan for this metric only. Repeatable.")
@click.option("--power", type=float, default=0.8, show_default=True, help="Probability of detecting it.")
@click.option("--all", "is_whole", is_flag=True, help="Print the assumptions too.")
@FORMAT
@VERBOSE
def plan(
    spec: str,
    changes: tuple[str, ...],
    effect: float | None,
    metrics: tuple[str, ...],
    power: float,
    is_whole: bool,
    form: str,
    verbose: bool,
) -> None:
    """Estimate what a run of a SPEC file, or of a stored EXPERIMENT again, would cost, and its examples.

    Estimates use the calls and scores in the store. Nothing is called, and nothing but the plan is stored.
    """
    with one_line_errors(verbose):
        document = _document(_planned(_spec_of(spec, changes), effect, metrics, power))
        identity = keep_report(Store(), "plan", document["name"], document, "\n".join(document["sentences"]))
        if form == "json":
            print_json({"plan_id": identity, **document})
            return
        print_plan(document, is_whole=is_whole)
        echo(f"\nkept: {hints.show(identity)}")


def _spec_of(reference: str, changes: Sequence[str]) -> "ExperimentSpec":
    """Return the spec in a file, or that of a stored experiment if no such file exists but such an experiment does."""
    from evalflows.specs.experiment import change_experiment, load_experiment
    from evalflows.store.row_specs import experiment_spec

    if not Path(reference).exists() and not reference.endswith((".yaml", ".yml")):
        store = existing_store()
        (row,) = store.read("experiments", find_experiments(store, reference)[0])
        return change_experiment(experiment_spec(row), changes)
    return load_experiment(reference, changes)


def _planned(spec: "ExperimentSpec", effect: float | None, metrics: tuple[str, ...], power: float) -> "Plan":
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    from evalflows.api.planning import plan as make_plan

    find_modules_here()
    return make_plan(spec, effect, metrics=metrics, power=power)


def print_plan(plan: Mapping[str, Any], *, is_whole: bool) -> None:
    """Print a summary in sentences, the calls and the sample sizes; with `is_whole` the assumptions too. `plan` is the
    document of `--format json`."""
    out = console()
    for sentence, is_detail in zip(plan["sentences"], plan["is_detail"], strict=True):
        if is_whole or not is_detail:
            out.print(Text(sentence, "" if is_detail else "bold"))
    if plan["calls"]:
        out.print()
        out.print(_calls(plan["calls"]))
    if any(metric["sample_sizes"] for metric in plan["metrics"]):
        out.print()
        out.print(_sizes(plan))
    if (details := sum(plan["is_detail"])) and not is_whole:
        out.print(f"not shown: {details} assumption{'s' * (details != 1)}: --all")


def _calls(calls: Sequence[Mapping[str, Any]]) -> Table:
    from evalflows.analysis.plan import count, money  # late: it loads the judges

    columns = ("calls of", "model", "calls", "in ledger", "tokens in", "out", "USD", "tokens from")
    out = _right(table(*columns, headings=2, wrapped=("tokens from",)), 2, 7)
    for call in calls:
        size = call["size"]
        tokens = [_whole(size["tokens_in"]), _whole(size["tokens_out"])]
        number = ("≤ " if call["at_most"] and call["calls"] else "") + count(call["calls"])
        cells = [call["caller"], call["model"] or "", number, _some(call["in_ledger"]), *tokens, money(call["usd"])]
        out.add_row(*cells, "; ".join(text for text in (size["basis"], call["note"]) if text))
    return out


def _sizes(plan: Mapping[str, Any]) -> Table:
    from evalflows.analysis.plan import count, money

    columns = ("metric", "to detect", "repetitions", "examples", "clusters", "calls", "USD", "")
    clustered = plan["design"]["n_clusters"] is not None
    out = _right(
        table(*(name for name in columns if clustered or name != "clusters"), headings=2), 2, 7 if clustered else 6
    )
    for metric in plan["metrics"]:
        for sizes in metric["sample_sizes"]:
            effect, designs = sizes["effect"], sizes["designs"]
            what = f"{_PURPOSES[effect['purpose']]}{given_figure(effect['declared'], metric['metric'])}"
            for design in designs:
                clusters = [_some(design["clusters"])] if clustered else []
                numbers = [str(design["repetitions"]), count(design["examples"]), *clusters]
                best = "cheapest" if design["is_cheapest"] and len(designs) > 1 else ""
                out.add_row(metric["metric"], what, *numbers, count(design["calls"]), money(design["usd"]), best)
    return out


_PURPOSES = {"difference": "", "non_inferiority": "non-inferiority ", "superiority": "superiority "}


def _right(table: Table, first: int, last: int) -> Table:
    """Right-align the columns from `first` up to `last`."""
    for column in table.columns[first:last]:
        column.justify = "right"
    return table


def _whole(tokens: float | None) -> str:
    return "-" if tokens is None else f"{tokens:,.0f}"


def _some(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _document(plan: "Plan") -> dict[str, Any]:
    """All figures as values of JSON; of the spec only its name."""
    from evalflows.analysis.plan import Detail, sentences_of

    sentences = sentences_of(plan)
    content: dict[str, Any] = {"name": plan.spec.name, **asdict(plan), "sentences": sentences}
    content["is_detail"] = [isinstance(sentence, Detail) for sentence in sentences]
    del content["spec"]
    content["calls"] = [{**asdict(call), "usd": call.usd} for call in plan.calls]
    return plain(content)  # type: ignore[no-any-return]
