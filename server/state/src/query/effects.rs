//! Effects as people review them.

use piw_protocol::definition::EffectKind;
use piw_protocol::effect::EffectState;
use piw_protocol::run::RunStatus;
use rusqlite::{Row, named_params};

use super::{Reader, Result, signed, unsigned, word};

/// An effect with what a person needs to judge it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectRow {
    /// The engine-made key.
    pub key: String,
    /// Its run.
    pub run_id: String,
    /// The run's workflow.
    pub workflow_name: String,
    /// The run's durable status.
    pub run_status: RunStatus,
    /// The run's execution revision.
    pub revision: u64,
    /// Qualified id of its node.
    pub node_id: String,
    /// Visit of the node.
    pub visit: u32,
    /// The author's type.
    pub effect_type: String,
    /// Kind.
    pub kind: EffectKind,
    /// State.
    pub state: EffectState,
    /// Ordinal of the newest try.
    pub attempt: u32,
    /// Milliseconds since the epoch of the first reservation.
    pub reserved_at: i64,
    /// Milliseconds since the epoch at which the newest try began.
    pub attempted_at: i64,
    /// Who or what settled the newest try.
    pub detail: Option<String>,
    /// Its node's visit has not finished, and its run has not ended.
    pub unfinished: bool,
}

/// Which states of effects are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EffectScope {
    /// Those that a person has to settle.
    #[default]
    Ambiguous,
    /// Manual ones that are being applied: an interruption now would make them ambiguous.
    Uncertain,
    /// All of them. Meant for one run or key: it reads every effect of the run.
    Every,
}

/// Which effects are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EffectFilter {
    /// `runs.id`; `None` is every run.
    pub run: Option<i64>,
    /// States.
    pub scope: EffectScope,
    /// Only effects whose keys begin so.
    pub key: Option<String>,
}

impl EffectFilter {
    /// Keeps to the partial index of unsettled effects unless every state is wanted.
    fn condition(&self) -> &'static str {
        match (self.run, self.scope) {
            (Some(_), EffectScope::Every) => "e.resource = :run",
            (None, EffectScope::Every) => ":run IS NULL",
            (Some(_), EffectScope::Ambiguous) => "e.resource = :run AND e.status = 'ambiguous'",
            (None, EffectScope::Ambiguous) => {
                "e.status IN ('pending', 'applying', 'ambiguous') AND e.status = 'ambiguous' AND :run IS NULL"
            }
            (Some(_), EffectScope::Uncertain) => "e.resource = :run AND e.status = 'applying' AND e.kind = 'manual'",
            (None, EffectScope::Uncertain) => {
                "e.status IN ('pending', 'applying', 'ambiguous') AND e.status = 'applying' AND e.kind = 'manual' \
                 AND :run IS NULL"
            }
        }
    }
}

/// A window of effects, oldest first, and how many match in all.
pub fn page(reader: &Reader, filter: &EffectFilter, start: u64, limit: u32) -> Result<(Vec<EffectRow>, u64)> {
    // Keys are made of letters, digits and hyphens, which all come before the tilde: a range of the index of keys.
    let key = match &filter.key {
        Some(_) => "e.key >= :key AND e.key < :key || '~'",
        None => ":key IS NULL",
    };
    let from = format!(
        "FROM effects e JOIN runs r ON r.id = e.resource WHERE {} AND r.deleted_at IS NULL AND {key}",
        filter.condition()
    );
    let mut statement = reader.prepare_cached(&format!("SELECT count(*) {from}"))?;
    let total = statement.query_row(named_params! {":run": filter.run, ":key": filter.key}, |row| row.get(0))?;
    let mut statement = reader.prepare_cached(&format!(
        "SELECT e.key, r.run_id, r.workflow_name, r.status, i.revision, n.node_id, e.visit, e.effect_type, e.kind, e.status,
                e.attempts, e.created_at, coalesce(t.started_at, e.created_at), t.detail, {UNFINISHED}
           FROM (SELECT e.id AS chosen {from} ORDER BY e.id LIMIT :limit OFFSET :start)
           JOIN effects e ON e.id = chosen JOIN runs r ON r.id = e.resource JOIN resources i ON i.id = r.id
           LEFT JOIN definition_nodes n ON n.definition = r.definition AND n.node = e.node
           LEFT JOIN effect_attempts t ON t.effect = e.id AND t.number = e.attempts
          ORDER BY e.id"
    ))?;
    let mut rows = statement.query(named_params! {
        ":run": filter.run, ":key": filter.key, ":limit": limit, ":start": signed(start),
    })?;
    let mut effects = Vec::new();
    while let Some(row) = rows.next()? {
        effects.push(read(row)?);
    }
    Ok((effects, unsigned("effect count", total)?))
}

/// Whether the visit that declares effect `e` of run `r` is executed again: its run has not ended, it is its node's newest
/// visit, and no attempt of it finished.
const UNFINISHED: &str = "(r.status IN ('queued', 'running', 'waiting') AND EXISTS (
  SELECT 1 FROM run_nodes x JOIN node_attempts a ON a.id = x.latest_attempt
   WHERE x.run = r.id AND x.node = e.node AND x.visits = e.visit AND a.status <> 'finished'))";

/// Whether the visit of an effect (`effects.id`) has not finished; see [`EffectRow::unfinished`].
pub fn is_unfinished(reader: &Reader, effect: i64) -> Result<bool> {
    let mut statement = reader.prepare_cached(&format!(
        "SELECT {UNFINISHED} FROM effects e JOIN runs r ON r.id = e.resource WHERE e.id = ?1"
    ))?;
    Ok(statement.query_row([effect], |row| row.get(0))?)
}

fn read(row: &Row<'_>) -> Result<EffectRow> {
    let text = |at: usize| -> Result<String> { Ok(row.get::<_, Option<String>>(at)?.unwrap_or_default()) };
    Ok(EffectRow {
        key: row.get(0)?,
        run_id: row.get(1)?,
        workflow_name: row.get(2)?,
        run_status: word("run status", &text(3)?)?,
        revision: unsigned("revision", row.get(4)?)?,
        node_id: text(5)?,
        visit: row.get::<_, Option<u32>>(6)?.unwrap_or(1),
        effect_type: row.get(7)?,
        kind: word("effect kind", &text(8)?)?,
        state: word("effect state", &text(9)?)?,
        attempt: row.get(10)?,
        reserved_at: row.get(11)?,
        attempted_at: row.get(12)?,
        detail: row.get(13)?,
        unfinished: row.get(14)?,
    })
}
