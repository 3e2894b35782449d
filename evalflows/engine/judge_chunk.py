"""Judge a chunk: every evaluator judges every subject in it, with cascades, within the budget; and notes on what judges
are shown, before the first of them is paid: answers of several fields that they see whole, and contexts that reach a
judge of correctness.

Rules judge a subject one after another on one thread. Their scores become columns, written once per block, except those
that took long, which are rows on disk at once, like those of judges.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from inspect import signature
from itertools import islice
from typing import Any, Generic, NamedTuple

from evalflows.engine.anchors import Due
from evalflows.engine.bundles import SharedCalls
from evalflows.engine.contents import unseen_in
from evalflows.engine.job import Job, Loaded, Subject
from evalflows.engine.judgement import judge_by_rule, judge_with
from evalflows.engine.results import EvaluationResult, failed_result
from evalflows.engine.running import RunnableEvaluator
from evalflows.engine.spec_evaluators import is_ours
from evalflows.llm import loop
from evalflows.llm.batches import Deferred
from evalflows.specs.errors import REFUSED_BY_BUDGET, RETRIED_LATER
from evalflows.specs.escaping import print_note
from evalflows.specs.evaluator import BoundSpec, TierSpec, Wanted
from evalflows.specs.placeholders import placeholders
from evalflows.store.records import JudgementRow, SentinelRow, derived_id
from evalflows.store.snapshots import in_blocks
from evalflows.store.spool import FLUSH_AFTER_S, Spool

MOST_LOOKED_AT = 10
"""Subjects of a block in which files are looked for, to say that judges do not see them."""

SMALLEST_BLOCK = 20
"""Subjects that are judged together at least: about as many calls are in flight when a run starts."""

BLOCK_SHARE = 1 / 8
"""The share of what is left of a budget that the next block may cost, since several chunks spend it at once."""

LOST = ("failed", "not_attempted")
"""The statuses of judgements without a value that was wanted."""

SPELLINGS = {
    "inputs": ("inputs", "input"),
    "outputs": ("outputs", "output", "first", "second"),
    "reference_outputs": ("reference_outputs", "expected_output"),
}
"""The arguments that the notes are about, and what prompts call them."""

SHOWN = frozenset(SPELLINGS)

CONTEXTS = frozenset(
    ("context", "contexts", "retrieved_context", "retrieved_contexts", "documents", "retrieved_documents", "passages")
)
"""Names of fields that hold what was retrieved."""


def is_undecided(tier: RunnableEvaluator, results: list[EvaluationResult]) -> bool:
    """Return whether a run goes to the next tier: this one does not apply, or its score is not among those it decides.

    A failed tier is final: the next tier is not a fallback.
    """
    first = results[0]
    if first.status == "not_applicable":
        return True
    assert isinstance(tier.spec, TierSpec)
    label = first.label if first.winner is None else "tie" if first.winner == "tie" else "win"
    return first.status == "scored" and not tier.spec.is_final(first.value, label)


def decided_by(tier: RunnableEvaluator, results: list[EvaluationResult]) -> list[EvaluationResult]:
    """Return the scores with `decided_by` set to the tier; if it failed, the error names the tier.

    A single score gets the cascade's name, whatever the tier calls it.
    """
    name = tier.spec.metric
    if len(results) == 1:
        results = [results[0]._replace(metric=tier.bound.name)]
    if results[0].error:
        return [result._replace(decided_by=None, error=f"{name}: {results[0].error}") for result in results]
    return [result._replace(decided_by=name if result.status == "scored" else None) for result in results]


def with_earlier_cost(results: list[EvaluationResult], before: EvaluationResult | None) -> list[EvaluationResult]:
    """Return the scores, with the cost of the earlier tiers added to the first."""
    if before is None:
        return results
    first = results[0]
    models = dict.fromkeys(model for model in (before.judge_model, first.judge_model) if model)
    latencies = [result.latency_s for result in (before, first) if result.latency_s is not None]
    total = first._replace(
        usage=before.usage + first.usage,
        latency_s=sum(latencies) if latencies else None,
        judge_model=", ".join(models) or None,
    )
    return [total, *results[1:]]


def unneeded(evaluator: RunnableEvaluator, scores: Sequence[JudgementRow]) -> list[EvaluationResult]:
    """Return the result of an answer that lacks a score that the evaluator needs; none if it has all.

    It does not apply where the score is another one, or does not apply itself; where that is missing, so is this one,
    and for as long.
    """
    name = evaluator.bound.name
    given = {score.metric: score for score in scores if score.turn is None}
    for metric, wanted in evaluator.needs.items():
        score = given.get(metric)
        if score is None or score.status in LOST:
            error = f"no score of {metric}, which it needs: {score.status if score else 'not given'}"
            kind: Any = score.error_kind if score and score.error_kind else "raised"
            return [failed_result(name, kind, error, attempts=0)]
        if score.status != "scored" or not _is_as_wanted(score, wanted):
            got = score.status if score.status != "scored" else score.label if score.value is None else score.value
            comment = f"it needs another score of {metric}: got {got}"
            return [EvaluationResult(metric=name, status="not_applicable", attempts=0, comment=comment)]
    return []


def _is_as_wanted(score: JudgementRow, wanted: Wanted) -> bool:
    if isinstance(wanted, str):
        return score.label == wanted
    if score.value is None:
        return False
    if not isinstance(wanted, BoundSpec):
        return score.value == wanted
    return score.value < wanted.below if wanted.below is not None else score.value >= (wanted.at_least or 0.0)


def block_size(before: int, cost: float, left: float) -> int:
    """Return how many subjects are judged next, after a block of `before` that cost so much of the budget."""
    if cost <= 0:
        return 8 * before
    return max(SMALLEST_BLOCK, min(8 * before, int(BLOCK_SHARE * left / (cost / before))))


class Judging(Generic[Subject]):
    """The judgements of one chunk, old and new."""

    def __init__(
        self, job: Job[Subject], chunk: Any, spool: Spool, before: Iterable[JudgementRow], n_done: int = 0
    ) -> None:
        """Take up the judgements that were made before, and `n_done` others, which count as done."""
        tally = job.run.tally
        self._job: Job[Subject] = job
        self._spool, self._count = spool, tally.begin(chunk, "judgements", n_done)
        self._lose = partial(tally.lose, chunk, "judgements")
        self._of_subject: defaultdict[str, list[JudgementRow]] = defaultdict(list)
        for evaluator in job.evaluators:
            job.given.setdefault(evaluator.bound.name, evaluator.bound.name)
        for row in before:
            if job.is_final(row):
                self._of_subject[row.subject_id].append(row)
                job.given.setdefault(row.metric, row.evaluator)
        self._keeps_rows = job.keeps_rows or any(evaluator.asks_for_scores for evaluator in job.evaluators)
        self._quick: defaultdict[str, list[tuple[Subject, EvaluationResult]]] = defaultdict(list)  # by evaluator
        self._chunk, self._n_seen, self._run_id = chunk, 0, ""
        self._due = self._anchors_due()
        self.deferred: set[str] = set()  # ids of subjects of which a batch will answer a call
        self._retryable: list[tuple[RunnableEvaluator, str]] = []  # of each judgement that a retry may bring
        self._over_budget: list[str] = []  # the errors of judgements that the budget did not pay
        self._is_spent = False  # whether no further judgement is paid

    @property
    def transient(self) -> Counter[str]:
        """Judgements that a retry may bring, by kind of error; evaluators whose breaker gave up do not count."""
        return Counter(kind for evaluator, kind in self._retryable if not evaluator.breaker.gave_up)

    async def judge(self, subjects: Sequence[Subject]) -> None:
        """Judge subjects. What was judged until an exception is stored too.

        Within a budget they are judged in blocks, each by all evaluators: if it runs out, those before have all their
        judgements, and those after have none.
        """
        self._note_what_judges_see(subjects)
        try:
            # several evaluators may spend the budget; one alone spends it in the subjects' order
            n_paid = sum(not evaluator.is_rule for evaluator in self._job.evaluators)
            first, spent = 0, self._job.budget.share_spent if n_paid > 1 else None
            size = len(subjects) if spent is None else min(SMALLEST_BLOCK, len(subjects))
            while first < len(subjects):
                await self._judge_block(subjects[first : first + size])
                first += size
                if spent is not None:
                    before, spent = spent, self._job.budget.share_spent or 0.0
                    size = block_size(size, spent - before, 1 - spent)
        finally:
            self._store_quick()

    def _note_what_judges_see(self, subjects: Sequence[Subject]) -> None:
        """Print what is odd about what the models will be shown of the first subject, unless it was printed before."""
        job = self._job
        judges = [judge for evaluator in job.evaluators for judge in evaluator.all if judge.complete is not None]
        open_ones = (subject for subject in subjects if judges and not job.settled(judges[0], subject))
        shown = [job.arguments(SHOWN | {"attachments"}, one, ()) for one in islice(open_ones, MOST_LOOKED_AT)]
        for note in (*notes_on_files(judges, shown), *(notes_on(judges, shown[0]) if shown else ())):
            if note not in job.run.shared.noted:
                job.run.shared.noted.add(note)
                print_note(note)

    async def _judge_block(self, subjects: Sequence[Subject]) -> None:
        self._n_seen += len(subjects)
        for last in (False, True):
            evaluators = [e for e in self._job.evaluators if e.asks_for_scores == last]
            judges = [evaluator for evaluator in evaluators if not evaluator.is_rule]
            rules = self._judge_by_rules([evaluator for evaluator in evaluators if evaluator.is_rule], subjects)
            anchors = () if last else self._judge_anchors(self._n_seen)
            bundles = defaultdict[str, list[RunnableEvaluator]](list)
            for judge in judges:
                if judge.bundle is not None:
                    bundles[judge.bundle].append(judge)
            alone = (self._judge_with(judge, subjects) for judge in judges if judge.bundle is None)
            together = (self._judge_together(members, subjects) for members in bundles.values())
            await asyncio.gather(rules, *alone, *together, *anchors)
        self._is_spent = bool(self._over_budget)

    def _anchors_due(self) -> list[Due]:
        """Return the anchors to judge in the course of a chunk that have no judgement yet, the last one first."""
        job, chunk = self._job, self._chunk
        if not job.anchors:
            return []
        before: list[SentinelRow] = job.store.read("sentinels", chunk.owner, [chunk.part_name])
        among = job.stretch(chunk)
        self._run_id = among.run_id
        of_run = (row for row in before if row.run_id == among.run_id and row.status not in LOST)
        known = {(row.evaluator, row.example_id) for row in of_run}
        due = [one for anchors in job.anchors for one in anchors.due(among)]
        pending = [d for d in due if (d.anchors.judge.bound.name, d.anchors.examples.ids[d.number]) not in known]
        return sorted(pending, key=lambda one: one.place, reverse=True)

    def _judge_anchors(self, n_seen: int) -> list[Coroutine[Any, Any, None]]:
        """Return the work on the anchors that are due up to the subject with this number."""
        found: defaultdict[str, list[Due]] = defaultdict(list)
        while self._due and self._due[-1].place < n_seen and not self._is_spent:
            due = self._due.pop()
            found[due.anchors.judge.bound.name].append(due)
        return [
            self._run_all(self._judge_anchor, due, [judge], is_async=judge.bound.is_async)
            for due in found.values()
            for judge in [due[0].anchors.judge]
        ]

    async def judge_other_anchors(self) -> None:
        """Judge the anchors that are still due: of a chunk that is resumed, most subjects were judged before."""
        await asyncio.gather(*self._judge_anchors(self._chunk.n_items))

    async def _judge_anchor(self, due: Due) -> None:
        """Judge an anchor, and keep what it was judged to be."""
        self._spool.check()
        anchors, owner = due.anchors, self._chunk.owner
        (example,) = anchors.examples.rows([due.number])
        identity = derived_id("anchor", owner, self._chunk.part_name, anchors.judge.bound.name, example.example_id)
        available = anchors.arguments(example, identity)
        try:
            results = await judge_with(
                anchors.judge, available, spool=self._spool, experiment_id=owner, subject_id=identity
            )
        except Deferred:
            return
        for row in anchors.rows(example, results, identity=identity, owner=owner, run_id=self._run_id):
            self._spool.add("sentinels", row)

    def rows_of(self, key: str) -> list[JudgementRow]:
        """Return all judgements of a subject so far, if rows are kept."""
        return self._of_subject[key]

    async def _judge_by_rules(self, rules: Sequence[RunnableEvaluator], subjects: Sequence[Subject]) -> None:
        """Judge each subject by all rules in one go: each alone would have to be started for every subject."""
        rules_of: defaultdict[int, list[tuple[RunnableEvaluator, frozenset[str]]]] = defaultdict(list)  # by number
        for rule in rules:
            requested = rule.requested
            for number in self._pending(rule, subjects):
                rules_of[number].append((rule, requested))

        async def judge(number: int) -> None:
            for rule, requested in rules_of[number]:
                self._judge_by_rule(rule, requested, subjects[number])
            self._count(len(rules_of[number]))

        await self._run_all(judge, [*rules_of], rules, is_async=False)

    def _judge_by_rule(self, rule: RunnableEvaluator, requested: frozenset[str], subject: Subject) -> None:
        job, began = self._job, time.perf_counter()
        results = self._settled(rule, subject)
        if not results:
            key, owner = job.id_of(subject), job.owner_of(subject)
            available = job.arguments(requested, subject, self._of_subject.get(key, ()))
            results = judge_by_rule(rule, available, spool=self._spool, experiment_id=owner, subject_id=key)
            results = job.checked(rule, subject, results)
        self._keep(rule, rule, subject, results, time.perf_counter() - began)

    async def _judge_with(self, evaluator: RunnableEvaluator, subjects: Sequence[Subject]) -> None:
        pending = [subjects[number] for number in self._pending(evaluator, subjects)]
        tiers = evaluator.tiers or (evaluator,)
        spent: dict[str, EvaluationResult] = {}  # by subject: the cost of the tiers that did not decide it
        for tier in tiers:
            undecided: list[Subject] | None = None if tier is tiers[-1] else []
            judge = partial(self._judge, evaluator, tier, tier.requested, spent, undecided)
            await self._run_all(judge, pending, [tier], is_async=tier.bound.is_async)
            pending = undecided or []

    async def _judge_together(self, judges: Sequence[RunnableEvaluator], subjects: Sequence[Subject]) -> None:
        """Judge each subject by all judges of a bundle at once, so that they share their calls.

        A judge that has judged a subject before is asked again beside the others, and its answer is dropped: else they
        would ask for something else than they did then, and pay again.
        """
        pending = [{*self._pending(judge, subjects)} for judge in judges]
        requested = [judge.requested for judge in judges]

        async def judge_all(number: int) -> None:
            subject, calls = subjects[number], SharedCalls(judges)

            async def judge_one(place: int) -> None:
                judge, sharing = judges[place], calls.with_shared_calls(judges[place])
                try:
                    if number in pending[place]:
                        await self._judge(judge, sharing, requested[place], {}, None, subject)
                    else:
                        await self._ask_again(sharing, requested[place], subject)
                finally:
                    calls.end(judge)

            try:
                await asyncio.gather(*map(judge_one, range(len(judges))))
            finally:
                calls.close()

        numbers = sorted(number for number in set[int]().union(*pending))
        await self._run_all(judge_all, numbers, judges[:1], is_async=True)

    async def _ask_again(self, judge: RunnableEvaluator, requested: frozenset[str], subject: Subject) -> None:
        """Let a judge ask what it has asked about a subject before."""
        job, key = self._job, self._job.id_of(subject)
        if self._settled(judge, subject):
            return
        available, owner = job.arguments(requested, subject, ()), job.owner_of(subject)
        with suppress(Deferred):
            await judge_with(judge, available, spool=self._spool, experiment_id=owner, subject_id=key)

    async def _run_all(
        self,
        work: Callable[[Any], Coroutine[Any, Any, None]],
        items: Sequence[Any],
        judges: Sequence[RunnableEvaluator],
        *,
        is_async: bool,
    ) -> None:
        """Do the work for all items. If a breaker is open, try one before all others."""
        first = 1 if any(judge.breaker.is_open for judge in judges) else 0
        for batch in (items[:first], items[first:]):
            await self._job.judging.run(work, batch, is_async=is_async)

    def _settled(self, evaluator: RunnableEvaluator, subject: Subject) -> list[EvaluationResult]:
        """Return the results of a subject that the evaluator does not judge: it has no answer, or is not as needed."""
        results = self._job.settled(evaluator, subject)
        if results or not evaluator.needs:
            return results
        return unneeded(evaluator, self._of_subject.get(self._job.id_of(subject), ()))

    def _pending(self, evaluator: RunnableEvaluator, subjects: Sequence[Subject]) -> list[int]:
        """Return the numbers of the subjects that the evaluator has to judge."""
        numbers = [*range(len(subjects))]
        if self._of_subject:
            name, rows = evaluator.bound.name, self._of_subject
            before = (rows.get(self._job.id_of(subject), ()) for subject in subjects)
            numbers = [number for number, of_one in enumerate(before) if all(row.evaluator != name for row in of_one)]
        if self.deferred and evaluator.asks_for_scores:  # they are not whole yet
            numbers = [number for number in numbers if self._job.id_of(subjects[number]) not in self.deferred]
        drawn, others = self._job.sampled(evaluator, subjects, numbers)
        for number in others:
            result = EvaluationResult(metric=evaluator.bound.name, status="sampled_out", attempts=0)
            self._keep(evaluator, evaluator, subjects[number], [result], 0.0)
        self._count(len(subjects) - len(drawn))
        return drawn

    async def _judge(
        self,
        evaluator: RunnableEvaluator,
        tier: RunnableEvaluator,
        requested: frozenset[str],
        spent: dict[str, EvaluationResult],
        undecided: list[Subject] | None,
        subject: Subject,
    ) -> None:
        """Judge a subject with a tier: the results are kept, or the subject is added to `undecided`; neither if a batch
        will answer."""
        job, began = self._job, time.perf_counter()
        results = self._settled(evaluator, subject)
        if not results:
            self._spool.check()
            key = job.id_of(subject)
            if self._is_spent and tier.complete is not None:
                results = [failed_result(tier.bound.name, "over_budget", self._over_budget[0], attempts=0)]
            else:
                available = job.arguments(requested, subject, self._of_subject.get(key, ()))
                owner = job.owner_of(subject)
                try:
                    results = await judge_with(tier, available, spool=self._spool, experiment_id=owner, subject_id=key)
                except Deferred:
                    self.deferred.add(key)
                    return
                results = job.checked(tier, subject, results)
            results = with_earlier_cost(results, spent.get(key))
            if undecided is not None and is_undecided(tier, results):
                spent[key] = results[0]
                undecided.append(subject)
                return
            results = decided_by(tier, results) if isinstance(tier.spec, TierSpec) else results
        self._keep(evaluator, tier, subject, results, time.perf_counter() - began)
        self._count(1)

    def _keep(
        self,
        evaluator: RunnableEvaluator,
        tier: RunnableEvaluator,
        subject: Subject,
        results: Sequence[EvaluationResult],
        elapsed: float,
    ) -> None:
        """Keep results. Those that took long are on disk when this returns; the others are cheaper to redo."""
        results = self._refuse_shared_metrics(evaluator.bound.name, results)
        if results[0].status in LOST:
            self._lose(1)
        if results[0].error_kind in REFUSED_BY_BUDGET:
            self._over_budget.append(results[0].error or "")
        if results[0].error_kind is not None:
            kinds = [result.error_kind for result in results if result.error_kind in RETRIED_LATER]
            self._retryable += [(tier, kind) for kind in kinds if kind]
        if not self._keeps_rows and elapsed <= FLUSH_AFTER_S:
            quick = self._quick[evaluator.bound.name]
            for result in results:
                quick.append((subject, result))
            return
        for result in results:
            row = self._job.row_of(evaluator, subject, result)
            self._of_subject[row.subject_id].append(row)
            self._spool.add("judgements", row, flush=elapsed > FLUSH_AFTER_S)

    def _refuse_shared_metrics(self, name: str, results: Sequence[EvaluationResult]) -> Sequence[EvaluationResult]:
        """Return an evaluator's results; one that failed instead if one of them is called like a metric of another.

        Tables could not tell the two apart. The first evaluator that gives a name has it.
        """
        if self._job.shares_metrics or (len(results) == 1 and results[0].metric == name):
            return results
        given = self._job.given
        shared = [
            result for result in results if result.metric != name and given.setdefault(result.metric, name) != name
        ]
        if not shared:
            return results
        key = shared[0].metric
        error = f"returned the key {key!r}, which {given[key]!r} gives too; wanted a key of its own, such as {name!r}"
        failed = failed_result(name, "bad_return", error, results[0].attempts)
        return [failed._replace(judge_model=results[0].judge_model, usage=results[0].usage)]

    def _store_quick(self) -> None:
        """Add the quick results to the part as columns. A thread that still works after an interrupt may add more."""
        for evaluator in self._job.evaluators:
            if found := self._quick.pop(evaluator.bound.name, None):
                subjects, results = zip(*found, strict=True)
                self._spool.add_columns("judgements", self._job.columns(evaluator, subjects, results))


class Outcome(NamedTuple):
    """What became of a chunk."""

    transient: Counter[str]  # judgements that a retry may bring, by kind of error
    n_subjects: int
    chunk: Any  # with what became of its subjects


def judge_chunk(job: Job[Subject], chunk: Any, loaded: Loaded[Subject]) -> Outcome:
    """Judge the subjects of a chunk that have no judgement yet."""
    with Spool(job.store, chunk.owner, chunk.part_name) as spool:
        judging = Judging(job, chunk, spool, loaded.before, loaded.n_done)
        for subjects in in_blocks(loaded.subjects, job.size_of):
            loop.run(judging.judge(subjects))
        loop.run(judging.judge_other_anchors())
        if judging.deferred and not isinstance(loaded.subjects, Iterator):  # composites come when their parts are there
            whole = [subject for subject in loaded.subjects if job.id_of(subject) not in judging.deferred]
            loaded = loaded._replace(subjects=whole)
        chunk = job.combined(chunk, loaded, judging.rows_of, spool)
    return Outcome(judging.transient, loaded.n_subjects, chunk)


def notes_on_files(judges: Sequence[RunnableEvaluator], shown: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield notes on the files that our judges are not shown of subjects with these arguments."""
    for judge in judges if shown else ():
        unseen = {modality for available in shown for modality in unseen_in(available, judge.spec.sees)}
        if judge.describes and unseen:
            kinds, wanted = ", ".join(sorted(unseen)), ", ".join(sorted({*unseen, *judge.spec.sees}))
            yield f"{judge.bound.name}: the judge gets only the name of each {kinds}; to show it, set sees: [{wanted}]"


