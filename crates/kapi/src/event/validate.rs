//! Which events may be stored, with the words of `pkg/apis/core/validation/events.go`.

use serde_json::{Value, json};

use super::{CoreEvent, Event};
use crate::field::{BadValue, FieldError, FieldErrors};
use crate::name;
use crate::validate::namespaced;

/// Checks an event as the core group takes it; empty = may be stored.
#[must_use]
pub fn core_faults(event: &CoreEvent) -> Vec<FieldError> {
    let mut errors = FieldErrors::default();
    common(event, "reportingComponent", &mut errors);
    namespaced(&event.metadata, name::path_segment_faults, &mut errors);
    errors.into_vec()
}

/// Checks an event as the newer group takes it; `old`: what is stored of it.
#[must_use]
pub fn faults(event: &Event, old: Option<&Event>) -> Vec<FieldError> {
    let core = event.to_core();
    let mut errors = FieldErrors::default();
    common(&core, "reportingController", &mut errors);
    namespaced(&core.metadata, name::dns_subdomain_faults, &mut errors);
    if let Some(series) = &core.series {
        if series.count < 2 {
            let detail = "should be at least 2";
            errors.push(FieldError::invalid("series.count", "", detail));
        }
        if series.last_observed_time.is_none() {
            errors.push(FieldError::required("series.lastObservedTime", ""));
        }
    }
    match old {
        Some(old) => unchanged(&core, &old.to_core(), &mut errors),
        None => as_new(&core, &mut errors),
    }
    errors.into_vec()
}

/// What both groups ask for.
fn common(event: &CoreEvent, controller_field: &'static str, errors: &mut FieldErrors) {
    let about = event.involved_object.namespace.as_str();
    let namespace = event.metadata.namespace.as_str();
    let is_new = event.event_time.is_some();
    let fits = match (is_new, about) {
        (false, "") => matches!(namespace, "" | DEFAULT),
        (true, "") => matches!(namespace, DEFAULT | SYSTEM),
        (false, about) => about == namespace,
        (true, _) => true,
    };
    if !fits {
        let detail = "does not match event.namespace";
        let field = "involvedObject.namespace";
        errors.push(FieldError::invalid(field, about, detail));
    }
    if !is_new {
        return;
    }
    let controller = event.reporting_component.as_str();
    if controller.is_empty() {
        errors.push(FieldError::required(controller_field, ""));
    }
    for fault in name::qualified_name_faults(controller) {
        errors.push(FieldError::invalid(controller_field, controller, fault));
    }
    let texts = [
        (
            "reportingInstance",
            "reportingInstance",
            &event.reporting_instance,
            MAX_WORD,
        ),
        ("action", "action", &event.action, MAX_WORD),
        ("reason", "reason", &event.reason, MAX_WORD),
    ];
    for (required, bounded, text, limit) in texts {
        if text.is_empty() {
            errors.push(FieldError::required(required, ""));
        }
        bound(bounded, text, limit, errors);
    }
    bound("message", &event.message, MAX_NOTE, errors);
}

fn bound(field: &str, text: &str, limit: usize, errors: &mut FieldErrors) {
    if text.len() > limit {
        let detail = format!("can have at most {limit} characters");
        errors.push(FieldError::invalid(field, "", detail));
    }
}

/// What the newer group asks of a new event.
fn as_new(event: &CoreEvent, errors: &mut FieldErrors) {
    if event.event_time.is_none() {
        errors.push(FieldError::required("eventTime", ""));
    }
    if !matches!(event.kind.as_str(), "Normal" | "Warning") {
        let detail = format!("has invalid value: {}", event.kind);
        errors.push(FieldError::invalid("type", "", detail));
    }
    for (field, is_set) in [
        ("firstTimestamp", event.first_timestamp.is_some()),
        ("lastTimestamp", event.last_timestamp.is_some()),
        ("count", event.count != 0),
        ("source", event.source != Default::default()),
    ] {
        if is_set {
            errors.push(FieldError::invalid(field, "", "needs to be unset"));
        }
    }
}

/// In the newer group nothing changes but the series and the metadata.
fn unchanged(new: &CoreEvent, old: &CoreEvent, errors: &mut FieldErrors) {
    let fields = |event: &CoreEvent| -> [(&'static str, Value); 13] {
        [
            ("involvedObject", json!(event.involved_object)),
            ("reason", json!(event.reason)),
            ("message", json!(event.message)),
            ("source", json!(event.source)),
            ("firstTimestamp", json!(event.first_timestamp)),
            ("lastTimestamp", json!(event.last_timestamp)),
            ("count", json!(event.count)),
            ("type", json!(event.kind)),
            ("eventTime", json!(event.event_time)),
            ("action", json!(event.action)),
            ("related", json!(event.related)),
            ("reportingController", json!(event.reporting_component)),
            ("reportingInstance", json!(event.reporting_instance)),
        ]
    };
    for ((field, new), (_, old)) in fields(new).into_iter().zip(fields(old)) {
        if new != old {
            let value = match new {
                Value::String(text) => BadValue::Text(text),
                other => BadValue::Json(other),
            };
            errors.push(FieldError::invalid(field, value, "field is immutable"));
        }
    }
}

const DEFAULT: &str = "default";
const SYSTEM: &str = "kube-system";
const MAX_WORD: usize = 128;
const MAX_NOTE: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::MicroTime;

    fn sample() -> CoreEvent {
        let mut event = CoreEvent::default();
        event.metadata.name = "web.1".into();
        event.metadata.namespace = "default".into();
        event.kind = "Normal".into();
        event
    }

    fn fields(errors: &[FieldError]) -> Vec<&str> {
        errors.iter().map(|error| error.field.as_str()).collect()
    }

    #[test]
    fn the_older_group_takes_what_the_newer_does_not() {
        let event = sample();
        assert_eq!(core_faults(&event), []);
        assert_eq!(
            fields(&faults(&Event::from(event.clone()), None)),
            ["eventTime"]
        );
        let mut elsewhere = event;
        elsewhere.metadata.namespace = "lab".into();
        assert_eq!(
            fields(&core_faults(&elsewhere)),
            ["involvedObject.namespace"]
        );
    }

    #[test]
    fn the_newer_group_changes_the_series_alone() {
        let mut old = sample();
        old.event_time = "2026-08-20T10:00:00.000000Z".parse::<MicroTime>().ok();
        old.reporting_component = "approver".into();
        old.reporting_instance = "approver-0".into();
        old.action = "Approve".into();
        old.reason = "Approved".into();
        let event = |core: &CoreEvent| Event::from(core.clone());
        assert_eq!(faults(&event(&old), None), []);
        let mut new = old.clone();
        new.series = Some(super::super::EventSeries {
            count: 2,
            last_observed_time: new.event_time,
        });
        assert_eq!(faults(&event(&new), Some(&event(&old))), []);
        new.reason = "Denied".into();
        assert_eq!(
            fields(&faults(&event(&new), Some(&event(&old)))),
            ["reason"]
        );
    }
}
