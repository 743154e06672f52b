//! What commands are made of. Every job is a composition of these, never a second version of one.

mod begin;
mod cancel;
mod expire;
mod family;
mod gate;
mod hold;
mod meter;
mod place;
mod reserve;
mod settle;

pub(crate) use begin::begin;
pub(crate) use cancel::cancel;
pub(crate) use expire::expire;
pub(crate) use family::{children_of, forget_children, is_done_with, join, prefetch_family};
pub(crate) use gate::{open, start, startable};
pub(crate) use hold::{held, task};
pub(crate) use meter::{Meters, meters, reopen, tenant_key};
pub(crate) use place::{
    QUEUE_CHECK_MS, are_neighbours_readable, leave, place, prefetch_neighbours,
};
pub(crate) use reserve::{Reservation, Reserved, reserve};
pub(crate) use settle::{Late, fail, settle};
