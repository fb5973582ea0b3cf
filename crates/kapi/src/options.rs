//! Options of writes, as they stand in the query: dry run, field manager, field validation.

use crate::field::{FieldError, FieldErrors};

/// What to do about unknown and duplicate JSON fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them silently.
    Ignore,
    /// Drop them and warn.
    #[default]
    Warn,
    /// Refuse the body.
    Strict,
}

/// Options of a create, update or patch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Do everything but store the result.
    pub dry_run: bool,
    /// Name under which the writer's fields are recorded; empty = from the User-Agent.
    pub field_manager: String,
    /// What to do about unknown and duplicate fields.
    pub field_validation: FieldValidation,
    /// Whether fields of others are taken over; `None`: nothing is said of it.
    pub force: Option<bool>,
}

impl WriteOptions {
    /// Reads the decoded query parameters; unknown ones are ignored, as clients add some.
    ///
    /// # Errors
    /// Lists every bad value; a server answers 422.
    pub fn from_query<'q>(
        query: impl IntoIterator<Item = (&'q str, &'q str)>,
    ) -> Result<Self, Vec<FieldError>> {
        let mut options = Self::default();
        let mut errors = FieldErrors::default();
        for (name, value) in query {
            match name {
                "dryRun" => match dry_run(&[value]) {
                    Ok(dry) => options.dry_run |= dry,
                    Err(error) => errors.push(error),
                },
                "fieldManager" => {
                    check_field_manager(value, name, &mut errors);
                    value.clone_into(&mut options.field_manager);
                }
                "fieldValidation" => match value {
                    "" | "Warn" => options.field_validation = FieldValidation::Warn,
                    "Ignore" => options.field_validation = FieldValidation::Ignore,
                    "Strict" => options.field_validation = FieldValidation::Strict,
                    other => errors.push(FieldError::not_supported(
                        name,
                        other,
                        &["", "Ignore", "Strict", "Warn"],
                    )),
                },
                "force" => options.force = Some(!matches!(value, "0" | "false")),
                _ => {}
            }
        }
        if errors.is_empty() {
            Ok(options)
        } else {
            Err(errors.into_vec())
        }
    }
}

/// Whether a list of `dryRun` values asks for a dry run; `All` is the only value there is.
pub(crate) fn dry_run(values: &[&str]) -> Result<bool, FieldError> {
    if values.iter().all(|value| *value == "All") {
        return Ok(!values.is_empty());
    }
    Err(FieldError::not_supported(
        "dryRun",
        serde_json::json!(values),
        &["All"],
    ))
}

pub(crate) fn check_field_manager(manager: &str, field: &str, errors: &mut FieldErrors) {
    if manager.len() > FIELD_MANAGER_MAX {
        errors.push(FieldError::too_long(field, FIELD_MANAGER_MAX));
    }
    if let Some((position, c)) = manager.char_indices().find(|(_, c)| c.is_control()) {
        let detail = format!(
            "invalid character U+{:04X} (at position {position})",
            u32::from(c)
        );
        errors.push(FieldError::invalid(field, manager, detail));
    }
}

const FIELD_MANAGER_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_kubectl_sends() {
        let query = [
            ("fieldManager", "kubectl-create"),
            ("fieldValidation", "Strict"),
            ("dryRun", "All"),
            ("x", "y"),
        ];
        let options = WriteOptions::from_query(query).unwrap();
        assert!(options.dry_run);
        assert_eq!(options.field_manager, "kubectl-create");
        assert_eq!(options.field_validation, FieldValidation::Strict);
        assert_eq!(
            WriteOptions::from_query([]).unwrap(),
            WriteOptions::default()
        );
    }

    #[test]
    fn names_every_bad_option() {
        let long = "m".repeat(129);
        let rows = [
            (
                "dryRun",
                "Some",
                "dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"",
            ),
            (
                "fieldValidation",
                "strict",
                "fieldValidation: Unsupported value: \"strict\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
            ),
            (
                "fieldManager",
                "a\u{1}",
                "fieldManager: Invalid value: \"a\\x01\": invalid character U+0001 (at position 1)",
            ),
            (
                "fieldManager",
                &long,
                "fieldManager: Too long: may not be more than 128 bytes",
            ),
        ];
        for (name, value, text) in rows {
            let errors = WriteOptions::from_query([(name, value)]).unwrap_err();
            assert_eq!(
                errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
                [text]
            );
        }
    }
}
