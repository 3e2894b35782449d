"""The rows that are kept: one frozen dataclass a table. Order and types here are those of the Parquet files.

Missing is None, with a reason in `error`, `comment` or `reason`; never 0, never NaN. Times are UTC, money is USD,
durations are seconds. A field typed Json holds JSON text.
"""

import hashlib
import json
import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import orjson

Json = Annotated[str, "json"]

OutputStatus = Literal["ok", "failed", "not_attempted"]
ScoreStatus = Literal["scored", "failed", "not_attempted", "not_applicable", "sampled_out"]
DataType = Literal["NUMERIC", "BOOLEAN", "CATEGORICAL"]
ExperimentState = Literal["running", "completed", "incomplete"]
SubjectKind = Literal["run", "trace", "observation", "session", "experiment", "comparison", "snapshot", "judge"]
Winner = Literal["left", "right", "tie"]
Conclusion = Literal["better", "worse", "no_worse", "equivalent", "not_enough_evidence"]
DecisionConclusion = Literal["PASS", "FAIL", "NOT ENOUGH EVIDENCE"]

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def now() -> datetime:
    return datetime.now(UTC)


def new_id(prefix: str, at: datetime | None = None) -> str:
    """`prefix-` and 26 letters: 48 bits of time in ms, so that ids sort by time, then 80 bits of chance."""
    return f"{prefix}-{_time(at or now())}{_letters(secrets.randbits(80), 16)}"


def dependent_id(prefix: str, at: str | datetime, *origin: str) -> str:
    """An id of the same form whose 80 bits are a hash of its origin; its time is `at`, or that of the id `at`."""
    time = _time(at) if isinstance(at, datetime) else at.partition("-")[2][:10]
    number = int.from_bytes(hashlib.sha256(to_json(origin).encode()).digest()[:10])
    return f"{prefix}-{time}{_letters(number, 16)}"


def derived_id(*parts: str | int | None) -> str:
    """32 hex digits that the parts decide: a key made of other keys, in one column."""
    try:
        text = orjson.dumps(parts)  # as `to_json` has it, in a fraction of the time
    except orjson.JSONEncodeError:
        text = to_json(parts).encode()
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def controls_batch(run_group: str) -> str:
    """The batch of checks in which the judges of one start were tried."""
    return derived_id("controls", run_group)


