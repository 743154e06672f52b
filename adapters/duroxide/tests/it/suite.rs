//! Every function of the provider suite of duroxide, called as required.

use std::panic::AssertUnwindSafe;

use duroxide::provider_validation as of;
use duroxide::provider_validations::ProviderFactory as _;

use crate::test_database::{Factory, TestDatabase};

/// How many functions the suite has.
const FUNCTIONS: usize = 233;

/// For providers that never wait for work. This one does.
const OF_SHORT_POLLS: [&str; 2] =
    ["test_short_poll_returns_immediately", "test_short_poll_work_item_returns_immediately"];

/// The versions of duroxide that transitions are tested with.
const STAMPS: [&str; 2] = ["0.1.30", "0.1.31"];

/// Calls a function of the suite with the factory, with a provider, or with the factory and each of
/// the versions.
macro_rules! call {
    (factory, $function:path, $factory:ident) => {
        $function(&$factory).await
    };
    (provider, $function:path, $factory:ident) => {
        $function(&*$factory.create_provider().await).await
    };
    (stamped, $function:path, $factory:ident) => {
        for stamp in STAMPS {
            $function(&$factory, stamp).await;
        }
    };
}

/// The suite: a test for each function on a SQLite file, and one for each module on Postgres.
macro_rules! suite {
    ($($module:ident { $($function:ident $how:ident,)* })*) => {
        mod sqlite {
            use super::*;

            $(mod $module {
                use super::*;

                $(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                    async fn $function() {
                        let factory = Factory::new(TestDatabase::sqlite());
                        call!($how, of::$module::$function, factory);
                        factory.close().await;
                    }
                )*
            })*
        }

        mod postgres {
            use super::*;

            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $module() {
                    let database = TestDatabase::postgres();
                    let mut failed: Vec<&str> = Vec::new();
                    $(
                        let factory = Factory::new(database.clone());
                        let function = async { call!($how, of::$module::$function, factory) };
                        if caught(function).await.is_err() {
                            failed.push(stringify!($function));
                        }
                        factory.close().await;
                    )*
                    assert!(failed.is_empty(), "{failed:?}");
                }
            )*
        }

        const CALLED: &[&str] = &[$($(stringify!($function)),*),*];
    };
}

/// Catches a panic, so that the functions after it still run.
async fn caught(function: impl Future<Output = ()>) -> Result<(), ()> {
    let mut function = std::pin::pin!(function);
    std::future::poll_fn(|context| {
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| function.as_mut().poll(context)));
        polled.map_or(std::task::Poll::Ready(Err(())), |polled| polled.map(Ok))
    })
    .await
}

#[test]
fn every_function_of_the_suite_is_called() {
    let called: std::collections::HashSet<&str> = CALLED.iter().copied().collect();
    assert_eq!(called.len(), CALLED.len(), "each is called once");
    assert_eq!(called.len() + OF_SHORT_POLLS.len(), FUNCTIONS);
    assert!(OF_SHORT_POLLS.iter().all(|short| !called.contains(short)));
}

