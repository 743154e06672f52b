//! What commands are made of. Every job is a composition of these, never a second version of one.

mod begin;
mod cancel;
mod expire;
mod family;
mod gate;
mod hold;
mod place;
mod reserve;
mod settle;

pub(crate) use begin::begin;
pub(crate) use cancel::cancel;
pub(crate) use expire::expire;
pub(crate) use family::{
    children_of, forget_children, is_done_with, is_readable, join, prefetch_family,
};
pub(crate) use hold::{held, task};
pub(crate) use place::{QUEUE_CHECK_MS, leave, place};
pub(crate) use reserve::{Reservation, Reserved, reserve};
pub(crate) use settle::{Late, fail, settle};
