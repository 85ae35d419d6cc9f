//! What renderers show of a run and what they may offer, derived from its row facts.

use piw_protocol::view::Display;
use piw_state::query::run::RunFacts;
