//! Measures the whole system against the bars of its design and prints one table.
//!
//! Figures are medians with spread; durability figures stand beside the commit rate of the same disk in the same run,
//! since only ratios survive a change of machine.

pub mod disk;
pub mod memory;
pub mod messages;
pub mod retention;
pub mod session;
pub mod startup;
pub mod table;
pub mod throughput;
pub mod viewer;
pub mod workloads;
