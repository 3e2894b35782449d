"""Each metric's mean with its interval, and the verdict on each difference from the baseline."""

from collections.abc import Iterator, Sequence

from evalflows.analysis.differences.experiment_pair import ExperimentPair, verdicts_of
from evalflows.analysis.differences.matching import sample_at
from evalflows.analysis.differences.metric_pairs import MetricSample
from evalflows.analysis.differences.metric_reader import MetricReader
from evalflows.analysis.differences.scales import scale_of
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.records import EstimateRow, ExperimentRow, VerdictRow, derived_id


def verdicts_on(reader: MetricReader, rows: Sequence[ExperimentRow], spec: ExperimentSpec) -> Iterator[VerdictRow]:
    """Yield the verdict on each metric of every candidate of a run group."""
    base = next(row for row in rows if row.target == (spec.baseline or rows[0].target))
    pairs = [ExperimentPair(reader=reader, spec=spec, candidate=row, baseline=base) for row in rows if row is not base]
    return verdicts_of(pairs, spec.adjustment)


def estimate_rows(
    reader: MetricReader, row: ExperimentRow, spec: ExperimentSpec, where: str | None = None
) -> Iterator[EstimateRow]:
    """Yield the mean of each metric of an experiment, with its interval; `where`: as in `ExperimentPair`."""
    for metric in reader.all_values(row, spec):
        sample = MetricSample(values=metric, clusters=reader.clusters(row), scale=scale_of(metric, spec))
        if where is not None:
            sample = sample_at(sample, reader.places_where(row.snapshot_id, where))
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
