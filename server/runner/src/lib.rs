//! Children that evaluate user code: the script host, the SDK, and the resolver and runner roles.

pub mod script;
pub mod sdk;
