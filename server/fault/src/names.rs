//! Every fail point and every switch, in one place.

/// A place at which a test build can be killed or held up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// `area::name`; the area says which process reaches it.
    pub name: &'static str,
    /// What has happened and what has not when it is reached.
    pub what: &'static str,
    /// Whether only a run reaches it that asks a model in a session.
    pub asks: bool,
}

/// What a switch does to the promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwitchKind {
    /// A worse world that the promises must survive.
    Hostile,
    /// A rule is not kept: tests must notice.
    Broken,
}

/// A change of behaviour that only test builds have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch {
    /// Its name.
    pub name: &'static str,
    /// What it does to the promises.
    pub kind: SwitchKind,
    /// What it changes.
    pub what: &'static str,
}

const fn point(name: &'static str, what: &'static str) -> Point {
    Point {
        name,
        what,
        asks: false,
    }
}

/// A point on the way of a session's agent step, which only a coordinator of that session can go.
const fn asking(name: &'static str, what: &'static str) -> Point {
    Point { name, what, asks: true }
}

/// All fail points.
#[rustfmt::skip]
pub const POINTS: &[Point] = &[
    // The writer of the state database.
    point("state::before_commit", "a group of writes is complete in its transaction, not committed"),
    point("state::after_commit", "the group is committed, nobody knows it yet"),
    point("state::before_reply", "the change is published to views, callers are not answered"),
    point("state::after_reply", "every caller of the group has its answer"),
    point("state::message_stored", "a workflow message is written beside what caused it, nothing is committed"),
    point("state::sources_cancelled", "a run ended: its messages are cancelled and its turn is lost, nothing is committed"),
    asking("state::turn_ended", "a turn is ended, what follows from it is not written, nothing is committed"),
    asking("state::branch_reported", "a branch report is applied, nothing is committed"),
    point("state::session_events", "a recorded batch's events, entries and checkpoints are written, its segment's counter is not"),
    // A server's life.
    point("server::locked", "the lock is held, its record is not written"),
    point("server::before_epoch", "the database is open, its owner is still the last server"),
    point("server::after_epoch", "the database names this server, the lock's record does not"),
    point("server::before_lock_rename", "the lock's record is written beside its place"),
    point("server::lock_published", "lock and database name the same server"),
    point("server::before_reap", "orphans of the last server are known, not ended"),
    point("server::after_reap", "orphans are gone, their runs not taken back"),
    point("server::recovered", "interrupted runs are parked or claimable"),
    point("server::before_socket", "runs go on, no client can connect"),
    point("server::socket_bound", "the socket exists with its first mode"),
    point("server::after_socket", "clients can connect, the starter is not told"),
    point("server::before_goodbye", "the server has decided to end"),
    point("server::before_release", "connections are closed, the claim on the database holds"),
    // Clients.
    point("server::request_read", "a client's request is read, nothing is done for it"),
    point("server::before_answer", "a request is decided and committed, its answer is not queued"),
    point("server::after_answer", "the answer is written to the socket"),
    point("server::before_event", "a changed view is about to be written to the socket"),
    point("server::session_recorded", "a recorded batch is committed, its recorder does not know"),
    point("server::backup_made", "a backup is whole in its place, it has no receipt"),
    point("server::resolved", "a resolver has answered or ended, it is not dismissed"),
    // Submissions of sessions.
    asking("server::submission_stored", "a submission is stored, no validator looks at it"),
    asking("server::validated", "a validator has said what it found, or died; nothing is decided"),
    asking("server::submission_decided", "a submission is decided, its session does not know"),
    asking("validator::before_answer", "a submission is judged, the server does not know"),
    // Launching runners.
    point("server::claimed", "a run is claimed, no runner exists"),
    point("server::before_spawn", "a child is about to be forked"),
    point("server::after_spawn", "a child exists, nothing has recorded it"),
    point("server::before_registry_rename", "the registry of children is written beside its place"),
    point("server::spawn_registered", "the child is in the registry"),
    point("server::before_launch", "the runner's process is committed, it has no launch"),
    // Talking to runners.
    point("server::runner_message", "a runner's message is read, not decided"),
    point("server::before_runner_reply", "the message is decided and committed, the runner does not know"),
    point("server::after_runner_reply", "the runner has its reply"),
    point("server::late_message", "a message of an earlier generation is decided again"),
    point("server::group_recorded", "a held command is in the database, not in the registry"),
    point("server::before_order", "a runner is about to be told to stop"),
    point("server::after_order", "the runner was told to stop"),
    // Ending runners.
    point("server::before_end_groups", "a runner is gone, its commands may live"),
    point("server::after_end_groups", "the commands are gone, too"),
    point("server::before_record_exit", "nothing of the runner is left, its exit is not recorded"),
    point("server::after_record_exit", "the run can be claimed again"),
    // Signals.
    point("process::before_signal_group", "a process group is about to be signalled"),
    point("process::after_signal_group", "the group has the signal"),
    point("process::before_signal", "one process is about to be signalled"),
    point("process::after_signal", "the process has the signal"),
    // Resolvers and runners.
    point("resolver::before_answer", "a definition is loaded, the server does not have it"),
    point("runner::launched", "a runner has read its launch"),
    point("runner::before_ready", "the workflow is loaded and verified"),
    point("runner::commanded", "the runner is ready and knows what to do"),
    point("runner::before_first_start", "the first step of this generation is planned"),
    point("runner::after_first_start", "it is started"),
    point("runner::before_upload", "a part of a large value is about to be sent"),
    point("runner::after_upload", "the part is stored"),
    point("runner::before_reserve", "an effect is about to be reserved"),
    point("runner::after_reserve", "the effect is reserved, not applied"),
    point("runner::before_observe", "an interrupted effect is about to be read back"),
    point("runner::after_observe", "it is read back, not settled"),
    point("runner::before_apply", "an action's code is about to run"),
    point("runner::after_apply", "it has run, nothing is settled"),
    point("runner::before_settle", "an applied effect is about to be settled by itself"),
    point("runner::after_settle", "it is settled, its node has not finished"),
    point("runner::command_held", "a command's process is held, not registered"),
    point("runner::before_command_release", "the command is registered and still held"),
    point("runner::after_command_release", "the command executes"),
    point("runner::command_ended", "the command has ended, its node has not finished"),
    point("runner::before_prompt", "an agent's prompt is made, nobody knows it"),
    point("runner::after_prompt", "the prompt is recorded, the agent is not started"),
    point("runner::submitted", "an agent has submitted something, it is not judged"),
    point("runner::submission_accepted", "a submission is accepted, its node has not finished"),
    asking("runner::before_request", "the prompt of a session's step is made, its request is not stored"),
    asking("runner::after_request", "the request is stored, the runner has not left"),
    asking("runner::before_settlement", "a decided request is about to finish its attempt"),
    point("runner::before_notify", "a notification is about to be recorded"),
    point("runner::after_notify", "it is recorded, its node has not finished"),
    point("runner::before_finished", "a node's end and what follows are planned"),
    point("runner::after_finished", "they are committed"),
    point("runner::before_leave", "the generation is over, left-over processes may live"),
    point("runner::before_exit", "the runner has said goodbye"),
];

