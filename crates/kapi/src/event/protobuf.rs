//! The protobuf forms, with the tags of `k8s.io/api/core/v1/generated.proto` and `k8s.io/api/events/v1/generated.proto`.

use super::{CoreEvent, Event, EventSeries, EventSource, NewForm, ObjectReference};
use crate::MAX_BODY_VALUES;
use crate::protobuf::{meta, time, write_meta, write_time};
use crate::time::MicroTime;
use crate::wire::{Budget, Field, Fields, WireFault, Writer};

/// Reads the message of an event of the core group, without its envelope.
pub(super) fn read_core(raw: &[u8]) -> Result<CoreEvent, WireFault> {
    let mut event = CoreEvent::default();
    let mut budget = Budget::new(MAX_BODY_VALUES);
    let mut fields = Fields::of(raw);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => meta(field.bytes()?, &mut event.metadata, &mut budget)?,
            2 => event.involved_object = reference(field)?,
            3 => event.reason = field.string()?,
            4 => event.message = field.string()?,
            5 => event.source = source(field)?,
            6 => event.first_timestamp = time(field)?,
            7 => event.last_timestamp = time(field)?,
            8 => event.count = field.int32()?,
            9 => event.kind = field.string()?,
            10 => event.event_time = MicroTime::read(field)?,
            11 => event.series = Some(series(field)?),
            12 => event.action = field.string()?,
            13 => event.related = Some(reference(field)?),
            14 => event.reporting_component = field.string()?,
            15 => event.reporting_instance = field.string()?,
            _ => {}
        }
    }
    Ok(event)
}

/// Reads the message of an event of the newer group, without its envelope.
pub(super) fn read_new(raw: &[u8]) -> Result<Event, WireFault> {
    let mut event = NewForm::default();
    let mut budget = Budget::new(MAX_BODY_VALUES);
    let mut fields = Fields::of(raw);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => meta(field.bytes()?, &mut event.metadata, &mut budget)?,
            2 => event.event_time = MicroTime::read(field)?,
            3 => event.series = Some(series(field)?),
            4 => event.reporting_controller = field.string()?,
            5 => event.reporting_instance = field.string()?,
            6 => event.action = field.string()?,
            7 => event.reason = field.string()?,
            8 => event.regarding = reference(field)?,
            9 => event.related = Some(reference(field)?),
            10 => event.note = field.string()?,
            11 => event.kind = field.string()?,
            12 => event.deprecated_source = source(field)?,
            13 => event.deprecated_first_timestamp = time(field)?,
            14 => event.deprecated_last_timestamp = time(field)?,
            15 => event.deprecated_count = field.int32()?,
            _ => {}
        }
    }
    Ok(Event(event))
}

pub(super) fn core_message(event: &CoreEvent) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.message(1, |writer| write_meta(writer, &event.metadata));
    write_reference(&mut writer, 2, &event.involved_object);
    writer.text(3, &event.reason);
    writer.text(4, &event.message);
    write_source(&mut writer, 5, &event.source);
    write_time(&mut writer, 6, event.first_timestamp);
    write_time(&mut writer, 7, event.last_timestamp);
    writer.int(8, i64::from(event.count));
    writer.text(9, &event.kind);
    MicroTime::write(event.event_time, &mut writer, 10);
    write_series(&mut writer, 11, event.series.as_ref());
    writer.text(12, &event.action);
    if let Some(related) = &event.related {
        write_reference(&mut writer, 13, related);
    }
    writer.text(14, &event.reporting_component);
    writer.text(15, &event.reporting_instance);
    writer.into_bytes()
}

pub(super) fn new_message(event: &NewForm) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.message(1, |writer| write_meta(writer, &event.metadata));
    MicroTime::write(event.event_time, &mut writer, 2);
    write_series(&mut writer, 3, event.series.as_ref());
    writer.text(4, &event.reporting_controller);
    writer.text(5, &event.reporting_instance);
    writer.text(6, &event.action);
    writer.text(7, &event.reason);
    write_reference(&mut writer, 8, &event.regarding);
    if let Some(related) = &event.related {
        write_reference(&mut writer, 9, related);
    }
    writer.text(10, &event.note);
    writer.text(11, &event.kind);
    write_source(&mut writer, 12, &event.deprecated_source);
    write_time(&mut writer, 13, event.deprecated_first_timestamp);
    write_time(&mut writer, 14, event.deprecated_last_timestamp);
    writer.int(15, i64::from(event.deprecated_count));
    writer.into_bytes()
}

fn reference(field: Field<'_>) -> Result<ObjectReference, WireFault> {
    let mut reference = ObjectReference::default();
    let mut fields = Fields::of(field.bytes()?);
    while let Some(part) = fields.next()? {
        let place = match part.number {
            1 => &mut reference.kind,
            2 => &mut reference.namespace,
            3 => &mut reference.name,
            4 => &mut reference.uid,
            5 => &mut reference.api_version,
            6 => &mut reference.resource_version,
            7 => &mut reference.field_path,
            _ => continue,
        };
        *place = part.string()?;
    }
    Ok(reference)
}

fn source(field: Field<'_>) -> Result<EventSource, WireFault> {
    let mut source = EventSource::default();
    let mut fields = Fields::of(field.bytes()?);
    while let Some(part) = fields.next()? {
        match part.number {
            1 => source.component = part.string()?,
            2 => source.host = part.string()?,
            _ => {}
        }
    }
    Ok(source)
}

fn series(field: Field<'_>) -> Result<EventSeries, WireFault> {
    let mut series = EventSeries::default();
    let mut fields = Fields::of(field.bytes()?);
    while let Some(part) = fields.next()? {
        match part.number {
            1 => series.count = part.int32()?,
            2 => series.last_observed_time = MicroTime::read(part)?,
            _ => {}
        }
    }
    Ok(series)
}

fn write_reference(writer: &mut Writer, number: u32, reference: &ObjectReference) {
    writer.message(number, |writer| {
        writer.text(1, &reference.kind);
        writer.text(2, &reference.namespace);
        writer.text(3, &reference.name);
        writer.text(4, &reference.uid);
        writer.text(5, &reference.api_version);
        writer.text(6, &reference.resource_version);
        writer.text(7, &reference.field_path);
    });
}

fn write_source(writer: &mut Writer, number: u32, source: &EventSource) {
    writer.message(number, |writer| {
        writer.text(1, &source.component);
        writer.text(2, &source.host);
    });
}

fn write_series(writer: &mut Writer, number: u32, series: Option<&EventSeries>) {
    let Some(series) = series else {
        return;
    };
    writer.message(number, |writer| {
        writer.int(1, i64::from(series.count));
        MicroTime::write(series.last_observed_time, writer, 2);
    });
}
