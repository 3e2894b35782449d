"""Each metric's mean with its interval, and the verdict on each difference from the baseline."""

from collections.abc import Iterator, Sequence

from evalflows.analysis.differences.experiment_pair import ExperimentPair, Tested, verdicts
from evalflows.analysis.differences.metric_pairs import MetricSample, scale_of
from evalflows.analysis.differences.metric_reader import MetricReader
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.metric import MEASURES
from evalflows.store.records import EstimateRow, ExperimentRow, VerdictRow, derived_id


def verdicts_on(reader: MetricReader, rows: Sequence[ExperimentRow], spec: ExperimentSpec) -> Iterator[VerdictRow]:
    """The verdict on each metric of every candidate of a run group.

    Metrics of evaluators and built-in measures (latency, cost, …) are two families, each adjusted on its own.
    """
    base = next(row for row in rows if row.target == (spec.baseline or rows[0].target))
    pairs = [ExperimentPair(reader=reader, spec=spec, candidate=row, baseline=base) for row in rows if row is not base]
    tested = [
        Tested(pair=pair, paired=paired, evidence=pair.evidence(paired))
        for pair in pairs
        for metric in pair.values
        if (paired := pair.paired(metric))
    ]
    for is_measure in (False, True):
        family = [one for one in tested if (one.paired.candidate.metric in MEASURES) == is_measure]
        yield from verdicts(family, spec.adjustment)


def estimate_rows(reader: MetricReader, row: ExperimentRow, spec: ExperimentSpec) -> Iterator[EstimateRow]:
    for one in reader.all_values(row, spec):
        sample = MetricSample(values=one, clusters=reader.clusters(row), scale=scale_of(one, spec))
        found = sample.mean(spec.confidence_level)
        yield EstimateRow(
            estimate_id=derived_id(row.experiment_id, one.metric, one.evaluator_version, None),
            experiment_id=row.experiment_id,
            metric=one.metric,
            evaluator_version=one.evaluator_version,
            mean=found.mean,
            ci_low=found.low,
            ci_high=found.high,
            confidence_level=found.confidence_level,
            method=found.method,
            n_examples=found.n,
            n_clusters=found.n_clusters,
            reason=found.reason,
            reason_code=found.reason_code,
        )
