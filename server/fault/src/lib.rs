//! Fail points: named places before and after every commit and every external step, at which a test build can be killed or
//! held up; and switches that break a rule on purpose, so that tests can show that they notice.
//!
//! Without the feature `failpoints` a point is nothing and a switch is the constant `false`. With it, a process looks once at
//! its environment:
//!
//! | variable | meaning |
//! | --- | --- |
//! | `FAILPOINTS` | actions of the `fail` crate, `name=action;…`; `return(kill)` ends the process by SIGKILL |
//! | `PIW_FAULT_DIR` | a directory shared by all processes of a test: which points were reached, how often, what was fired |
//! | `PIW_FAULT_PLAN` | what happens at which arrival at a point, counted over all processes; see [`plan`] |
//! | `PIW_FAULT_SWITCHES` | names of switches that are on, separated by commas |
//!
//! The names of all points and switches stand in [`names`]; an unknown name does not compile.

pub mod names;
pub mod plan;

#[cfg(feature = "failpoints")]
mod active;

pub use names::{POINTS, Point, SWITCHES, Switch, SwitchKind};

/// A fail point: `point!("area::name")`.
#[macro_export]
macro_rules! point {
    ($name:literal) => {{
        const INDEX: usize = $crate::names::point_index($name);
        $crate::reach(INDEX);
    }};
}

/// Whether a switch is on: `switch!("name")`. The constant `false` without the feature `failpoints`.
#[macro_export]
macro_rules! switch {
    ($name:literal) => {{
        const INDEX: usize = $crate::names::switch_index($name);
        $crate::is_on(INDEX)
    }};
}

/// Called by [`point!`].
#[cfg(feature = "failpoints")]
pub use active::{is_on, reach};

/// Called by [`point!`]: nothing in this build.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub const fn reach(_point: usize) {}

/// Called by [`switch!`]: nothing is broken in this build.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
#[must_use]
pub const fn is_on(_switch: usize) -> bool {
    false
}
