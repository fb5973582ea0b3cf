//! A strict reader of OpenMetrics text (version 1.0.0), as far as this program writes it.

use std::collections::{BTreeMap, BTreeSet};

/// What a scrape shows.
pub(crate) struct Exposition {
    /// Type and names of labels by family; the label of buckets is left out.
    pub(crate) families: BTreeMap<String, (String, BTreeSet<String>)>,
    samples: BTreeMap<String, f64>,
}

impl Exposition {
    /// Panics at whatever the format does not allow.
    pub(crate) fn read(text: &str) -> Self {
        let body = text.strip_suffix("# EOF\n").expect("ends with EOF");
        let mut families = BTreeMap::new();
        let mut samples = BTreeMap::new();
        let mut lines = body.lines().peekable();
        while let Some(help) = lines.next() {
            let help = help
                .strip_prefix("# HELP ")
                .expect("a family begins with HELP");
            let (family, sentence) = help.split_once(' ').unwrap();
            assert!(sentence.ends_with('.'), "{help}");
            assert!(is_name(family), "{family}");
            let kind = lines.next().unwrap();
            let kind = kind.strip_prefix(&format!("# TYPE {family} ")).unwrap();
            assert!(
                ["counter", "gauge", "histogram", "info"].contains(&kind),
                "{kind}"
            );
            let mut labels_seen = BTreeSet::new();
            let mut of_family = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
                let (name, labels, value) = sample(line);
                let suffix = name
                    .strip_prefix(family)
                    .expect("samples follow their family");
                let known: &[&str] = match kind {
                    "counter" => &["_total"],
                    "gauge" => &[""],
                    "histogram" => &["_sum", "_count", "_bucket"],
                    _ => &["_info"],
                };
                assert!(known.contains(&suffix), "{line}");
                let own = labels.iter().map(|(label, _)| label.clone());
                labels_seen.extend(own.filter(|label| label != "le"));
                let series = format!("{name}{}", shown(&labels));
                assert!(samples.insert(series, value).is_none(), "twice: {line}");
                of_family.push((suffix.to_owned(), labels, value));
            }
            if kind == "histogram" {
                check_histogram(family, &of_family);
            }
            if kind == "counter" {
                assert!(of_family.iter().all(|(_, _, value)| *value >= 0.0));
            }
            let entry = (kind.to_owned(), labels_seen);
            assert!(
                families.insert(family.to_owned(), entry).is_none(),
                "{family} twice"
            );
        }
        Self { families, samples }
    }

    /// The value of a series, labels in alphabetical order; 0 if nobody has counted it.
    pub(crate) fn value(&self, series: &str) -> f64 {
        self.samples.get(series).copied().unwrap_or(0.0)
    }

    /// The series of a family, with their values, in order.
    pub(crate) fn all(&self, prefix: &str) -> Vec<(&str, f64)> {
        let all = self
            .samples
            .iter()
            .filter(|(name, _)| name.starts_with(prefix));
        all.map(|(name, value)| (name.as_str(), *value)).collect()
    }
}

type Labels = Vec<(String, String)>;

fn sample(line: &str) -> (String, Labels, f64) {
    let end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        let mut inner = inner;
        loop {
            let (label, after) = inner.split_once("=\"").unwrap();
            assert!(is_name(label) && !label.contains(':'), "{line}");
            let (value, after) = after.split_once('"').unwrap();
            assert!(!value.contains('\\'), "nothing here needs escapes: {line}");
            labels.push((label.to_owned(), value.to_owned()));
            match after.strip_prefix(',') {
                Some(more) => inner = more,
                None => {
                    rest = after.strip_prefix('}').unwrap();
                    break;
                }
            }
        }
    }
    let distinct: BTreeSet<_> = labels.iter().map(|(label, _)| label).collect();
    assert_eq!(distinct.len(), labels.len(), "{line}");
    labels.sort();
    let value = rest.strip_prefix(' ').unwrap();
    (name.to_owned(), labels, value.parse().unwrap())
}

fn check_histogram(family: &str, samples: &[(String, Labels, f64)]) {
    let mut series: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    let mut counts = BTreeMap::new();
    let mut sums = 0;
    for (suffix, labels, value) in samples {
        let others: Labels = labels.iter().filter(|(l, _)| l != "le").cloned().collect();
        match suffix.as_str() {
            "_bucket" => {
                let le = labels.iter().find(|(label, _)| label == "le").unwrap();
                let bound = match le.1.as_str() {
                    "+Inf" => f64::INFINITY,
                    bound => bound.parse().unwrap(),
                };
                series
                    .entry(shown(&others))
                    .or_default()
                    .push((bound, *value));
            }
            "_count" => {
                counts.insert(shown(&others), *value);
            }
            _ => sums += 1,
        }
    }
    assert_eq!(
        (series.len(), sums),
        (counts.len(), counts.len()),
        "{family}"
    );
    for (labels, buckets) in series {
        assert!(
            buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1),
            "{family}{labels}"
        );
        let last = buckets.last().unwrap();
        assert_eq!(*last, (f64::INFINITY, counts[&labels]), "{family}{labels}");
    }
}

fn shown(labels: &Labels) -> String {
    let pairs: Vec<String> = labels.iter().map(|(l, v)| format!("{l}=\"{v}\"")).collect();
    match pairs.as_slice() {
        [] => String::new(),
        pairs => format!("{{{}}}", pairs.join(",")),
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}
