//! What every store has to do, as tests that know only the [`Store`] trait.
//!
//! [`store_suite!`](crate::store_suite) makes one named test of each behaviour. An implementation says where its stores
//! live by a [`Ground`] and passes unchanged:
//!
//! ```text
//! mod sqlite_suite {
//!     countersign_store_suite::store_suite!(super::TemporaryFile::new());
//! }
//! ```
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

pub mod audit;
pub mod bootstrap;
pub mod decisions;
pub mod intents;
pub mod inventory;
pub mod ledger;
pub mod objects;
pub mod requests;
pub mod retirement;
pub mod revisions;
pub mod states;
pub mod takeover;
pub mod together;
pub mod token_pages;
pub mod token_races;
pub mod tokens;
pub mod upkeep;

mod sample;

use std::sync::Arc;

use countersign_authority::Store;
use futures_util::future::BoxFuture;

pub use sample::{Enrolment, Sample};

/// Changes the file of a closed SQLite store behind its back, as an intruder would; answers how many rows the last
/// statement hit.
pub fn tamper(database: &std::path::Path, sql: &str) -> u64 {
    let connection = rusqlite::Connection::open(database).unwrap();
    connection.execute_batch(sql).unwrap();
    connection.changes()
}

/// Where a store under test lives. A new ground is empty.
pub trait Ground: Send + Sync {
    /// Opens the store on this ground, with everything that was committed to the one before it, which the
    /// caller has dropped.
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>>;
}

