"""The rows of the store: one frozen dataclass per table, with the column order and types of the Parquet files; and
the reasons for which there is no conclusion.

Missing is None, with a reason in `error`, `comment` or `reason`; never 0, never NaN. Times are UTC, money is USD,
durations are seconds. A field typed Json holds JSON text.
"""

import hashlib
import json
import secrets
from collections.abc import Callable
from dataclasses import field
from datetime import UTC, datetime, timedelta
from json.encoder import c_make_encoder, encode_basestring  # type: ignore[attr-defined]
from typing import Annotated, Any, Literal

import orjson

from evalflows.specs.frozen import dataclass

Json = Annotated[str, "json"]

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
_write = c_make_encoder(None, _ENCODER.default, encode_basestring, None, ":", ",", True, False, False)
"""What writes for it; it makes such a function for each value, which takes longer than a short value."""
_scan: Callable[[str, int], tuple[Any, int]] = vars(json.JSONDecoder())["scan_once"]
"""`json.loads` takes five times as long for a short text."""

_PLAIN = frozenset({str, int, bool, type(None)})
"""Types that orjson writes as Python's encoder does, which it does not for floats."""
_TEXT = frozenset({str})

LimitChange = Literal["began", "grown", "refused", "refused_waiting"]

ReasonCode = Literal[
    # the interval or the test is inconclusive
    "no_significant_difference",  # the interval includes zero, whatever the missing values are
    "interval_includes_bound",  # of a gate's rule: the interval includes the margin or the threshold
    "worse_but_maybe_within_margin",  # significantly worse, and whether by more than the margin is open
    "worse_within_margin",  # no worse or equivalent by the margin, and significantly worse
    "interval_and_test_disagree",
    "not_significant_after_adjustment",
    "missing_unbounded",  # values are missing, and no declared range bounds them
    "missing_could_flip",  # missing values could change the conclusion
    # there is no estimate, no interval or no test
    "no_data",
    "too_few",
    "below_min_examples",  # fewer than the gate asks for
    "no_spread",
    "not_identifiable",
    "not_converged",
    "no_interval",
    "no_test",
    "too_brief",  # latencies below a millisecond
    # the judge
    "judge_failed_validation",
    "judge_not_validated",  # its known-answer controls could not be judged
    "judge_rejected_by_people",  # it agrees with people's labels not significantly better than chance
    "judged_by_fallback",  # most scores are its fallback's
    "bundle_disagrees",  # it gives other scores alone than in a call with other judges
    "bundle_not_checked",  # whether it does is not known
    "judge_drifted",  # since the baseline was judged
    "only_judge_differs",  # the answers are the same, and what is behind the judge's model is not
    "judge_position_bias",
    "one_presentation_order",  # the same answer was always shown first
    "order_unknown",  # of recorded verdicts: which answer was shown first
    "order_drawn",  # at random, without a record
    # a gate's rule could not be evaluated
    "no_baseline",
    "approved_by_others",  # than the gate wants, or not signed
    "too_many_in_quarantine",  # more examples than the spec allows
    "invalid_trials",  # more simulated users than the gate allows did not keep to their goal
    "drafts",  # the candidate answered examples that a model wrote and nobody has accepted
    "candidate_is_baseline",
    "not_comparable",
    "not_side_by_side",  # of a latency: the answers were not made in the same rounds
    "no_such_metric",
    "no_such_slice",  # no example has the value that the rule names
    "ambiguous_metric",  # several evaluators gave it
    "not_numeric",
    "run_level_metric",  # one number for all runs, without an interval
    "incomplete",
    "margin_too_wide",  # as wide as the metric's range
    "no_finished_batch",
    "not_for_batches",
    # a watch rule
    "no_reference",  # no previous window, or no such experiment
    "learning",  # the change detector has too few windows before
    "rule_removed",  # of an incident: its rule is no longer in the spec
    "evaluator_changed",  # of an incident: its metric is no longer judged by the same version
    "closed_by_person",
]
"""Codes that code and queries branch on, instead of the text."""

EXCLUDED: tuple[ReasonCode, ...] = (
    *("judge_failed_validation", "judge_not_validated"),
    *("judge_rejected_by_people", "judged_by_fallback"),
    *("bundle_disagrees", "bundle_not_checked"),
)
"""Codes of judges whose scores decide nothing."""

PEOPLE_PREFIX = "people-"
"""How the ids of batches of checks against people's labels begin."""

