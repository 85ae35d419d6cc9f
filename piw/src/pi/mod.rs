//! The Pi side of agent steps: the bridge that runs beside a Pi session, and what installs it.
//!
//! ```text
//! Pi ── extension (glue, TypeScript) ── JSON lines ── piw pi bridge ── client protocol ── server
//! ```
//!
//! The extension forwards what happens in Pi and carries out instructions. It holds only what must be synchronous with
//! Pi: the ids of messages that were handed to Pi, the id of the open turn, the tool gate, and the last check before a message is
//! handed over. Everything else is here.
//!
//! | module | owns |
//! | --- | --- |
//! | [`glue`] | the messages between extension and bridge |
//! | [`coordinator`] | which message is sent when, what is reported: a state machine without I/O |
//! | [`recorder`] | batches of `session.record`, without I/O |
//! | [`widget`] | the widget and the status line as text |
//! | [`card`] | what a message of a workflow looks like in the conversation |
//! | [`tool`] | the `workflow` tool and the commands: what was asked, and what to say when it makes no sense |
//! | [`act`] | carrying out what was asked |
//! | [`bridge`] | the process: streams, the client, timers |
//! | [`install`] | putting the extension where Pi finds it |
//! | [`doctor`] | why it does not work |

pub(crate) mod act;
pub(crate) mod bridge;
pub(crate) mod card;
pub(crate) mod coordinator;
pub(crate) mod doctor;
pub(crate) mod glue;
pub(crate) mod install;
pub(crate) mod recorder;
pub(crate) mod tool;
pub(crate) mod widget;