/// All switches.
pub const SWITCHES: &[Switch] = &[
    Switch {
        name: "late-messages",
        kind: SwitchKind::Hostile,
        what: "messages of earlier generations of a run arrive again, as from a process that wakes late",
    },
    Switch {
        name: "no-fence",
        kind: SwitchKind::Broken,
        what: "a claim is taken for held whatever its generation and token",
    },
    Switch {
        name: "no-reserve",
        kind: SwitchKind::Broken,
        what: "an effect may be applied without a committed reservation",
    },
    Switch {
        name: "early-answer",
        kind: SwitchKind::Broken,
        what: "callers are answered before the commit",
    },
    Switch {
        name: "no-sync",
        kind: SwitchKind::Broken,
        what: "the database runs with `synchronous=OFF`",
    },
];

/// Index of a point in [`POINTS`].
///
/// # Panics
/// When there is no such point: at compile time, in [`crate::point!`].
#[must_use]
pub const fn point_index(name: &str) -> usize {
    let mut at = 0;
    while at < POINTS.len() {
        if same(POINTS[at].name, name) {
            return at;
        }
        at += 1;
    }
    panic!("no fail point of this name: add it to piw_fault::names::POINTS")
}

/// Index of a switch in [`SWITCHES`].
///
/// # Panics
/// When there is no such switch: at compile time, in [`crate::switch!`].
#[must_use]
pub const fn switch_index(name: &str) -> usize {
    let mut at = 0;
    while at < SWITCHES.len() {
        if same(SWITCHES[at].name, name) {
            return at;
        }
        at += 1;
    }
    panic!("no switch of this name: add it to piw_fault::names::SWITCHES")
}

/// `==` of texts, which is no constant function.
const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_in_an_area() {
        for (at, point) in POINTS.iter().enumerate() {
            assert_eq!(point_index(point.name), at, "{} is listed twice", point.name);
            assert!(point.name.contains("::"), "{}", point.name);
        }
        for (at, switch) in SWITCHES.iter().enumerate() {
            assert_eq!(switch_index(switch.name), at, "{} is listed twice", switch.name);
        }
    }
}
