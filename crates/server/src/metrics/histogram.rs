//! A histogram of atomics: observing takes no lock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Counts values in buckets. Cheap to clone; clones count together.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    scale: &'static Scale,
    /// One for each bound, and one for what lies above them.
    buckets: Vec<AtomicU64>,
    sum: AtomicU64,
}

/// The bounds of buckets, in whole units of which so many make one of what is shown.
#[derive(Debug)]
pub(crate) struct Scale {
    bounds: &'static [u64],
    per_shown: f64,
}

impl Histogram {
    pub(crate) fn new(scale: &'static Scale) -> Self {
        let buckets = (0..=scale.bounds.len()).map(|_| AtomicU64::new(0));
        Self {
            inner: Arc::new(Inner {
                scale,
                buckets: buckets.collect(),
                sum: AtomicU64::new(0),
            }),
        }
    }

    pub(crate) fn observe(&self, value: u64) {
        let bounds = self.inner.scale.bounds;
        let place = bounds.partition_point(|bound| *bound < value);
        if let Some(bucket) = self.inner.buckets.get(place) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// For the scales of durations.
    pub(crate) fn observe_duration(&self, took: Duration) {
        self.observe(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
}

impl EncodeMetric for Histogram {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a sum beyond 2^53 units may lose its last digits"
    )]
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let Scale { bounds, per_shown } = *self.inner.scale;
        let shown = bounds.iter().map(|bound| *bound as f64 / per_shown);
        let counts = self.inner.buckets.iter();
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = shown.chain([f64::INFINITY]).zip(counts).collect();
        // From what was just read: the number of values is the last bucket, also while others go on counting.
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = self.inner.sum.load(Ordering::Relaxed) as f64 / per_shown;
        encoder.encode_histogram::<[(&str, &str); 0]>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

const MICRO: u64 = 1_000;
const MILLI: u64 = 1_000 * MICRO;
const SECOND: u64 = 1_000 * MILLI;

/// From a look-up in memory to a client's patience.
pub(crate) const REQUESTS: Scale = Scale {
    bounds: &[
        500 * MICRO,
        MILLI,
        2_500 * MICRO,
        5 * MILLI,
        10 * MILLI,
        25 * MILLI,
        50 * MILLI,
        100 * MILLI,
        250 * MILLI,
        500 * MILLI,
        SECOND,
        2_500 * MILLI,
        5 * SECOND,
        10 * SECOND,
        30 * SECOND,
    ],
    per_shown: 1e9,
};

/// From an elliptic curve in memory to a device that is far away.
pub(crate) const SIGNATURES: Scale = Scale {
    bounds: &[
        25 * MICRO,
        50 * MICRO,
        100 * MICRO,
        250 * MICRO,
        500 * MICRO,
        MILLI,
        2_500 * MICRO,
        5 * MILLI,
        10 * MILLI,
        25 * MILLI,
        100 * MILLI,
        SECOND,
    ],
    per_shown: 1e9,
};

/// Up to the largest group that the store makes.
pub(crate) const GROUPS: Scale = Scale {
    bounds: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
    per_shown: 1.0,
};

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn values_are_in_the_bucket_of_the_bound_they_do_not_exceed() {
        let histogram = Histogram::new(&GROUPS);
        let mut registry = Registry::default();
        registry.register("size", "Size", histogram.clone());
        for value in [1, 1, 2, 3, 512, 513] {
            histogram.observe(value);
        }
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "size_sum 1032.0",
            "size_count 6",
            "size_bucket{le=\"1.0\"} 2",
            "size_bucket{le=\"2.0\"} 3",
            "size_bucket{le=\"4.0\"} 4",
            "size_bucket{le=\"256.0\"} 4",
            "size_bucket{le=\"512.0\"} 5",
            "size_bucket{le=\"+Inf\"} 6",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
        }
    }

    #[test]
    fn durations_are_shown_in_seconds() {
        let histogram = Histogram::new(&REQUESTS);
        let mut registry = Registry::default();
        registry.register("took_seconds", "Took", histogram.clone());
        histogram.observe_duration(Duration::from_millis(1));
        histogram.observe_duration(Duration::from_millis(1500));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "took_seconds_sum 1.501",
            "took_seconds_bucket{le=\"0.0005\"} 0",
            "took_seconds_bucket{le=\"0.001\"} 1",
            "took_seconds_bucket{le=\"1.0\"} 1",
            "took_seconds_bucket{le=\"2.5\"} 2",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
        }
    }
}
