"""Each metric's mean with its interval, and the verdict on each difference from the baseline."""

from collections.abc import Iterator, Sequence

from evalflows.analysis.differences.experiment_pair import ExperimentPair, TestedMetric, verdicts
from evalflows.analysis.differences.metric_pairs import MetricSample
from evalflows.analysis.differences.metric_reader import MetricReader
from evalflows.analysis.differences.scales import scale_of
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.metric_names import MEASURES
from evalflows.store.records import EstimateRow, ExperimentRow, VerdictRow, derived_id


def verdicts_on(reader: MetricReader, rows: Sequence[ExperimentRow], spec: ExperimentSpec) -> Iterator[VerdictRow]:
    """Yield the verdict on each metric of every candidate of a run group.

    Metrics of evaluators and built-in measures (latency, cost, …) are two families, adjusted separately.
    """
    base = next(row for row in rows if row.target == (spec.baseline or rows[0].target))
    pairs = [ExperimentPair(reader=reader, spec=spec, candidate=row, baseline=base) for row in rows if row is not base]
    tested = [
        TestedMetric(pair=pair, paired=paired, test=pair.difference_test(paired))
        for pair in pairs
        for metric in pair.values
        if (paired := pair.paired(metric))
    ]
    for is_measure in (False, True):
        family = [each for each in tested if (each.paired.candidate.metric in MEASURES) == is_measure]
        yield from verdicts(family, spec.adjustment)


def estimate_rows(reader: MetricReader, row: ExperimentRow, spec: ExperimentSpec) -> Iterator[EstimateRow]:
    """Yield the mean of each metric of an experiment, with its interval."""
    for metric in reader.all_values(row, spec):
        sample = MetricSample(values=metric, clusters=reader.clusters(row), scale=scale_of(metric, spec))
        estimate = sample.mean(spec.confidence_level)
        yield EstimateRow(
            estimate_id=derived_id(row.experiment_id, metric.metric, metric.evaluator_version, None),
            experiment_id=row.experiment_id,
            metric=metric.metric,
            evaluator_version=metric.evaluator_version,
            mean=estimate.mean,
            standard_error=estimate.standard_error,
            ci_low=estimate.low,
            ci_high=estimate.high,
            confidence_level=estimate.confidence_level,
            method=estimate.method,
            n_examples=estimate.n,
            n_clusters=estimate.n_clusters,
            reason=estimate.reason,
            reason_code=estimate.reason_code,
        )
