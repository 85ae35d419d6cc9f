//! The children that the server starts: their channel, their requests, and the roles.
//!
//! | module | subject |
//! | --- | --- |
//! | [`fd`] | the inherited descriptor |
//! | [`channel`], [`client`], [`content`] | messages, answers and orders, large values |
//! | [`source`] | frozen sources: made, verified, compared |
//! | [`resolver`], [`runner`], [`validator`] | the roles |

pub(crate) mod channel;
pub(crate) mod client;
pub(crate) mod content;
pub(crate) mod fd;
pub(crate) mod resolver;
pub(crate) mod runner;
pub(crate) mod source;
pub(crate) mod validator;