/// Makes a test of each behaviour; the argument is an expression that gives a new [`Ground`], in names of the module
/// around it.
#[macro_export]
macro_rules! store_suite {
    ($ground:expr) => {
        $crate::store_suite! { @in requests, $ground,
            a_request_comes_back_field_by_field,
            an_identity_is_stored_once,
            a_taken_name_refuses_another_request,
            a_released_name_can_be_taken_again,
            a_released_name_cannot_be_reoccupied_once_taken,
            an_update_changes_what_it_names_and_nothing_else,
            a_denial_by_a_person_stands_against_its_name_and_key,
            a_request_that_changed_since_it_was_read_is_a_conflict,
            writes_to_a_request_that_is_not_there_are_refused,
            a_deleted_request_is_gone_and_its_certificate_stays,
            pages_of_requests_are_ordered_and_complete,
            filters_show_what_they_name,
        }
        $crate::store_suite! { @in ledger, $ground,
            an_intent_becomes_a_certificate_field_by_field,
            the_newest_certificate_is_checked_with_open_intents,
            certificates_of_a_name_are_counted_without_intents,
            a_record_needs_an_open_intent_of_its_owner,
            a_voided_serial_stays_burned,
            a_serial_is_used_once_per_issuer,
            the_first_revocation_stands,
            only_what_is_in_the_ledger_can_be_revoked,
            revocations_are_listed_until_the_certificate_ends,
            the_number_of_the_crl_guards_its_publication,
            certificates_of_a_name_are_listed_newest_first,
            pages_of_newest_certificates_are_ordered_and_complete,
            open_intents_are_listed_oldest_first,
        }
        $crate::store_suite! { @in retirement, $ground,
            a_retired_name_is_free_again,
            retired_certificates_stay_in_the_ledger,
            an_open_intent_outlives_a_retirement,
            a_retirement_without_certificates_changes_nothing,
            an_unrevoked_certificate_is_checked_by_serial,
        }
        $crate::store_suite! { @in takeover, $ground,
            an_imported_certificate_comes_back_field_by_field,
            an_imported_certificate_is_revoked_and_retired_like_any_other,
            an_imported_serial_must_be_free,
            the_ledger_is_read_in_order_and_in_pages,
            counted_serials_move_forward,
            the_highest_serial_that_can_be_counted_on_from,
            an_unlisted_revocation_stays,
            an_unlisted_revocation_is_listed_again_by_the_next,
            crls_are_kept_by_scope,
            an_ancestors_crl_is_replaced_by_a_higher_number_alone,
            an_ancestors_crl_without_a_number_gives_way,
        }
        $crate::store_suite! { @in upkeep, $ground,
            old_requests_are_found_by_door_state_and_age,
            the_time_of_arrival_decides_what_is_old,
            pending_requests_are_counted_by_address,
            what_waits_and_what_was_turned_away_is_bounded_in_bytes,
            repeated_denials_are_counted_until_they_are_told,
            figures_count_what_waits_and_what_ends_soon,
        }
        $crate::store_suite! { @in inventory, $ground,
            a_machine_comes_back_field_by_field,
            a_machine_written_again_keeps_its_age_and_its_enrolment,
            names_of_the_inventory_are_kept_in_one_form,
            the_first_enrolment_of_a_machine_stands,
            pages_of_machines_are_ordered_and_complete,
            what_is_known_of_a_machine_is_checked,
            one_of_many_enrols_a_machine_that_enrols_once,
            a_window_comes_back_field_by_field,
            a_window_is_open_within_its_time_and_its_count,
            one_of_many_takes_the_last_issuance,
            closed_windows_are_found_by_their_end,
        }
        $crate::store_suite! { @in decisions, $ground,
            rejections_come_newest_first_and_by_what_is_asked_for,
            requests_are_found_by_code_and_time,
            trimming_leaves_the_newest_and_what_people_denied,
            thefts_of_tokens_are_not_trimmed_before_their_time,
            what_waits_because_of_a_token_is_among_the_rejections,
            what_is_worth_asking_again_is_found_in_order,
            evidence_comes_back_and_what_is_absent_stays_absent,
            a_generation_is_given_once,
            what_a_decider_allowed_ends,
        }
        $crate::store_suite! { @in tokens, $ground,
            a_token_comes_back_field_by_field,
            an_id_is_stored_once,
            an_order_is_carried_out_once,
            a_token_is_usable_within_its_time_and_its_uses,
            a_use_comes_back_field_by_field,
            one_name_and_key_use_a_token_once,
            the_certificate_of_a_use_is_noted,
            a_use_is_given_back_while_it_is_reserved,
            the_first_end_of_a_token_stands,
            misuses_are_counted,
            a_token_that_changed_since_it_was_read_is_a_conflict,
            a_forgotten_token_is_gone_with_its_uses,
        }
        $crate::store_suite! { @in token_races, $ground,
            as_many_of_many_keys_as_a_token_is_good_for_use_it,
            one_of_many_tries_with_one_key_uses_a_token,
            one_of_many_tokens_takes_the_place_of_another,
            a_token_is_not_used_once_it_is_taken_back,
        }
        $crate::store_suite! { @in token_pages, $ground,
            every_status_is_shown_and_found,
            pages_of_tokens_come_newest_first_and_by_what_is_asked_for,
            a_page_goes_on_after_a_token_whose_status_changed,
            usable_tokens_are_counted_up_to_a_bound,
            usable_tokens_of_a_name_are_checked,
            tokens_are_over_after_their_last_retry,
        }
        $crate::store_suite! { @in intents, $ground,
            a_request_that_its_intent_holds_is_found_and_occupies_its_name,
            a_certificate_is_recorded_with_the_request_that_its_intent_holds,
            what_waits_for_a_key_is_stored_without_its_certificate,
            a_burned_serial_leaves_the_request_as_it_stood,
            an_intent_holds_no_request_that_its_door_retains,
        }
        $crate::store_suite! { @in revisions, $ground,
            audit_entries_come_in_commit_order_and_whole,
            revisions_wake_their_receivers,
            reopening_keeps_everything,
            revisions_are_not_given_out_twice,
        }
        $crate::store_suite! { @in objects, $ground,
            an_object_comes_back_field_by_field,
            an_object_keeps_its_identity_and_age,
            an_object_that_changed_since_it_was_read_is_a_conflict,
            one_of_many_makes_an_object,
        }
        $crate::store_suite! { @in states, $ground,
            every_state_of_a_retained_request_is_on_record,
            what_no_door_shows_has_no_history,
            a_released_name_is_a_deletion,
            requests_and_objects_are_one_history,
            the_history_goes_on_from_a_listing,
            trimming_moves_the_horizon,
            trimming_goes_in_parts,
            the_history_outlives_a_start,
            a_failed_change_leaves_no_state,
        }
        $crate::store_suite! { @in bootstrap, $ground,
            a_bootstrap_token_comes_back_field_by_field,
            pages_of_bootstrap_tokens_come_newest_first,
            a_bootstrap_token_is_taken_back_once_and_forgotten,
        }
        $crate::store_suite! { @in audit, $ground,
            pages_of_the_audit_log_are_complete_in_either_order,
            filtered_pages_look_at_a_bounded_part,
            a_seal_follows_the_newest_and_comes_back_field_by_field,
        }
        $crate::store_suite! { @in together, $ground,
            a_failed_precondition_leaves_nothing,
            a_failed_write_leaves_nothing,
            one_of_many_conflicting_changes_wins,
            one_of_many_intents_for_a_name_wins,
            a_conflict_fails_alone,
            a_commit_is_visible_when_it_is_acknowledged,
            a_reader_sees_no_gaps_while_writers_run,
            a_listing_shows_one_moment,
            a_name_is_looked_up_at_one_moment,
        }
    };
    (@in $area:ident, $ground:expr, $($behaviour:ident,)+) => {
        mod $area {
            use super::*;
            $(
                #[::tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $behaviour() {
                    $crate::$area::$behaviour(&$ground).await;
                }
            )+
        }
    };
}
