//! What the sources of messages do when a turn or a branch report is about them.

use piw_protocol::interaction::StopReason;

use crate::error::StateError;
use crate::writer::Tx;

pub(super) fn turn_started(_: &mut Tx<'_>, _: i64) -> Result<(), StateError> {
    Ok(())
}

pub(super) fn turn_ended(_: &mut Tx<'_>, _: i64, _: StopReason) -> Result<(), StateError> {
    Ok(())
}

pub(super) fn missing_from_branch(_: &mut Tx<'_>, _: i64) -> Result<(), StateError> {
    Ok(())
}

pub(super) fn resume_session_time(_: &mut Tx<'_>, _: &str) -> Result<(), StateError> {
    Ok(())
}
