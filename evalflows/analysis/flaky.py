"""Examples that flip under unchanged versions: which, how often, what they add to a difference, and what those in
quarantine weigh in verdicts."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from evalflows.analysis.figures import figure
from evalflows.specs.errors import InputError
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.specs.metric_names import MEASURES, base_metric
from evalflows.specs.quarantine import QuarantineSpec, refuse_expired
from evalflows.stats.flips import departing_shares, flip_rate, noise_weights
from evalflows.stats.proportions import normal_quantile
from evalflows.store.queries.repeated_values import Repeated, RepeatedValues, repeated_values
from evalflows.store.queries.values import MetricValues
from evalflows.store.records import FINAL, ExampleRow, ExperimentRow, Reason, now
from evalflows.store.store import Store

if TYPE_CHECKING:
    from evalflows.engine.prepare import PreparedExperiment

LEVEL = 0.95
MOST_REPEATS = 50
"""How often an example is answered at most, in what `plan` proposes."""
NAMED = 20
"""Examples that a text names; JSON has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlakyExample:
    """An example that varies more under unchanged versions than the others do, in a metric."""

    example_id: str
    n: int  # observations under versions with at least two
    flip_rate: float | None  # with its interval; None for numbers
    flip_rate_low: float | None
    flip_rate_high: float | None
    within: float  # variance of one observation
    p_value: float  # adjusted
    weight: float  # by_noise, with one repetition


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """Which examples to answer more often, beside answering all alike."""

    examples: Sequence[str]
    times: int
    others: int
    answers: int
    half_width: float  # how far two runs of one version may be apart by chance
    repetitions: int  # of all
    answers_alike: int
    half_width_alike: float
    half_width_now: float  # with the spec's repetitions

    def text(self, metric: str) -> str:
        """Return it in words."""
        widths = [figure(width, metric) for width in (self.half_width, self.half_width_alike, self.half_width_now)]
        once = "once" if self.others == 1 else f"{self.others} times"
        many = f"{len(self.examples)} flaky example{'s' * (len(self.examples) != 1)}"
        return (
            f"{metric}: with the {many} answered {self.times} times and the others {once}, two runs of one version "
            f"would differ by up to {widths[0]} by chance, with {self.answers:,} answers; with repetitions: "
            f"{self.repetitions} in the spec, by {widths[1]}, with {self.answers_alike:,} answers"
            + (f"; now by {widths[2]}" if widths[2] != widths[1] else "")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricNoise:
    """How much a metric of a dataset varies under unchanged versions."""

    metric: str
    n_examples: int  # of the dataset
    n_repeated: int  # that have been observed repeatedly
    is_yes_no: bool
    between: float  # variance of the examples' means
    typical: float  # variance within the examples that are not flaky
    within: Mapping[str, float]  # variance of one observation, of each repeated example
    flaky: Sequence[FlakyExample]  # the surest first

    def weight(self, example_id: str, repetitions: int) -> float | None:
        """Return the weight of an example by its noise; None if it is not known."""
        if example_id not in self.within:
            return None
        if not self.between:
            return 1.0
        noise = [self.within[example_id] / repetitions]
        return float(noise_weights(noise, self.between, self.typical / repetitions)[0])

    @property
    def share(self) -> float:
        """The share of the variance by chance that the flaky examples bring."""
        return self._of_flaky / self._of_all if self._of_all else 0.0

    def half_width(self, *, weights: Mapping[str, float] | None = None, repeated: int = 1, others: int = 1) -> float:
        """Return how far apart two runs of one version may be by chance alone, at 95 %.

        `weights` are those of the flaky examples, 0 to leave one out; `repeated` is how often they are answered, and
        `others` how often the rest.
        """
        given = {example.example_id: 1.0 for example in self.flaky} | dict(weights or {})
        noise = max(self._of_all - self._of_flaky, 0.0) / others
        noise += sum(given[example.example_id] ** 2 * example.within / repeated for example in self.flaky)
        total = self.n_examples - len(self.flaky) + sum(given.values())
        return normal_quantile(LEVEL) * math.sqrt(2 * noise) / total if total else 0.0

    def repeats(self, repetitions: int) -> "Repeats | None":
        """Return how often to answer the flaky examples and the others, for no more answers than with these
        repetitions (at least 3); None if nothing is gained."""
        n, flaky, most = self.n_examples, len(self.flaky), max(repetitions, 3)
        if not flaky or flaky == n:
            return None
        designs = [(min((n * most - (n - flaky) * others) // flaky, MOST_REPEATS), others) for others in range(1, most)]
        if repetitions == 1:
            designs = [(most, 1)]
        times, others = min(designs, key=lambda design: self.half_width(repeated=design[0], others=design[1]))
        found = Repeats(
            examples=[example.example_id for example in self.flaky],
            times=times,
            others=others,
            answers=flaky * times + (n - flaky) * others,
            half_width=self.half_width(repeated=times, others=others),
            repetitions=most,
            answers_alike=n * most,
            half_width_alike=self.half_width(repeated=most, others=most),
            half_width_now=self.half_width(repeated=repetitions, others=repetitions),
        )
        gains = found.half_width < (found.half_width_alike if repetitions > 1 else found.half_width_now)
        return found if gains else None

    @property
    def _of_flaky(self) -> float:
        return sum(example.within for example in self.flaky)

    @property
    def _of_all(self) -> float:
        return sum(self.within.values()) + (self.n_examples - self.n_repeated) * self.typical

    @property
    def sentences(self) -> list[str]:
        """What was found, and what it does to a difference."""
        seen = f"{self.n_repeated} of {self.n_examples} examples were repeated under unchanged versions"
        if not self.flaky:
            varied = sum(within > 0 for within in self.within.values())
            said = f"{self.metric}: no example is flaky; {seen}"
            if not varied:
                return [f"{said}, and none varied"]
            return [
                f"{said}, and {varied} varied, none significantly more than the others",
                f"{self.metric}: two runs of one version differ by up to {figure(self.half_width(), self.metric)} by "
                "chance (95 %)",
            ]
        none = {example.example_id: 0.0 for example in self.flaky}
        by_noise = {example.example_id: example.weight for example in self.flaky}
        widths = [figure(self.half_width(weights=weights), self.metric) for weights in (None, by_noise, none)]
        many = f"{len(self.flaky)} examples are" if len(self.flaky) > 1 else "1 example is"
        return [
            f"{self.metric}: {many} flaky, and {'cause' if len(self.flaky) > 1 else 'causes'} {self.share:.0%} of the "
            f"variance by chance; {seen}",
            f"{self.metric}: two runs of one version differ by up to {widths[0]} by chance (95 %), by {widths[1]} if "
            f"flaky examples weigh by_noise, and by {widths[2]} without them",
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlakyReport:
    """The flaky examples of a dataset, metric by metric."""

    dataset: str
    version_of: str | None  # the experiment of whose version the figures are; None: of all versions, pooled
    versions: int
    experiments: int
    metrics: Sequence[MetricNoise]

    @property
    def sentences(self) -> list[str]:
        if not self.metrics:
            return []
        found = [sentence for metric in self.metrics for sentence in metric.sentences]
        seen = f"{self.experiments} experiment{'s' * (self.experiments != 1)} on {self.dataset}"
        if self.version_of:
            return [f"figures of the version of {self.version_of}, from {seen}", *found]
        if self.versions == 1:
            return [f"figures of one version, from {seen}", *found]
        return [
            f"figures pooled over {self.versions} versions, from {seen}: one version may vary more or less; name an "
            "experiment for those of its version",
            *found,
        ]

    @property
    def quarantine(self) -> list[dict[str, Any]]:
        """Entries for a spec, to complete with a reason; empty without flaky examples."""
        until = f"{now() + timedelta(days=30):%Y-%m-%d}"
        return [
            {
                "examples": [example.example_id for example in metric.flaky],
                "metric": metric.metric,
                "until": until,
                "reason": "WHY",
            }
            for metric in self.metrics
            if metric.flaky
        ]

    def document(self) -> dict[str, Any]:
        """Return all figures, as values of JSON."""
        metrics = [
            {
                **{name: value for name, value in asdict(metric).items() if name != "within"},
                "share_of_variance": metric.share,
                "half_width": metric.half_width(),
                "half_width_by_noise": metric.half_width(weights={e.example_id: e.weight for e in metric.flaky}),
                "half_width_without": metric.half_width(weights={e.example_id: 0.0 for e in metric.flaky}),
            }
            for metric in self.metrics
        ]
        found = {
            "dataset": self.dataset,
            "version_of": self.version_of,
            "versions": self.versions,
            "experiments": self.experiments,
            "metrics": metrics,
        }
        return {**found, "quarantine": self.quarantine, "sentences": self.sentences}


def flaky_report(
    store: Store, experiment: ExperimentRow, metric: str | None = None, *, own_version: bool = False
) -> FlakyReport:
    """Return the flaky examples of an experiment's dataset, as its snapshot has them: over all versions, or only under
    the versions of its target and application.

    Raise InputError for a metric that no example had repeatedly.
    """
    repeated = repeated_values(
        store, experiment, before=now(), only_system=_system(experiment) if own_version else None
    )
    found = noise_by_metric(repeated, experiment.n_examples)
    if metric is not None and metric not in found:
        raise InputError(f"metric: got {metric!r}, wanted one of {', '.join(found) or 'none: nothing was repeated'}")
    return FlakyReport(
        dataset=experiment.dataset_name or experiment.snapshot_id,
        version_of=experiment.name if own_version else None,
        versions=repeated.n_systems,
        experiments=len(repeated.experiments),
        metrics=[noise for name, noise in found.items() if metric in (None, name)],
    )


def _system(experiment: ExperimentRow) -> str:
    return " ".join(filter(None, (experiment.target_version, experiment.application_version)))


def noise_by_metric(repeated: Repeated, n_examples: int) -> dict[str, MetricNoise]:
    """Return what is known of the noise of each metric of which examples were observed repeatedly."""
    by_metric = grouped((value.metric, value) for value in repeated.values)
    found = {metric: _noise(metric, values, n_examples) for metric, values in by_metric.items()}
    return {metric: noise for metric, noise in found.items() if noise.within}


def _noise(metric: str, values: Sequence[RepeatedValues], n_examples: int) -> MetricNoise:
    seen = [value for value in values if value.df > 0]
    is_yes_no = bool(seen) and seen[0].is_yes_no
    squares, df = np.array([value.squares for value in seen]), np.array([float(value.df) for value in seen])
    departing = departing_shares([value.departures for value in seen], [sum(value.counts) for value in seen])
    others = ~departing.is_departing
    means = [value.mean for value in values]
    noise = MetricNoise(
        metric=metric,
        n_examples=n_examples,
        n_repeated=len(seen),
        is_yes_no=is_yes_no,
        between=float(np.var(means, ddof=1)) if len(means) > 1 else 0.0,
        typical=float(squares[others].sum() / df[others].sum()) if others.any() else 0.0,
        within={value.example_id: value.squares / value.df for value in seen},
        flaky=(),
    )
    flaky = [
        _flaky(value, noise, float(p))
        for value, p, is_flaky in zip(seen, departing.p_values, ~others, strict=True)
        if is_flaky
    ]
    return replace(
        noise, flaky=sorted(flaky, key=lambda example: (example.p_value, -example.within, example.example_id))
    )


def _flaky(value: RepeatedValues, noise: MetricNoise, p_value: float) -> FlakyExample:
    rate = flip_rate(value.totals, value.counts, confidence_level=LEVEL) if noise.is_yes_no else None
    return FlakyExample(
        example_id=value.example_id,
        n=sum(value.counts),
        flip_rate=None if rate is None else rate.rate,
        flip_rate_low=None if rate is None else rate.low,
        flip_rate_high=None if rate is None else rate.high,
        within=noise.within[value.example_id],
        p_value=p_value,
        weight=noise.weight(value.example_id, 1) or 0.0,
    )


def observed_before(store: Store, experiment: ExperimentRow) -> Repeated:
    """Return the values of examples in the runs that started before an experiment's own, which never counts.

    Runs of its version count only if none of others are repeated: what only this version made flip is its own fault.
    """
    settings: dict[str, Any] = {"before": experiment.started_at, "run_group": experiment.run_group}
    found = repeated_values(store, experiment, **settings, system=_system(experiment))
    if any(value.df for value in found.values):
        return found
    return repeated_values(store, experiment, **settings)


@dataclass(frozen=True, kw_only=True)
class Quarantine:
    """The quarantine of a spec, for one experiment."""

    entries: Sequence[QuarantineSpec]
    experiment: ExperimentRow
    observed: Callable[[], Repeated]  # `observed_before` its run

    @cached_property
    def _repeated(self) -> Repeated:
        """What was observed; nothing if no entry needs it."""
        needs_none = all(entry.weigh == "not_at_all" and entry.examples for entry in self.entries)
        return Repeated(experiments=(), n_systems=0, values=()) if needs_none else self.observed()

    @cached_property
    def _noise(self) -> Mapping[str, MetricNoise]:
        return noise_by_metric(self._repeated, self.experiment.n_examples)

    @property
    def owners(self) -> Sequence[str]:
        """The experiments that rules and noise are from."""
        return self._repeated.experiments

    def _of_entry(self, entry: QuarantineSpec, metric: str) -> dict[str, float | None]:
        """Return the weights of an entry's examples in a metric; None where the noise is not known."""
        noise = self._noise.get(metric)
        if metric in MEASURES or entry.metric not in (None, metric):
            return {}
        named: Sequence[str] = entry.examples
        if entry.flip_rate_above is not None:
            flaky = noise.flaky if noise else ()
            named = [each.example_id for each in flaky if (each.flip_rate or 0.0) > entry.flip_rate_above]
        if entry.weigh == "not_at_all":
            return dict.fromkeys(named, 0.0)
        return {name: noise.weight(name, self.experiment.repetitions) if noise else None for name in named}

    def weights(self, metric: str) -> dict[str, float]:
        """Return the weight of each example in quarantine in a metric: 1 if its noise is not known.

        An entry by id comes before one by rule.
        """
        by_rule_first = sorted(self.entries, key=lambda entry: bool(entry.examples))
        return {
            name: 1.0 if weight is None else weight
            for entry in by_rule_first
            for name, weight in self._of_entry(entry, base_metric(metric)).items()
        }

    def applied(self, values: MetricValues, example_ids: Sequence[str]) -> MetricValues:
        """Return a metric with the weights of its examples in quarantine, without those that weigh nothing."""
        weights = self.weights(values.metric)
        return values.in_quarantine(np.array([weights.get(name, 1.0) for name in example_ids])) if weights else values

    def texts(self, metrics: Sequence[str], example_ids: Sequence[str]) -> Iterator[str]:
        """Yield a line for each entry: how many examples, what they weigh, until when, why, and which."""
        known = {*example_ids}
        for entry in self.entries:
            found = {metric: self._of_entry(entry, metric) for metric in metrics if base_metric(metric) == metric}
            weights = {metric: [w for name, w in of.items() if name in known] for metric, of in found.items()}
            names = list(dict.fromkeys(name for of in found.values() for name in of if name in known))
            share = f"{len(names)} of {len(example_ids)} examples ({len(names) / max(len(example_ids), 1):.0%})"
            until = f"until {entry.until}: {entry.reason}"
            listed = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
            by_rule = "" if entry.flip_rate_above is None else f" by {entry.name}"
            what = f"in quarantine{by_rule}: {share}{self._weigh_text(entry, weights)}, {until}"
            yield f"{what}{f'; examples: {listed}' if names else ''}"

    def _weigh_text(self, entry: QuarantineSpec, weights: Mapping[str, Sequence[float | None]]) -> str:
        if entry.weigh == "not_at_all":
            where = f" on {entry.metric}" if entry.metric else ""
            return f", which are shown and weigh nothing in verdicts{where}"
        parts = [
            f"{sum(1.0 if w is None else w for w in of) / len(of):.2f} in {metric}"
            for metric, of in weights.items()
            if of
        ]
        unknown = sum(weight is None for of in weights.values() for weight in of)
        text = f", which weigh {', '.join(parts)} on average in verdicts, by their noise" if parts else ""
        return text + (f" ({unknown} weigh 1, since they were never repeated)" if unknown else "")


def why_too_many(values: MetricValues, at_most: float) -> Reason | None:
    """Return why a metric gives no verdict: too many of its examples weigh less; None if they may."""
    if values.quarantine is None or not values.quarantine.size:
        return None
    share = values.n_in_quarantine / values.quarantine.size
    if share <= at_most:
        return None
    many = f"{values.n_in_quarantine} of {values.quarantine.size} examples ({share:.0%})"
    return Reason("too_many_in_quarantine", f"{many} are in quarantine, wanted at most {at_most:.0%}")


def check_quarantine(prepared: "PreparedExperiment", examples: Sequence[ExampleRow]) -> None:
    """Raise InputError for an entry that is over, and for one that names an unknown or a final example, or a metric
    that no evaluator gives; `examples` are all of the dataset.

    Final examples can be in quarantine by rule only: what a look has shown of them decides nothing.
    """
    spec, given = prepared.spec, prepared.given_metrics
    refuse_expired(spec.quarantine, now().date())
    splits = {example.example_id: example.split for example in examples} if spec.quarantine else {}
    for entry in spec.quarantine:
        known = [*(given or ()), *(composite.name for composite in spec.composites)]
        if given is not None and entry.metric is not None and entry.metric not in known:
            raise InputError(f"quarantine: metric: got {entry.metric!r}, wanted one of {', '.join(known)}")
        for name in entry.examples:
            if name not in splits:
                raise InputError(f"quarantine: got {name!r}, wanted the id of an example of the dataset")
            if splits[name] == FINAL:
                raise InputError(
                    f"quarantine: got the final example {name!r}, wanted final ones by flip_rate_above only"
                )