OutputStatus = Literal["ok", "failed", "not_attempted"]
ScoreStatus = Literal["scored", "failed", "not_attempted", "not_applicable", "sampled_out"]
DataType = Literal["NUMERIC", "BOOLEAN", "CATEGORICAL"]
ExperimentState = Literal["running", "completed", "incomplete"]
_ItemKind = Literal["run", "pair", "trace", "observation", "session"]
SubjectKind = Literal[_ItemKind, "experiment", "comparison", "snapshot", "judge", "spec", "gate", "baseline"]
Winner = Literal["left", "right", "tie"]
MissingAs = Literal["known", "lowest", "highest"]
Conclusion = Literal["better", "worse", "no_worse", "equivalent", "not_enough_evidence"]
DecisionConclusion = Literal["PASS", "FAIL", "NOT ENOUGH EVIDENCE"]

FINAL = "final"
"""The split of the examples that only a release gate runs."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"

_clock = datetime.now  # the only place that reads the clock, so that tests can set it back

UNANSWERED = "unanswered"
"""The error kind of a call that was sent, and whose answer the process did not wait for: it was killed or stopped."""


def to_json(value: Any, *, mend: bool = False) -> Json:
    """Return canonical JSON text: keys sorted, no spaces.

    Raise TypeError or ValueError, in one line, for values that JSON in UTF-8 cannot represent (NaN, a lone surrogate).
    With `mend`, lone surrogates, which truncated streams contain, become U+FFFD.
    """
    text = _encoded(value)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        if not mend:
            raise
        return mended(text)
    return text


def _encoded(value: Any) -> str:
    if type(value) is dict and _PLAIN.issuperset(map(type, value.values())) and _TEXT.issuperset(map(type, value)):
        try:
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()  # in a tenth of the time
        except orjson.JSONEncodeError:  # a lone surrogate, or a number of more than 64 bits
            pass
    try:
        return "".join(_write(value, 0))
    except RecursionError:
        return _ENCODER.encode(value)  # which says that a value holds itself


def from_json(text: Json | None) -> Any:
    """Parse JSON text; None stays None. Raise ValueError for a text that is not JSON."""
    if text is None:
        return None
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        return json.loads(text)  # which says where it is wrong
    return value if end == len(text) else json.loads(text)


def mended(text: str) -> str:
    """Replace lone surrogates by U+FFFD, so that the text is valid UTF-8."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@dataclass(frozen=True, slots=True)
class Reason:
    """A code to branch on, and a text to read."""

    code: ReasonCode
    text: str

    def __str__(self) -> str:
        return self.text


def now() -> datetime:
    return _clock(UTC)


def after(*earlier: datetime | None) -> datetime:
    """Return the current time, or a microsecond after the latest of `earlier` if the clock is not past that.

    For rows of which the newest counts: it must stay the newest if the clock was set back.
    """
    return max([now(), *(moment + timedelta(microseconds=1) for moment in earlier if moment is not None)])


def new_id(prefix: str, at: datetime | None = None) -> str:
    """Return `prefix-` and 26 characters: 48 bits of time in ms, so that ids sort by time, then 80 random bits."""
    return f"{prefix}-{_time(at or now())}{_letters(secrets.randbits(80), 16)}"


def dependent_id(prefix: str, at: str | datetime, *origin: str) -> str:
    """Return an id of the same form whose last 80 bits hash its origin; its time is `at`, or that of the id `at`."""
    time = _time(at) if isinstance(at, datetime) else at.partition("-")[2][:10]
    number = int.from_bytes(hashlib.sha256(to_json(origin).encode()).digest()[:10])
    return f"{prefix}-{time}{_letters(number, 16)}"


def derived_id(*parts: str | int | None) -> str:
    """Return a hash of the parts as 32 hex digits: a key made of other keys, in one column."""
    try:
        text = orjson.dumps(parts)  # like `to_json`, but much faster
    except orjson.JSONEncodeError:
        text = to_json(parts).encode()
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def uncommitted_id(run_group: str) -> str:
    """Return the id of the check that says how the rules of a run differ from those of its file at the commit."""
    return derived_id("uncommitted_rules", run_group)


def controls_batch(run_group: str) -> str:
    """Return the id of the batch of known-answer controls of a run group's judges."""
    return derived_id("controls", run_group)


def bundles_batch(run_group: str) -> str:
    """Return the id of the batch of checks of a run group's judges that share their calls."""
    return derived_id("bundles", run_group)


def drift_batch(run_id: str) -> str:
    """Return the id of the batch of checks of the judges of a run group, a comparison or a batch for drift."""
    return derived_id("drift", run_id)