suite! {
    atomicity {
        test_atomicity_failure_rollback factory,
        test_multi_operation_atomic_ack factory,
        test_lock_released_only_on_successful_ack factory,
        test_concurrent_ack_prevention factory,
    }
    bulk_deletion {
        test_delete_instance_bulk_filter_combinations factory,
        test_delete_instance_bulk_safety_and_limits factory,
        test_delete_instance_bulk_completed_before_filter factory,
        test_delete_instance_bulk_cascades_to_children factory,
    }
    cancellation {
        test_fetch_returns_running_state_for_active_orchestration factory,
        test_fetch_returns_terminal_state_when_orchestration_completed factory,
        test_fetch_returns_terminal_state_when_orchestration_failed factory,
        test_fetch_returns_terminal_state_when_orchestration_continued_as_new factory,
        test_fetch_returns_missing_state_when_instance_deleted factory,
        test_renew_returns_running_when_orchestration_active factory,
        test_renew_returns_terminal_when_orchestration_completed factory,
        test_renew_returns_missing_when_instance_deleted factory,
        test_ack_work_item_none_deletes_without_enqueue factory,
        test_cancelled_activities_deleted_from_worker_queue factory,
        test_ack_work_item_fails_when_entry_deleted factory,
        test_renew_fails_when_entry_deleted factory,
        test_cancelling_nonexistent_activities_is_idempotent factory,
        test_batch_cancellation_deletes_multiple_activities factory,
        test_same_activity_in_worker_items_and_cancelled_is_noop factory,
        test_orphan_activity_after_instance_force_deletion factory,
    }
    capability_filtering {
        test_fetch_with_filter_none_returns_any_item factory,
        test_fetch_with_compatible_filter_returns_item factory,
        test_fetch_with_incompatible_filter_skips_item factory,
        test_fetch_filter_skips_incompatible_selects_compatible factory,
        test_fetch_filter_does_not_lock_skipped_instances factory,
        test_fetch_filter_null_pinned_version_always_compatible factory,
        test_fetch_filter_boundary_versions factory,
        test_pinned_version_stored_via_ack_metadata factory,
        test_pinned_version_immutable_across_ack_cycles factory,
        test_continue_as_new_execution_gets_own_pinned_version factory,
        test_filter_with_empty_supported_versions_returns_nothing factory,
        test_concurrent_filtered_fetch_no_double_lock factory,
        test_ack_stores_pinned_version_via_metadata_update factory,
        test_provider_updates_pinned_version_when_told factory,
        test_fetch_corrupted_history_filtered_vs_unfiltered factory,
        test_fetch_deserialization_error_increments_attempt_count factory,
        test_fetch_deserialization_error_eventually_reaches_poison factory,
        test_fetch_filter_applied_before_history_deserialization factory,
        test_fetch_single_range_only_uses_first_range factory,
        test_ack_appends_event_to_corrupted_history factory,
    }
    custom_status {
        test_custom_status_set factory,
        test_custom_status_clear factory,
        test_custom_status_none_preserves factory,
        test_custom_status_version_increments factory,
        test_custom_status_polling_no_change factory,
        test_custom_status_nonexistent_instance factory,
        test_custom_status_default_on_new_instance factory,
    }
    deletion {
        test_delete_terminal_instances factory,
        test_delete_running_rejected_force_succeeds factory,
        test_delete_nonexistent_instance factory,
        test_delete_cleans_queues_and_locks factory,
        test_cascade_delete_hierarchy factory,
        test_force_delete_prevents_ack_recreation factory,
        test_list_children factory,
        test_delete_get_parent_id factory,
        test_delete_get_instance_tree factory,
        test_delete_instances_atomic factory,
        test_delete_instances_atomic_force factory,
        test_delete_instances_atomic_orphan_detection factory,
        test_stale_activity_after_delete_recreate factory,
    }
    error_handling {
        test_invalid_lock_token_on_ack factory,
        test_duplicate_event_id_rejection factory,
        test_missing_instance_metadata factory,
        test_corrupted_serialization_data factory,
        test_lock_expiration_during_ack factory,
        test_read_corrupted_history_returns_error factory,
        test_read_with_execution_corrupted_history_returns_error factory,
    }
    instance_creation {
        test_instance_creation_via_metadata factory,
        test_no_instance_creation_on_enqueue factory,
        test_null_version_handling factory,
        test_sub_orchestration_instance_creation factory,
    }
    instance_locking {
        test_exclusive_instance_lock factory,
        test_lock_token_uniqueness factory,
        test_invalid_lock_token_rejection factory,
        test_concurrent_instance_fetching factory,
        test_completions_arriving_during_lock_blocked factory,
        test_cross_instance_lock_isolation factory,
        test_message_tagging_during_lock factory,
        test_ack_only_affects_locked_messages factory,
        test_multi_threaded_lock_contention factory,
        test_multi_threaded_no_duplicate_processing factory,
        test_multi_threaded_lock_expiration_recovery factory,
    }
    kv_store {
        test_kv_set_and_get factory,
        test_kv_overwrite factory,
        test_kv_clear_single factory,
        test_kv_clear_all factory,
        test_kv_get_nonexistent factory,
        test_kv_snapshot_in_fetch factory,
        test_kv_snapshot_after_clear_single factory,
        test_kv_snapshot_after_clear_all factory,
        test_kv_execution_id_tracking factory,
        test_kv_cross_execution_overwrite factory,
        test_kv_cross_execution_remove_readd factory,
        test_kv_prune_preserves_overwritten factory,
        test_kv_prune_preserves_all_keys factory,
        test_kv_instance_isolation factory,
        test_kv_delete_instance_cascades factory,
        test_kv_clear_nonexistent_key factory,
        test_kv_get_unknown_instance factory,
        test_kv_set_after_clear factory,
        test_kv_empty_value factory,
        test_kv_large_value factory,
        test_kv_special_chars_in_key factory,
        test_kv_snapshot_empty factory,
        test_kv_snapshot_cross_execution factory,
        test_kv_prune_current_execution_protected factory,
        test_kv_delete_instance_with_children factory,
        test_kv_clear_isolation factory,
        test_kv_delta_snapshot_excludes_current_execution factory,
        test_kv_delta_snapshot_includes_completed_execution factory,
        test_kv_delta_client_reads_merged factory,
        test_kv_delta_tombstone_overrides_store factory,
        test_kv_delta_clear_all_tombstones_store factory,
        test_kv_delta_merged_on_completion factory,
        test_kv_delta_merged_on_can factory,
        test_kv_delta_delete_instance_cascades factory,
        test_kv_delta_prune_untouched_key_survives factory,
    }
    lock_expiration {
        test_lock_expires_after_timeout factory,
        test_abandon_releases_lock_immediately factory,
        test_lock_renewal_on_ack factory,
        test_concurrent_lock_attempts_respect_expiration factory,
        test_worker_lock_renewal_success factory,
        test_worker_lock_renewal_invalid_token factory,
        test_worker_lock_renewal_after_expiration factory,
        test_worker_lock_renewal_extends_timeout factory,
        test_worker_lock_renewal_after_ack factory,
        test_abandon_work_item_releases_lock factory,
        test_abandon_work_item_with_delay factory,
        test_worker_ack_fails_after_lock_expiry factory,
        test_orchestration_lock_renewal_after_expiration factory,
    }
    long_polling {
        test_long_poll_waits_for_timeout provider,
        test_fetch_respects_timeout_upper_bound provider,
        test_long_poll_work_item_waits_for_timeout provider,
    }
    management {
        test_list_instances factory,
        test_list_instances_by_status factory,
        test_list_executions factory,
        test_get_instance_info factory,
        test_get_execution_info factory,
        test_get_system_metrics factory,
        test_get_queue_depths factory,
        test_get_instance_stats_nonexistent factory,
        test_get_instance_stats_history factory,
        test_get_instance_stats_kv factory,
        test_get_instance_stats_carry_forward factory,
        test_get_instance_stats_kv_delta_only factory,
        test_get_instance_stats_kv_merged factory,
    }
    multi_execution {
        test_execution_isolation factory,
        test_latest_execution_detection factory,
        test_execution_id_sequencing factory,
        test_continue_as_new_creates_new_execution factory,
        test_execution_history_persistence factory,
    }
    poison_message {
        orchestration_ignore_attempt_preserves_hidden_start factory,
        orchestration_delayed_abandon_preserves_unlocked_rows factory,
        orchestration_attempt_count_starts_at_one factory,
        orchestration_attempt_count_increments_on_refetch factory,
        worker_attempt_count_starts_at_one factory,
        worker_attempt_count_increments_on_lock_expiry factory,
        attempt_count_is_per_message factory,
        abandon_work_item_ignore_attempt_decrements factory,
        abandon_orchestration_item_ignore_attempt_decrements factory,
        ignore_attempt_never_goes_negative factory,
        max_attempt_count_across_message_batch factory,
    }
    prune {
        test_prune_options_combinations factory,
        test_prune_safety factory,
        test_prune_bulk factory,
        test_prune_bulk_includes_running_instances factory,
    }
    queue_semantics {
        test_worker_queue_fifo_ordering factory,
        test_worker_peek_lock_semantics factory,
        test_worker_ack_atomicity factory,
        test_timer_delayed_visibility factory,
        test_lost_lock_token_handling factory,
        test_worker_item_immediate_visibility factory,
        test_worker_delayed_visibility_skips_future_items factory,
        test_orphan_queue_messages_dropped factory,
    }
    race_replay {
        test_duplicate_start_preserves_pinned_handler factory,
        test_continue_as_new_unregistered_backoff factory,
        test_continue_as_new_poisoned_successor_is_own_execution factory,
        test_continue_as_new_duplicate_start factory,
        test_continue_as_new_transition_delivery stamped,
        test_queue_race_cancellation_replay factory,
        test_continue_as_new_queue_race_replay factory,
        test_queue_replay_version_stamp_roundtrip factory,
        test_positional_wait_race_replay factory,
        test_legacy_queue_race_decision_preserved factory,
    }
    sessions {
        test_non_session_items_fetchable_by_any_worker factory,
        test_session_item_claimable_when_no_session factory,
        test_session_affinity_same_worker factory,
        test_session_affinity_blocks_other_worker factory,
        test_different_sessions_different_workers factory,
        test_mixed_session_and_non_session_items factory,
        test_session_claimable_after_lock_expiry factory,
        test_none_session_skips_session_items factory,
        test_some_session_returns_all_items factory,
        test_renew_session_lock_active factory,
        test_renew_session_lock_skips_idle factory,
        test_renew_session_lock_no_sessions factory,
        test_cleanup_removes_expired_no_items factory,
        test_cleanup_keeps_sessions_with_pending_items factory,
        test_cleanup_keeps_active_sessions factory,
        test_ack_updates_session_last_activity factory,
        test_renew_work_item_updates_session_last_activity factory,
        test_session_items_processed_in_order factory,
        test_non_session_items_returned_with_session_config factory,
        test_shared_worker_id_any_caller_can_fetch_owned_session factory,
        test_concurrent_session_claim_only_one_wins factory,
        test_session_takeover_after_lock_expiry factory,
        test_cleanup_then_new_item_recreates_session factory,
        test_abandoned_session_item_retryable factory,
        test_abandoned_session_item_ignore_attempt factory,
        test_renew_session_lock_after_expiry_returns_zero factory,
        test_original_worker_reclaims_expired_session factory,
        test_activity_lock_expires_session_lock_valid_same_worker_refetches factory,
        test_session_lock_expires_new_owner_gets_redelivery factory,
        test_session_lock_expires_same_worker_reacquires factory,
        test_both_locks_expire_different_worker_claims factory,
        test_session_lock_expires_activity_lock_valid_ack_succeeds factory,
        test_session_lock_renewal_extends_past_original_timeout factory,
    }
    tag_filtering {
        test_default_only_fetches_untagged factory,
        test_tags_fetches_only_matching factory,
        test_default_and_fetches_untagged_and_matching factory,
        test_none_filter_returns_nothing factory,
        test_multi_tag_filter factory,
        test_tag_round_trip_preservation factory,
        test_any_filter_fetches_everything factory,
        test_tag_survives_abandon_and_refetch factory,
        test_multi_runtime_tag_isolation factory,
        test_tag_preserved_through_ack_orchestration_item factory,
    }
}
