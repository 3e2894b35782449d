"""Decide on results that other harnesses wrote. Nothing is run, and no Prefect, model or key is needed."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from evalflows.cli.ci_files import CiFiles, with_ci_files
from evalflows.cli.decisions import decisions_section, end_undecided, limits_section
from evalflows.cli.late_commands import print_json, with_one_line_errors
from evalflows.cli.output import Text, console, echo_error
from evalflows.cli.sections import IN_BRIEF, lines_section, print_sections
from evalflows.cli.show import MOST_WORST, results_sections, verdicts_section
from evalflows.reports.results import Result
from evalflows.specs.errors import GateFailedError, InputError, names_to_choose, short
from evalflows.specs.escaping import one_line
from evalflows.specs.metric_names import kept_apart
from evalflows.specs.process_memory import without_collection
from evalflows.store.layout import Layout


def _numbers(option: str, given: Sequence[str], default: float | None = None) -> dict[str, float]:
    """Return the values of a repeated option, `NAME=NUMBER`."""
    found = {}
    for text in given:
        name, equals, value = text.rpartition("=") if "=" in text or default is None else (text, "=", str(default))
        try:
            found[kept_apart(name)] = float(value)
        except ValueError:
            name = ""
        if not name or not equals:
            raise InputError(
                f"{option}: got {text!r}, wanted {'NAME=NUMBER' if default is None else 'NAME or NAME=NUMBER'}"
            )
    return found


@click.command()
@click.argument("results", nargs=-1, required=True, metavar="BASELINE CANDIDATE...")
@click.option(
    "--metric",
    "margins",
    multiple=True,
    metavar="NAME=MARGIN",
    help="The metric must not get worse by the margin. Repeatable.",
)
@click.option(
    "--superiority",
    multiple=True,
    metavar="NAME[=RISE]",
    help="The metric must get better, by at least RISE. Repeatable.",
)
@click.option("--threshold", multiple=True, metavar="NAME=BOUND", help="The mean must reach the bound. Repeatable.")
@click.option(
    "--lower-is-better",
    "lower",
    multiple=True,
    metavar="NAME",
    help="Lower values of this metric are better. Repeatable.",
)
@click.option(
    "--higher-is-better",
    "higher",
    multiple=True,
    metavar="NAME",
    help="Higher values of this metric are better, whatever its name. Repeatable.",
)
@click.option("--cluster", metavar="FIELD", help="Examples with the same value of this field belong together.")
@click.option(
    "--slice",
    "slices",
    multiple=True,
    metavar="FIELD",
    help="Apply the rules to each value of this field too. Repeatable.",
)
@click.option(
    "--only-shared",
    is_flag=True,
    help="Leave out examples of the baseline that a candidate lacks. Default: they count as missing.",
)
@click.option("--gates", "rules", metavar="FILE", help="Take gates, metrics and composites from this spec.")
@click.option(
    "--format", "named", metavar="NAME", help="The format of the files. Default: detected from their content."
)
@click.option("--store", "is_kept", is_flag=True, help="Store everything, as an experiment with recorded answers.")
@click.option("--all", "is_whole", is_flag=True, help="Print everything.")
@with_ci_files
@with_one_line_errors
def decide(
    results: tuple[str, ...],
    margins: tuple[str, ...],
    superiority: tuple[str, ...],
    threshold: tuple[str, ...],
    rules: str | None,
    cluster: str | None,
    named: str | None,
    *,
    lower: tuple[str, ...],
    higher: tuple[str, ...],
    slices: tuple[str, ...],
    only_shared: bool,
    is_kept: bool,
    is_whole: bool,
    **files: str | None,
) -> None:
    """Decide whether CANDIDATEs may replace a BASELINE, by files of results of any harness.

    BASELINE and CANDIDATE are files, folders, globs, or - for standard input; FILE#SYSTEM is one of several systems in
    a file, and approved:NAME the baseline that was approved in the store. A single file with several systems compares
    the others with the first. Without a rule, each metric gets its verdict.

    `--json -` prints the document instead of text.

    Exit code: 0 for PASS, or without a rule; 1 for FAIL, 3 if there is not enough evidence, 2 for bad input.
    """
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # else all installed packages are searched for them
    with without_collection():
        from evalflows.api.deciding import OWN, decide_results, needs_store, store_for
        from evalflows.harnesses.recording import read_sentence
        from evalflows.reports.documents import document
        from evalflows.reports.markdown_pages import GateReport

    is_json = files["json"] == "-"
    ci_files = CiFiles.of(**files | ({"json": None} if is_json else {}))
    given = _rules(rules)
    own = {
        "non_inferiority": _numbers("--metric", margins),
        "superiority": _numbers("--superiority", superiority, 0.0),
        "thresholds": _numbers("--threshold", threshold),
    }
    with without_collection():
        systems = [*_systems(results, named, given)]
    if any(own.values()):
        given["gates"] = [
            *given.get("gates", []),
            {"name": OWN, **{kind: rule for kind, rule in own.items() if rule}},
        ]
    wanted = [f"--{name}" for name, path in files.items() if path and path != "-"]
    if wanted and not given.get("gates"):
        rules = "--metric, --superiority, --threshold or --gates"
        raise InputError(f"decide: got no rule, wanted {rules}: without one there is no decision to write to a file")
    if both := {*lower} & {*higher}:
        raise InputError(f"--higher-is-better: got {min(both)!r}, which --lower-is-better has too, wanted one of them")
    is_needed = ci_files.evidence is not None or needs_store(given)
    with store_for(Layout.at().root if is_kept else None, is_needed=is_needed) as store:
        decided = decide_results(
            store,
            systems,
            given,
            cluster,
            slices,
            directions={name: name in higher for name in (*lower, *higher)},
            only_shared=only_shared,
            where=rules or "rules",
        )
        report, decisions = decided.report(is_whole and not is_json), decided.decisions
        if isinstance(report, GateReport):
            shown, candidates = report.reports, report.candidates
            ci_files.write(store, report, is_kept=is_kept)
        else:
            shown, candidates = [report], []
        if is_json:
            of_gate = report.document if isinstance(report, GateReport) else None
            content = of_gate or document(shown, next_command=None)
            print_json({"read": read_sentence(systems), "notes": decided.recorded.notes, **content})
        else:
            out = console()
            notes = [f"read: {read_sentence(systems)}", *decided.recorded.notes, *_same(results)]
            sections = [lines_section([Text(one_line(note)) for note in notes])]
            sections += (
                [decisions_section(candidates, is_kept=is_kept)] if decisions else [verdicts_section(shown[0].verdicts)]
            )
            for number, single in enumerate(shown, start=1):
                limits = limits_section(candidates) if number == len(shown) else None
                most = None if is_whole else MOST_WORST
                single = replace(single, hides_final=False)
                sections += results_sections(single, out.width, limits=limits, most_worst=most)[:-1]
            if not decisions:
                sections.append(lines_section(map(Text, _detectable(shown[0].results)), is_apart=True))
            # --all shows all examples that got worse, and no more of what else is counted
            sections = [one if one.what == "example" else replace(one, count=None) for one in sections]
            print_sections(out, sections, sys.maxsize if is_whole else IN_BRIEF, "--all")
    if is_kept and store is not None:
        echo_error(f"kept in {store.layout.root}: {', '.join(row.experiment_id for row in decided.recorded.rows)}")
    if failed := [decision.sentence for decision in decisions if decision.conclusion == "FAIL"]:
        raise GateFailedError("; ".join(failed))
    end_undecided([decision for decision in decisions if decision.conclusion != "PASS"])


def _rules(path: str | None) -> dict[str, Any]:
    """Return the rules of a spec file; none without a file."""
    if path is None:
        return {}
    from evalflows.api.deciding import RULES
    from evalflows.specs.files import load_text, read_text

    content = load_text(read_text(path), path, wanted="gates")
    if not (gates := content.get("gates")):
        raise InputError(f"{path}: got no gates, wanted a spec with gates")
    if not isinstance(gates, list) or not all(isinstance(gate, dict) for gate in gates):
        raise InputError(f"{path}: gates: got {short(gates)}, wanted a list of gates")
    return {name: content[name] for name in RULES if name in content}


def _systems(sources: Sequence[str], named: str | None, rules: dict[str, Any]) -> Iterator[Any]:
    """Yield the results of each system, the baseline's first; add to the rules what a store knows of its metrics.

    Raise InputError for several where one is wanted.
    """
    from evalflows.api.deciding import APPROVED, approved_results
    from evalflows.harnesses.assembling import joined_systems
    from evalflows.harnesses.reading import read_results

    for source in sources:
        if source.startswith(APPROVED):
            found, known = approved_results(source.removeprefix(APPROVED))
            declared = rules.get("metrics", {})
            rules["metrics"] = declared | {metric: known[metric] | declared.get(metric, {}) for metric in known}
            yield from found
            continue
        path, hash_sign, system = (source, "", "") if Path(source).exists() else source.rpartition("#")
        found = joined_systems(read_results(path if hash_sign else source, named))
        names = [one.system for one in found]
        if hash_sign:
            found = [one for one in found if one.system == system]
            if not found:
                raise InputError(f"{path}: got the system {system!r}, wanted {names_to_choose(system, names)}")
        if len(found) > 1 and len(sources) > 1:
            raise InputError(f"{source}: got {len(found)} systems, wanted one of them: {source}#{names[0]}")
        if len(found) < 2 and len(sources) < 2:
            raise InputError(f"{source}: got the results of one system, wanted a baseline and a candidate")
        yield from found


def _same(sources: Sequence[str]) -> list[str]:
    """Return that two sources are the same file."""
    first, *others = (os.path.realpath(source) for source in sources)
    return [f"{sources[0]} was given twice: a system is compared with itself"] if first in others else []


def _detectable(results: Iterable[Result]) -> Iterator[str]:
    """Yield what each metric's pairs would detect."""
    from evalflows.analysis.differences import POWER
    from evalflows.analysis.figures import figure

    known = [(one.metric, one.n_pairs, one.minimum_detectable_effect) for one in results]
    for metric, n_pairs, effect in sorted((m, n, effect) for m, n, effect in known if n and effect is not None):
        size = f"a difference of {figure(effect, metric)} or more ({POWER:.0%} power)"
        yield f"{metric}: {n_pairs} pairs detect {size}; half of it takes about {4 * n_pairs:,}"