def _time(at: datetime) -> str:
    """Encode a time in whole milliseconds, computed in integers: as a float, it may round to the previous one."""
    return _letters(int(at.replace(microsecond=0).timestamp()) * 1000 + at.microsecond // 1000, 10)


def _letters(number: int, count: int) -> str:
    return "".join(_ALPHABET[(number >> 5 * digit) & 31] for digit in reversed(range(count)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRow:
    """A frozen dataset, identified by its content, independent of name and source."""

    snapshot_id: str
    n_examples: int
    splits: Json  # {split: number of examples}
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetVersionRow:
    """An event: from now on, the dataset's name refers to this snapshot."""

    dataset_version_id: str
    name: str
    snapshot_id: str  # empty if the dataset was deleted: the name is free, and its versions stay
    parent_snapshot_id: str | None = None  # the previous snapshot of the name
    source: str  # a path, or another origin of the rows
    description: str | None = None
    metadata: Json | None = None
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleRow:
    """One example of a snapshot."""

    snapshot_id: str
    example_id: str
    position: int  # from 0, as first frozen
    inputs: Json
    reference_outputs: Json | None = None
    metadata: Json | None = None
    split: str | None = None
    cluster: str | None = None  # examples sampled together share it, such as those of one document
    attachments: Json | None = None
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentRow:
    """A picture, a sound or a PDF of examples, which refer to it by its hash."""

    attachment_id: str  # the SHA-256 of its bytes
    media_type: str
    n_bytes: int
    content: str  # as base64
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentRow:
    """One started experiment: one target on one snapshot. A later row replaces an earlier one of the same id."""

    experiment_id: str
    run_group: str  # shared by all experiments of one start of a spec
    run_key: str | None = None
    name: str
    description: str | None = None
    metadata: Json | None = None
    tags: list[str] = field(default_factory=list)
    dataset_name: str | None = None
    snapshot_id: str
    n_examples: int
    repetitions: int
    chunk_size: int
    seed: int | None = None
    target: str
    target_kind: str
    target_version: str
    target_code: Json | None = None  # {part of the user's code: hash}; None if the target has none
    application_version: str | None = None  # given by the spec, or by an HTTP application; None if neither is
    evaluators: Json  # [{name, version, declared_version, use, code, scope, sample}]
    spec: Json  # the resolved ExperimentSpec, with its dataset as a snapshot
    git_commit: str | None = None
    git_branch: str | None = None
    git_dirty: bool | None = None
    evalflows_version: str
    flow_run_id: str | None = None
    state: ExperimentState
    reason: str | None = None  # why it is incomplete
    budget_usd: float | None = None
    max_calls: int | None = None
    calls: int | None = None  # paid calls; None while it runs, and if the target's were not recorded
    calls_cached: int | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None  # None if a price is unknown
    started_at: datetime
    ended_at: datetime | None = None
    recorded_at: datetime = field(default_factory=now)


def answered_by(target_kind: str, target: str, spec: Json) -> str:
    """Return the kind of who answered in an experiment: of a conversation, of the target that the user talks to."""
    targets = json.loads(spec)["targets"] if target_kind == "conversation" else []
    inner = (each.get("target") or {} for each in targets if each["name"] == target)
    return str(next(inner, {}).get("kind", target_kind))


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRow:
    """One run: a target's answer to one example, in one repetition."""

    run_id: str  # derived from experiment, example and repetition
    experiment_id: str
    example_id: str
    repetition: int  # from 0
    outputs: Json | None = None
    length: int | None = None  # characters of the answer, as `targets.length_of` counts them
    status: OutputStatus
    error: str | None = None
    error_kind: str | None = None  # specs.errors.ErrorKind; of an answer that was cut off and is scored, `truncated`
    error_trace: str | None = None  # the user's frames with their source, if their code raised
    attempts: int = 1
    latency_s: float | None = None  # of the successful attempt
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None
    calls: int | None = None  # paid model calls; None if the target may have made some that nobody recorded
    calls_cached: int | None = None  # calls answered from the ledger
    steps: Json | None = None  # child calls and tool calls, in order
    reused_from: str | None = None  # the run whose outputs were reused
    trace_id: str | None = None
    application_version: str | None = None  # of the HTTP application that answered
    started_at: datetime | None = None
    # When the round began in which every target of the run answered this example; null if it opened a connection.
    round_at: datetime | None = None
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgementRow:
    """One metric of one judgement of a subject: an answer, a pair of answers, an experiment or an item of production.

    A failed judgement is a row too, without a value or winner and with an error. The views `scores` and `comparisons`
    have the columns of their subjects. Of a pair, the experiments define left and right; `shown_first` is the order of
    presentation.
    """

    judgement_id: str  # derived from subject, turn, metric and evaluator version; of a pair, from its comparison too
    subject_kind: SubjectKind
    subject_id: str  # of a pair, derived from both runs and the order
    turn: int | None = None
    experiment_id: str | None = None  # or the id of the comparison, or of the trace evaluation of a day
    run_id: str | None = None
    example_id: str | None = None
    repetition: int | None = None
    left_experiment_id: str | None = None
    right_experiment_id: str | None = None
    left_run_id: str | None = None
    right_run_id: str | None = None
    shown_first: Literal["left", "right"] | None = None
    order_status: Literal["known", "drawn", "unknown"] | None = None  # of a recorded judgement; None: it is known
    weight: float | None = None  # of a recorded vote; None: 1
    metric: str
    value: float | None = None
    label: str | None = None
    data_type: DataType | None = None
    winner: Winner | None = None
    left_score: float | None = None
    right_score: float | None = None
    comment: str | None = None
    status: ScoreStatus
    error: str | None = None
    error_kind: str | None = None
    error_trace: str | None = None
    evaluator: str
    evaluator_version: str
    declared_version: str | None = None
    config_id: str | None = None
    judge_model: str | None = None
    prompt_hash: str | None = None
    repeats: int | None = None  # how often the judge was asked
    spread: float | None = None  # standard deviation over the repeats
    agreement: float | None = None  # the share of pairs of repeats with the same verdict; None for one repeat
    decided_by: str | None = None  # the tier or fallback that decided; `failed_output` if no evaluator was called
    sampling_rate: float | None = None  # in (0, 1]; None if all subjects were judged
    attempts: int = 1
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None
    calls: int | None = None  # None if the evaluator may have made some that nobody recorded
    calls_cached: int | None = None
    latency_s: float | None = None
    metadata: Json | None = None
    subject_at: datetime | None = None  # when the judged trace, observation or session began; None for others
    mapper_version: str | None = None  # of what mapped the judged item to inputs and outputs; None if nothing did
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonSetRow:
    """A comparison of existing experiments, with its settings."""

    comparison_id: str
    run_key: str | None = None
    name: str
    description: str | None = None
    metadata: Json | None = None
    tags: list[str] = field(default_factory=list)
    experiments: list[str]  # experiment ids
    baseline_experiment_id: str | None = None  # None if all pairs are compared
    snapshot_ids: list[str]
    evaluators: Json
    spec: Json
    randomize_order: bool
    both_orders: bool
    order_rule: str | None = None  # how verdicts in both orders are combined; None: strict
    failed_output_policy: str  # loses, or left_out
    seed: int
    repetitions: int  # the number that all experiments have
    chunk_size: int
    n_shared: int  # examples that all experiments have with the same inputs
    n_left_out: int  # examples that some experiments lack or have with other inputs
    n_votes: int | None = None  # of a comparison of recorded votes, whose systems are no experiments of the store
    git_commit: str | None = None
    git_branch: str | None = None
    git_dirty: bool | None = None
    evalflows_version: str
    flow_run_id: str | None = None
    state: ExperimentState
    reason: str | None = None
    budget_usd: float | None = None
    max_calls: int | None = None
    calls: int | None = None
    calls_cached: int | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None
    started_at: datetime
    ended_at: datetime | None = None
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingRow:
    """The rating of one experiment in a comparison."""

    rating_id: str  # derived from comparison, metric, experiment, method and slice
    comparison_id: str
    metric: str
    experiment_id: str
    method: str
    slice: str | None = None  # a split or a metadata value; None for all examples
    rating: float | None = None  # mean 1000; a difference of 400 means odds of 10 to 1
    standard_error: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    confidence_level: float | None = None
    rank: int | None = None  # of the rating, 1 for the highest; equal ratings share it
    rank_low: int | None = None  # the best and the worst rank that the differences of ratings allow, for all
    rank_high: int | None = None  # experiments at once
    win_rate: float | None = None
    win_rate_standard_error: float | None = None
    win_rate_low: float | None = None
    win_rate_high: float | None = None
    wins: int
    losses: int
    ties: int
    missing: int
    n_clusters: int | None = None
    settings: Json | None = None
    reason: str | None = None  # why there is no rating, or why it is not reliable
    reason_code: ReasonCode | None = None
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateRow:
    """The mean of one metric of one experiment, with its interval; repetitions are averaged within an example first."""

    estimate_id: str  # derived from experiment, metric, evaluator version and slice
    experiment_id: str
    metric: str
    evaluator_version: str
    slice: str | None = None
    mean: float | None = None
    standard_error: float | None = None  # None if the interval is not based on one
    ci_low: float | None = None
    ci_high: float | None = None
    confidence_level: float
    method: str
    n_examples: int
    n_clusters: int | None = None
    reason: str | None = None  # why there is no interval
    reason_code: ReasonCode | None = None
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRow:
    """The conclusion on the difference in one metric, candidate minus baseline."""

    verdict_id: str
    decision_id: str | None = None  # the gate's decision that it belongs to
    run_group: str | None = None  # for a comparison or a decision, its id
    comparison_id: str | None = None  # if set, the means are win rates, with ties counted as half
    metric: str
    slice: str | None = None
    candidate_experiment_id: str
    baseline_experiment_id: str | None = None
    candidate_mean: float | None = None
    baseline_mean: float | None = None
    difference: float | None = None
    standard_error: float | None = None  # of the difference; None if the interval is not based on one
    ci_low: float | None = None
    ci_high: float | None = None
    confidence_level: float | None = None
    p_value: float | None = None
    p_adjusted: float | None = None
    adjustment: str | None = None
    method: str
    n_pairs: int
    n_clusters: int | None = None
    candidate_scored: int
    candidate_missing: int
    baseline_scored: int
    baseline_missing: int
    worst_case_low: float | None = None  # the difference if all missing values went against the candidate
    worst_case_high: float | None = None  # the difference if all missing values favoured the candidate
    worst_case_ci_low: float | None = None  # the interval's low end in the first case
    worst_case_ci_high: float | None = None  # the interval's high end in the second case
    margin: float | None = None  # smaller differences do not matter
    higher_is_better: bool = True
    minimum_detectable_effect: float | None = None  # the smallest difference detected with that power
    power: float | None = None
    length_controlled: bool = False  # whether it is adjusted to answers of equal length
    conclusion: Conclusion
    reason: str | None = None
    reason_code: ReasonCode | None = None
    warning: str | None = None  # why the interval is less reliable than stated
    settings: Json | None = None
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    """One gate's decision on one candidate."""

    decision_id: str
    gate: str
    run_group: str | None = None  # the candidate's
    candidate_experiment_id: str
    baseline_experiment_id: str | None = None
    conclusion: DecisionConclusion
    summary: str  # the deciding rules, in words
    reasons: Json  # one per rule: [{rule, metric, bound, outcome, text, reason_code, p_below, p_adjusted}]
    policy: Json  # the GateSpec
    confidence_level: float
    comparability: Json | None = None  # differences between candidate and baseline: [{what, text, refuses}]
    n_shared: int | None = None  # examples that both experiments have with the same inputs
    interim_analyses: int | None = None  # number of interim analyses of a batched gate
    calls_saved: int | None = None
    flow_run_id: str | None = None
    git_commit: str | None = None
    evalflows_version: str
    decided_at: datetime
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineRow:
    """An event: a person approved this experiment as baseline."""

    baseline_id: str
    name: str  # the baseline's name, such as a dataset or a product
    experiment_id: str
    decision_id: str | None = None
    approved_by: str | None = None
    reason: str | None = None
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow:
    """A ledger entry: one finished model call. The key covers everything that determines the answer."""

    call_id: str
    call_key: str
    kind: Literal["chat", "embedding", "application", "turn"] = "chat"  # turn: in a conversation, unpaid
    experiment_id: str | None = None  # the experiment that paid
    subject_id: str | None = None  # the run or comparison that it was made for
    evaluator: str | None = None  # None if the target made the call; in a conversation also `target: user`
    connection: str
    base_url: str
    model: str
    answered_by: str | None = None  # the model reported by the provider
    system_fingerprint: str | None = None  # of what served it, as the provider reports it
    request: Json
    response: Json | None = None
    repeat: int = 0
    status: Literal["ok", "failed"]
    reusable: bool  # an answer neither refused nor truncated, except where the request limits its length
    finish_reason: str | None = None
    error: str | None = None
    error_kind: str | None = None  # an ErrorKind, or UNANSWERED
    attempts: int = 1
    tokens_in: int | None = None
    tokens_cached: int | None = None  # the part of tokens_in that the provider had cached
    tokens_out: int | None = None
    tokens_reasoning: int | None = None  # the part of tokens_out that the model thought in
    cost_usd: float | None = None
    estimated_usd: float | None = None  # of a call whose cost is unknown: an estimate from its texts
    latency_s: float | None = None
    provider_request_id: str | None = None
    batch_id: str | None = None  # the provider's batch that answered; None if it was called directly
    started_at: datetime
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentinelRow:
    """One judgement of an anchor: of an answer whose score is known, by which a drift of its judge is seen."""

    sentinel_id: str  # derived from owner, part, place, metric and evaluator version
    experiment_id: str  # in whose course it was judged; or the comparison, or the trace evaluation of a day
    run_id: str  # of the start: the run group, the comparison or the batch
    metric: str
    evaluator: str
    evaluator_version: str
    snapshot_id: str  # of the anchors
    example_id: str
    known: float  # the score that it should have, in the metric's unit
    value: float | None = None  # the judge's
    status: ScoreStatus
    error_kind: str | None = None
    judge_model: str | None = None
    calls: int | None = None  # None if the evaluator may have made some that nobody recorded
    cost_usd: float | None = None
    judged_at: datetime
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResampleRow:
    """A metric of a whole experiment on resamples of its examples, of which its interval and its differences are made.

    Two experiments on the same examples have them on the same resamples.
    """

    resample_id: str  # derived from experiment, metric, evaluator version and `missing_as`
    experiment_id: str
    metric: str
    evaluator: str
    evaluator_version: str
    missing_as: MissingAs  # what answers that are missing count as
    value: float | None = None  # on all examples; None where it is not defined
    resamples: list[float | None]
    left_out: list[float | None]  # without one example, cluster, or group of them
    n_units: int  # examples, or clusters if there are any
    is_clustered: bool
    n_runs: int  # with an answer
    n_missing: int  # without
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifiedRow:
    """The label of an answer and of its reference, as an evaluator of the whole experiment compared them."""

    classified_id: str  # derived from run, evaluator and its version
    experiment_id: str
    run_id: str
    example_id: str
    repetition: int
    evaluator: str
    evaluator_version: str
    expected: str
    got: str | None = None  # None: the answer has no label, or there is no answer
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRow:
    """A person's label of a subject, or a program's if its source is `machine`."""

    label_id: str
    batch_id: str  # labels imported together share it
    subject_kind: SubjectKind
    subject_id: str
    turn: int | None = None
    experiment_id: str | None = None
    example_id: str | None = None
    other_run_id: str | None = None  # the right run, if two runs were compared
    metric: str
    value: float | None = None
    label: str | None = None
    data_type: DataType | None = None
    labeller: str | None = None
    comment: str | None = None
    source: str
    metadata: Json | None = None
    labelled_at: datetime | None = None
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow:
    """A check of a dataset, of results, a judge or a composite; also a plan of a spec, or a backtest of a gate."""

    check_id: str
    batch_id: str  # checks made together share it
    subject_kind: SubjectKind
    subject_id: str
    name: str
    column_name: str | None = None
    passed: bool | None = None  # None if it could not be checked
    severity: Literal["error", "warning"] = "error"
    n_checked: int | None = None
    n_unexpected: int | None = None
    observed: Json | None = None
    expected: Json | None = None
    message: str | None = None
    reason_code: ReasonCode | None = None  # why it failed, or could not be checked
    flow_run_id: str | None = None
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRow:
    """A change of a limiter's width, and its reason."""

    limit_id: str
    experiment_id: str | None = None
    connection: str
    process: str  # host and process id
    width: int
    in_flight: int
    reason: LimitChange
    retry_after_s: float | None = None
    changed_at: datetime
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRow:
    """An event: the texts of examples, traces or a person were erased, or old experiments were removed."""

    erasure_id: str
    kind: str  # what named it: example, where, trace, session, user, reviewer, or a rule of retention
    selector_hash: str  # a slow, salted hash of what named it, since that may be a person's name; or the rule
    erased_by: str | None = None  # the operating system's user
    rows: Json  # {table: number of rows that lost texts or were removed}
    snapshots: list[str] = field(default_factory=list)  # with erased examples
    owners: list[str] = field(default_factory=list)  # experiments, comparisons and trace evaluations with such rows
    kept: list[str] = field(default_factory=list)  # fields of examples' metadata that stayed
    recorded_at: datetime = field(default_factory=now)