def _time(at: datetime) -> str:
    """Whole milliseconds, reckoned in integers: as a float, a time may fall short of its own millisecond."""
    return _letters(int(at.replace(microsecond=0).timestamp()) * 1000 + at.microsecond // 1000, 10)


def _letters(number: int, count: int) -> str:
    return "".join(_ALPHABET[(number >> 5 * place) & 31] for place in reversed(range(count)))


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def to_json(value: Any, *, mend: bool = False) -> Json:
    """JSON text that equal values share: keys sorted, no spaces.

    Raises TypeError or ValueError, in one line, for what JSON in UTF-8 cannot hold (NaN, half a surrogate pair). With
    `mend` such a half, as a stream that was cut leaves it, becomes U+FFFD.
    """
    text = _ENCODER.encode(value)
    if mend:
        return mended(text)
    text.encode()
    return text


def from_json(text: Json | None) -> Any:
    """What JSON text holds; None for none."""
    return None if text is None else json.loads(text)


def mended(text: str) -> str:
    """A text that UTF-8 can hold: half a surrogate pair becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRow:
    """A frozen dataset: its content, whatever it is called and wherever it came from."""

    snapshot_id: str
    n_examples: int
    splits: Json  # {split: number of examples}
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetVersionRow:
    """An event: from this moment on, the name stands for the snapshot."""

    dataset_version_id: str
    name: str
    snapshot_id: str
    parent_snapshot_id: str | None = None  # what the name stood for before
    source: str  # a path, or what else the rows came from
    description: str | None = None
    metadata: Json | None = None
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleRow:
    snapshot_id: str
    example_id: str
    position: int  # from 0, as first frozen
    inputs: Json
    reference_outputs: Json | None = None
    metadata: Json | None = None
    split: str | None = None
    cluster: str | None = None  # what was sampled together: a conversation, a document
    attachments: Json | None = None
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentRow:
    """One target on one snapshot, once started. A later row replaces an earlier one of the same experiment."""

    experiment_id: str
    run_group: str  # the experiments that one start of a spec made
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
    evaluators: Json  # [{name, version, declared_version, use, level}]
    spec: Json  # the whole ExperimentSpec, its dataset by snapshot
    git_commit: str | None = None
    git_branch: str | None = None
    git_dirty: bool | None = None
    evalflows_version: str
    flow_run_id: str | None = None
    state: ExperimentState
    reason: str | None = None  # why it is incomplete
    budget_usd: float | None = None
    max_calls: int | None = None
    calls: int | None = None  # made and paid; None while it runs
    calls_cached: int | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None  # None where a price was not known
    started_at: datetime
    ended_at: datetime | None = None
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRow:
    """What a target made of one example, once."""

    run_id: str  # of experiment, example and repetition
    experiment_id: str
    example_id: str
    repetition: int  # from 0
    outputs: Json | None = None
    length: int | None = None  # characters of the only field, where that is a text; else of the whole as JSON
    status: OutputStatus
    error: str | None = None
    error_kind: str | None = None  # specs.errors.ErrorKind
    attempts: int = 1
    latency_s: float | None = None  # of the attempt that succeeded
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None
    calls: int = 0  # model calls made and paid
    calls_cached: int = 0  # answered by the ledger
    steps: Json | None = None  # child calls and tool calls, in order
    reused_from: str | None = None  # the run whose outputs these are
    trace_id: str | None = None
    started_at: datetime | None = None
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """One judgement. A failed one is a row too: value null, and an error."""

    score_id: str  # of subject, turn, metric and evaluator version
    subject_kind: SubjectKind
    subject_id: str
    turn: int | None = None
    experiment_id: str | None = None
    run_id: str | None = None
    example_id: str | None = None
    repetition: int | None = None
    metric: str
    value: float | None = None
    label: str | None = None
    data_type: DataType | None = None
    comment: str | None = None
    status: ScoreStatus
    error: str | None = None
    error_kind: str | None = None
    evaluator: str
    evaluator_version: str
    declared_version: str | None = None
    config_id: str | None = None
    judge_model: str | None = None
    prompt_hash: str | None = None
    repeats: int | None = None  # how often the judge was asked
    spread: float | None = None  # standard deviation over the repeats
    decided_by: str | None = None  # the tier or fallback that gave the value
    sampling_rate: float | None = None  # in (0, 1]; None where every run was judged
    attempts: int = 1
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None
    calls: int = 0
    calls_cached: int = 0
    latency_s: float | None = None
    metadata: Json | None = None
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonSetRow:
    """Existing experiments that were compared, and how."""

    comparison_id: str
    run_key: str | None = None
    name: str
    description: str | None = None
    metadata: Json | None = None
    tags: list[str] = field(default_factory=list)
    experiments: list[str]  # experiment ids
    baseline_experiment_id: str | None = None  # None: all pairs
    snapshot_ids: list[str]
    evaluators: Json
    spec: Json
    randomize_order: bool
    both_orders: bool
    failed_output_policy: str  # loses, or left_out
    seed: int
    repetitions: int  # those that every experiment has
    chunk_size: int
    n_shared: int  # examples that every experiment has, with the same inputs
    n_left_out: int  # those that only some have, or with other inputs
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
class ComparisonRow:
    """One pairwise judgement. Left and right are fixed by the experiments; what was shown first stands beside them."""

    judgement_id: str  # of comparison, metric, both runs, order and evaluator version
    comparison_id: str
    metric: str
    example_id: str
    repetition: int
    left_experiment_id: str
    right_experiment_id: str
    left_run_id: str
    right_run_id: str
    shown_first: Literal["left", "right"]
    winner: Winner | None = None
    left_score: float | None = None
    right_score: float | None = None
    comment: str | None = None
    status: ScoreStatus
    error: str | None = None
    error_kind: str | None = None
    evaluator: str
    evaluator_version: str
    declared_version: str | None = None
    judge_model: str | None = None
    prompt_hash: str | None = None
    repeats: int | None = None  # how often the judge was asked
    agreement: float | None = None  # the share of all two repeats that say the same; None for one
    decided_by: str | None = None  # `failed output` where no evaluator was asked
    attempts: int = 1
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None
    calls: int = 0
    calls_cached: int = 0
    latency_s: float | None = None
    metadata: Json | None = None
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingRow:
    """Where one experiment stands in a tournament."""

    rating_id: str  # of comparison, metric, experiment, method and slice
    comparison_id: str
    metric: str
    experiment_id: str
    method: str
    slice: str | None = None  # a split or a metadata value; None for all
    rating: float | None = None  # 1000 on average; 400 more are odds of 10 to 1
    ci_low: float | None = None
    ci_high: float | None = None
    level: float | None = None
    rank: int | None = None
    win_rate: float | None = None
    win_rate_low: float | None = None
    win_rate_high: float | None = None
    wins: int
    losses: int
    ties: int
    missing: int
    n_clusters: int | None = None
    seed: int | None = None
    resamples: int | None = None
    settings: Json | None = None
    reason: str | None = None  # why there is none, or why nothing may rest on it
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateRow:
    """The mean of one metric of one experiment, with its interval; repetitions are averaged within an example first."""

    estimate_id: str  # of experiment, metric, evaluator version and slice
    experiment_id: str
    metric: str
    evaluator_version: str
    slice: str | None = None
    mean: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    level: float
    method: str
    n_examples: int
    n_clusters: int | None = None
    reason: str | None = None  # why there is no interval
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRow:
    """Is the difference in one metric, candidate minus baseline, real?"""

    verdict_id: str
    decision_id: str | None = None  # of the gate's decision that it was made for
    run_group: str | None = None  # of a comparison, or of a decision, its id
    comparison_id: str | None = None  # then the means are win rates, ties half
    metric: str
    slice: str | None = None
    candidate_experiment_id: str
    baseline_experiment_id: str | None = None
    candidate_mean: float | None = None
    baseline_mean: float | None = None
    difference: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    level: float | None = None
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
    worst_case_low: float | None = None  # the difference, had the missing gone all against the candidate
    worst_case_high: float | None = None
    worst_ci_low: float | None = None  # the interval's low end, had the missing gone all against the candidate
    worst_ci_high: float | None = None  # its high end, had they gone all for it
    margin: float | None = None  # a difference of less does not matter
    higher_is_better: bool = True
    smallest_detectable_effect: float | None = None  # what would have been found with that power, were it there
    power: float | None = None
    conclusion: Conclusion
    reason: str | None = None
    warning: str | None = None  # what makes the interval less sure than it says
    seed: int | None = None
    resamples: int | None = None
    settings: Json | None = None
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    """May it be released? One gate's answer on one candidate, on the evidence that there was."""

    decision_id: str
    gate: str
    run_group: str | None = None  # the candidate's
    candidate_experiment_id: str
    baseline_experiment_id: str | None = None
    conclusion: DecisionConclusion
    summary: str  # in a sentence or two
    reasons: Json  # a rule each: [{rule, metric, bound, outcome, text, p_below, p_adjusted}]
    policy: Json  # the GateSpec
    level: float
    comparability: Json | None = None  # what differs between the two sides: [{what, text, refuses}]
    n_shared: int | None = None  # examples that both sides have, with the same inputs
    looks: int | None = None  # how often a batched gate looked
    calls_saved: int | None = None
    flow_run_id: str | None = None
    git_commit: str | None = None
    evalflows_version: str
    decided_at: datetime
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineRow:
    """An event: a person made this experiment the one to compare with."""

    baseline_id: str
    name: str  # which baseline: a dataset's, a product's
    experiment_id: str
    decision_id: str | None = None
    approved_by: str | None = None
    reason: str | None = None
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow:
    """The ledger: one finished model call. The key holds everything that decides the answer."""

    call_id: str
    call_key: str
    kind: Literal["chat", "embedding"] = "chat"
    experiment_id: str | None = None  # who paid
    subject_id: str | None = None  # the run or comparison it was made for
    evaluator: str | None = None  # None: the target made it
    connection: str
    base_url: str
    model: str
    answered_by: str | None = None  # the model that the provider says it was
    request: Json
    response: Json | None = None
    repeat: int = 0
    status: Literal["ok", "failed"]
    reusable: bool  # a whole answer, neither refused nor cut off
    finish_reason: str | None = None
    error: str | None = None
    error_kind: str | None = None
    attempts: int = 1
    tokens_in: int | None = None
    tokens_cached: int | None = None  # of tokens_in, those that the provider had in its cache
    tokens_out: int | None = None
    cost_usd: float | None = None
    latency_s: float | None = None
    provider_request_id: str | None = None
    started_at: datetime
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRow:
    """What a person says of a subject."""

    label_id: str
    batch_id: str  # what was imported together
    subject_kind: SubjectKind
    subject_id: str
    turn: int | None = None
    experiment_id: str | None = None
    example_id: str | None = None
    other_run_id: str | None = None  # the right-hand run, where two were compared
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
    """Whether data or a judge is fit for use."""

    check_id: str
    batch_id: str  # the checks that were made together
    subject_kind: SubjectKind
    subject_id: str
    name: str
    column_name: str | None = None
    passed: bool | None = None  # None where it could not be checked
    severity: Literal["error", "warning"] = "error"
    n_checked: int | None = None
    n_unexpected: int | None = None
    observed: Json | None = None
    expected: Json | None = None
    message: str | None = None
    flow_run_id: str | None = None
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRow:
    """A limiter's history: how wide it was from this moment on, and why."""

    limit_id: str
    experiment_id: str | None = None
    connection: str
    process: str  # host and process id
    width: int
    in_flight: int
    reason: str
    retry_after_s: float | None = None
    changed_at: datetime
    recorded_at: datetime = field(default_factory=now)