def notes_on(judges: Sequence[RunnableEvaluator], available: Mapping[str, Any]) -> Iterator[str]:
    """Yield notes on what our judges are shown of a subject with these arguments."""
    shown = {judge.bound.name: fields_shown(judge, available) for judge in judges if is_ours(judge.spec)}
    whole: dict[tuple[str, ...], list[str]] = {}  # names of judges by the fields of the answer
    for name, fields in shown.items():
        if len(fields["outputs"]) > 1:
            whole.setdefault(fields["outputs"], []).append(name)
    for answer, names in whole.items():
        key = next((field for field in answer if field not in CONTEXTS), answer[0])
        yield (
            f"the answers have several fields ({', '.join(answer)}), all shown as JSON to {', '.join(names)}; to show "
            f"one, set args: {{key: {key}}}"
        )
    for name in [judge.bound.name for judge in judges if judge.spec.use == "correctness"]:
        found = [f"{side}.{field}" for side, fields in shown[name].items() for field in fields if field in CONTEXTS]
        if found:
            yield (
                f"{name}: the judge sees {' and '.join(found)}, and may judge by it in place of the reference; set "
                "`key`, use a `prompt` without {inputs}, or keep contexts in the metadata"
            )


def fields_shown(judge: RunnableEvaluator, available: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return by argument the fields that a judge is shown as JSON; none of an argument of which it sees one value."""
    settings = judge.bound.settings
    takes = signature(judge.bound.function).parameters
    prompt = settings.get("prompt") or (takes["prompt"].default if "prompt" in takes else None)
    asked = placeholders(prompt) if isinstance(prompt, str) else SHOWN
    context = settings.get("context") or (takes["context"].default if "context" in takes else None)
    shown = {}
    for argument, names in SPELLINGS.items():
        value = available.get(argument)
        value = value[0] if isinstance(value, list) else value  # of a pair
        has_key = argument != "inputs" and ("key" not in takes or settings.get("key") is not None)
        fields = [*value] if isinstance(value, dict) and not has_key and not asked.isdisjoint(names) else []
        fields = [field for field in fields if not f"{context}.".startswith(f"{argument}.{field}.")]
        shown[argument] = tuple(fields) if len(fields) > 1 else ()
    return shown
