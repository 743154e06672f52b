//! Building blocks of commands. Each operation exists once, and commands combine them.

mod begin_attempt;
mod buffered;
mod cancel;
mod children;
mod concurrency_limit;
mod expire;
mod lease;
mod load_effect;
mod lost_lease;
mod mailbox;
mod message_key;
mod purge;
mod quota;
mod receive;
mod reserve_key;
mod resume;
mod settle;
mod spend;
mod step;
mod step_completion;
mod transition;
mod turn;
mod waitpoint;

pub(crate) use begin_attempt::begin_attempt;
pub(crate) use buffered::{
    buffer, deliver_buffered, extend_buffered, open_and_deliver, prefetch_buffered,
    prefetch_tenant_buffer, sweep_buffered, uncount_buffered,
};
pub(crate) use cancel::cancel;
pub(crate) use children::{
    children_of, count_open_child, delete_children_record, is_deletable, prefetch_parent,
};
pub(crate) use concurrency_limit::{
    mark_active, may_start, on_lease, rebalance as rebalance_limit, release_session,
    release_sessions_of, renew_affinity,
};
pub(crate) use expire::expire;
pub(crate) use lease::{require_lease, require_task};
pub(crate) use load_effect::load_effect;
pub(crate) use lost_lease::{clear_sticky_of_parent, lose_lease, record_loss};
pub(crate) use mailbox::{deliver, existing, open, prefetch, send_internal, store_message};
pub(crate) use message_key::{
    EarlierMessage, hand_over_key, message_admission, prefetch_key, reserve_message,
};
pub(crate) use purge::{PURGE_PAGE, delete_execution, prefetch_purge, purge};
pub(crate) use quota::{Quotas, load_quotas, tenant_key, wake_starved};
pub(crate) use receive::{receive, redeliver, without_in_flight};
pub(crate) use reserve_key::{KeyRequest, KeyReservation, reserve_key};
pub(crate) use resume::{
    await_messages, has_visible_messages, make_turn_ready, mark_resuming, matching_messages,
    resume, resume_if_met,
};
pub(crate) use settle::{LateSettle, earlier_settle, fail, settle};
pub(crate) use spend::{LimiterCharge, spend};
pub(crate) use step::{cancel_step, delete_message, reject_step, request_cancel, set_timer};
use step_completion::complete_step;
pub(crate) use step_completion::{prefetch_step_completion, remove_activity};
pub(crate) use transition::{
    ROUTE_CHECK_MS, are_related_records_readable, end_lease, notify_holder,
    prefetch_related_records, transition_to,
};
pub(crate) use turn::{eager_lease, keep_lease, lease_kept};
pub(crate) use waitpoint::{
    activate, check as check_waitpoint, create_waitpoint, prefetch as prefetch_waitpoints,
    signed as signed_waitpoint,
};
