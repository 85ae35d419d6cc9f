//! Executing one generation of a run: decide with the engine, run a node, commit, go on.
//!
//! The engine says what follows, the script host runs callbacks, the server commits. A finish and the start that follows are
//! one message, so between two nodes there is exactly one wait for the server.
//!
//! | module | subject |
//! | --- | --- |
//! | [`execution`] | the loop: what was committed, what comes next, when to leave |
//! | [`planning`] | proposals: mapped inputs, validated exits, budgets, details |
//! | [`node`] | one attempt: dispatch by kind, outcomes, errors |
//! | [`action`], [`shell`], [`passive`] | the kinds with something to do beyond a callback |
//! | [`agent`] | steps that a model does |
//! | [`effect`] | reserve, read back, adopt, settle |
//! | [`publish`] | updates |
//! | [`command`], [`batch`] | processes |

pub(crate) mod action;
pub(crate) mod agent;
pub(crate) mod batch;
pub(crate) mod command;
pub(crate) mod effect;
pub(crate) mod execution;
pub(crate) mod node;
pub(crate) mod passive;
pub(crate) mod planning;
pub(crate) mod publish;
pub(crate) mod receipt;
pub(crate) mod shell;
