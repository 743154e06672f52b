//! Building blocks of commands. Each operation exists once, and commands combine them.

mod begin;
mod buffered;
mod call;
mod cancel;
mod concurrency_limit;
mod expire;
mod family;
mod lease;
mod lose;
mod mailbox;
mod message_key;
mod purge;
mod quota;
mod receive;
mod reserve;
mod resume;
mod settle;
mod spend;
mod step;
mod step_completion;
mod transition;
mod turn;
mod waitpoint;

pub(crate) use begin::begin;
pub(crate) use buffered::{
    buffer, deliver_buffered, extend_buffered, open_and_deliver, prefetch_buffered,
    prefetch_tenant_buffer, sweep_buffered, uncount_buffered,
};
pub(crate) use call::call;
pub(crate) use cancel::cancel;
pub(crate) use concurrency_limit::{
    open as open_gate, release as release_session, release_sessions_of, renew_affinity, start,
    startable, touch,
};
pub(crate) use expire::expire;
pub(crate) use family::{children_of, forget_children, is_done_with, join, prefetch_family};
pub(crate) use lease::{require_lease, require_task};
pub(crate) use lose::{lose, record_loss, unstick};
pub(crate) use mailbox::{deliver, existing, open, post_internal, prefetch, store_message};
pub(crate) use message_key::{
    EarlierMessage, hand_over_key, message_admission, prefetch_key, reserve_message,
};
pub(crate) use purge::{PURGE_PAGE, forget_execution, prefetch_purge, purge};
pub(crate) use quota::{Quotas, meters, tenant_key, wake_starved};
pub(crate) use receive::{receive, redeliver, without_in_flight};
pub(crate) use reserve::{Reservation, Reserved, reserve};
pub(crate) use resume::{has_more, met, next_turn, rest, resume, resume_if_met, take};
pub(crate) use settle::{Late, answered, fail, settle};
pub(crate) use spend::{Spending, spend};
pub(crate) use step::{ask_to_end, cancel_step, forget_message, refuse_step, set_timer};
use step_completion::complete_step;
pub(crate) use step_completion::{prefetch_step_completion, remove_activity};
pub(crate) use transition::{
    QUEUE_CHECK_MS, are_neighbours_readable, end_lease, prefetch_neighbours, tell_holder,
    transition_to,
};
pub(crate) use turn::{given_with_turn, keep_lease, lease_kept};
pub(crate) use waitpoint::{
    activate, check as check_waitpoint, make as make_waitpoint, prefetch as prefetch_waitpoints,
    signed as signed_waitpoint,
};
