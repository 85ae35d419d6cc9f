//! A server's life from its lock to its exit: what happens in which order, and never in another.
//!
//! ```text
//! directories, gate, lock    one server here; nothing was touched before
//! log, database, epoch       lock and database name the same server
//! reap, recover              no process of an earlier server acts any more; interrupted work is parked or claimable
//! publisher, scheduler       runs go on
//! socket, ready handshake    clients are served
//! …                          crate::serve; a claim that ran out begins again at the epoch
//! socket, connections        clients are told
//! runners, epoch, lock       the next server need not wait
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use piw_process::{Liveness, ProcessIdentity, marker};
use piw_protocol::envelope::PACKAGE_VERSION;
use piw_state::{ClaimLost, ServerIdentity, State, StateError, StateOptions, TakeEpochError};
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use crate::admissions::Admissions;
use crate::coordinator::Coordinators;
use crate::deadlines;
use crate::error::ServerError;
use crate::inflight::InFlight;
use crate::lock::{self, Gate, LOCK_SCHEMA, LockError, LockRecord, ServerLock};
use crate::log;
use crate::maintenance::{self, Maintenance};
use crate::options::ServerOptions;
use crate::paths::Places;
use crate::publish::Publisher;
use crate::scheduler;
use crate::scratch::Scratch;
use crate::serve::{self, Ended, Serving};
use crate::server::{Connections, Server};
use crate::socket::Socket;
use crate::start::{Handshake, report};
use crate::supervise::live::LiveRunners;
use crate::supervise::registry::{self, Registry};
use crate::supervise::resolve::Resolvers;
use crate::supervise::spawn::{Marks, Spawner};
use crate::supervise::validate::Validators;
use crate::supervise::{OVERRUN, Supervisor};
use crate::update_rates::UpdateRates;

/// How often claims are renewed without a write (decision 2).
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// How soon it is tried again when the disk did not take it.
const RENEW_AGAIN: Duration = Duration::from_secs(1);
/// How long an orphan of an earlier server may take to leave after SIGTERM.
const REAP_GRACE: Duration = Duration::from_secs(2);

/// Runs a server until it is stopped, has been idle for long enough, or loses its epoch. Blocks.
///
/// # Errors
/// When it cannot start; a detached server has told its starter before this returns. Or when it lost its database.
pub fn run(options: &ServerOptions) -> Result<(), ServerError> {
    let detached = options.detached;
    let result = start(options);
    if let (true, Err(error)) = (detached, &result) {
        report(&match error {
            ServerError::Lock(LockError::Held { .. }) => Handshake::AlreadyRunning,
            _ => Handshake::Failed {
                class: error.class().to_owned(),
                message: error.to_string(),
            },
        });
    }
    result
}

fn start(options: &ServerOptions) -> Result<(), ServerError> {
    if options.detached {
        // Fails only for a group leader, which then already is on its own.
        let _ = nix::unistd::setsid();
    }
    piw_process::memory::give_back();
    options.places.prepare()?;
    let gate = Gate::enter(&options.places)?;
    let lock = match ServerLock::acquire(&options.places, &gate) {
        Err(held @ LockError::Held { .. }) if !holder_lapsed(&options.places) => return Err(held.into()),
        Err(LockError::Held { .. }) => ServerLock::take_over(&options.places, &gate)?,
        acquired => acquired?,
    };
    piw_fault::point!("server::locked");
    let log_path = options.places.log();
    log::install(&log_path).map_err(|source| ServerError::Log { path: log_path, source })?;
    if options.signals {
        // Whatever a dead runner leaves behind becomes a child of this process and can be found.
        piw_process::tree::become_subreaper().map_err(ServerError::Runtime)?;
    }
    if lock.took_over() {
        tracing::warn!("took over from a server that holds its lock but lost its claim");
    }
    let state = State::open(StateOptions::new(&options.places.state_dir))?;
    if let Some(lease) = options.lease {
        state.set_lease(lease);
    }
    // One thread: messages of runners and clients are short, and SQLite, fork and views have threads of their own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ServerError::Runtime)?;
    let result = runtime.block_on(reign(options, &lock, gate, &state));
    // A client that does not read may still hold its writer.
    runtime.shutdown_timeout(Duration::from_millis(100));
    // Ends a backup under way, which removes its unfinished file.
    state.close();
    drop(lock);
    result
}

/// Serves under one epoch after the other: whoever still holds the lock when its claim has run out (the disk took no renewal, or
/// the process was stopped) takes the next epoch, as a new server would, and goes on. Unless another server took over meanwhile.
async fn reign(options: &ServerOptions, lock: &ServerLock, gate: Gate, state: &State) -> Result<(), ServerError> {
    let mut first = true;
    let mut gate = Some(gate);
    loop {
        let entered = match gate.take() {
            Some(gate) => gate,
            None => Gate::enter(&options.places)?,
        };
        if !lock.place().is_ours() {
            return Err(StateError::Fenced(ClaimLost::GenerationChanged).into());
        }
        let ended = live(options, lock, entered, state.clone(), &mut first).await;
        match ended {
            Err(ServerError::State(StateError::Fenced(ClaimLost::Expired))) => {
                tracing::warn!("the claim on the database ran out; starting over under a new epoch");
            }
            // The disk failed again before it could start over.
            Err(ServerError::State(error)) if error.is_of_the_disk() && !first => {
                tracing::warn!(%error, "a new epoch cannot be taken yet");
                tokio::time::sleep(RENEW_AGAIN).await;
            }
            ended => return ended,
        }
    }
}

async fn live(
    options: &ServerOptions,
    lock: &ServerLock,
    gate: Gate,
    state: State,
    first: &mut bool,
) -> Result<(), ServerError> {
    let own = ProcessIdentity::own().map_err(ServerError::Runtime)?;
    piw_fault::point!("server::before_epoch");
    let epoch = take_epoch(&state, &own).await?;
    piw_fault::point!("server::after_epoch");
    lock.publish(&LockRecord {
        schema: LOCK_SCHEMA.to_owned(),
        pid: own.pid,
        start_identity: own.start,
        boot_id: state.clock().boot_id(),
        epoch,
        package_version: PACKAGE_VERSION.to_owned(),
        socket: options.places.socket.clone(),
        started_at: piw_state::query::rfc3339(state.clock().wall_ms()),
    })?;
    piw_fault::point!("server::lock_published");
    // Whoever starts now finds a server, in the lock and in the database.
    drop(gate);
    recover(options, &state).await?;
    let (server, supervisor, requests) = assemble(options, state.clone(), epoch, lock)?;
    let (lost, fenced) = mpsc::channel(1);
    let renewing = tokio::spawn(renew(
        state.clone(),
        Arc::clone(&server.live),
        renew_every(options.lease),
        lost,
    ));
    let scheduling = tokio::spawn(scheduler::schedule(
        state.clone(),
        supervisor,
        server.admissions.clone(),
        options.max_runners as usize,
    ));
    let timing = tokio::spawn(deadlines::keep(state.clone()));
    server.resume_validations().await?;
    piw_fault::point!("server::before_socket");
    let sweeping = tokio::spawn(maintenance::keep_sweeping(Arc::clone(&server)));
    let socket = Socket::open(&options.places, lock)?;
    piw_fault::point!("server::after_socket");
    tracing::info!(epoch, version = PACKAGE_VERSION, pid = own.pid, "ready");
    if std::mem::take(first) && options.detached {
        report(&Handshake::Ready);
    }
    let serving = Serving {
        server: Arc::clone(&server),
        requests,
        fenced,
        idle_exit: options.idle_exit,
        signals: options.signals,
    };
    let ended = serving.run(&socket).await?;
    tracing::info!(?ended, "ending");
    piw_fault::point!("server::before_goodbye");
    serve::say_goodbye(&server, socket).await;
    piw_fault::point!("server::before_release");
    sweeping.abort();
    timing.abort();
    scheduling.abort();
    renewing.abort();
    match ended {
        // Whoever was asked to stop ends, whatever the disk says: the next server finds this process gone.
        Ended::Stopped => {
            if let Err(error) = state.release_server().await {
                tracing::warn!(%error, "stopped, but the database could not be told");
            }
            Ok(())
        }
        Ended::Idle => Ok(state.release_server().await?),
        Ended::Fenced(error) => Err(error.into()),
    }
}

/// Whether the process that holds the lock answers nobody and has lost its claim on the database. Its record and the
/// database must name the same process: a server on its way up or down is none that lapsed.
fn holder_lapsed(places: &Places) -> bool {
    let Some(record) = lock::read_record(places).filter(|_| !crate::start::accepts(places)) else {
        return false;
    };
    let recorded = State::open(StateOptions::new(&places.state_dir))
        .ok()
        .and_then(|state| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .ok()?;
            let recorded = runtime.block_on(state.recorded_server());
            state.close();
            recorded.ok().flatten()
        });
    recorded.is_some_and(|server| {
        let same = server.identity.pid == record.pid && server.identity.start_identity == record.start_identity;
        same && server.epoch == record.epoch && !server.live
    })
}

/// A claim is renewed three times in its length (decision 2).
fn renew_every(lease: Option<Duration>) -> Duration {
    lease.map_or(RENEW_EVERY, |lease| lease / 3)
}

/// Takes the database over. A recorded owner whose process is provably gone does not hold it any longer.
async fn take_epoch(state: &State, own: &ProcessIdentity) -> Result<u64, ServerError> {
    let gone = state.recorded_server().await?.filter(|recorded| {
        let process = ProcessIdentity {
            pid: recorded.identity.pid,
            start: recorded.identity.start_identity.clone(),
        };
        !matches!(process.liveness(), Ok(Liveness::Running) | Err(_))
    });
    let identity = ServerIdentity {
        server_id: Uuid::new_v4().to_string(),
        pid: own.pid,
        start_identity: own.start.clone(),
        package_version: PACKAGE_VERSION.to_owned(),
    };
    match state
        .take_server_epoch(identity, gone.map(|recorded| recorded.identity.server_id))
        .await
    {
        Ok(epoch) => Ok(epoch),
        Err(TakeEpochError::Held(recorded)) => Err(ServerError::Owned {
            pid: recorded.identity.pid,
        }),
        Err(TakeEpochError::State(error)) => Err(error.into()),
    }
}

/// Ends what an earlier server left running, then lets the database say what becomes of its work. Processes are recorded twice:
/// in the children file and, those of runs, in the database.
async fn recover(options: &ServerOptions, state: &State) -> Result<(), ServerError> {
    let mut left = registry::left_behind(&options.places.children());
    left.extend(
        state
            .recorded_processes()
            .await?
            .into_iter()
            .map(|recorded| ProcessIdentity {
                pid: recorded.pid,
                start: recorded.start_identity,
            }),
    );
    piw_fault::point!("server::before_reap");
    let reaped = registry::reap(left, REAP_GRACE).await;
    // Daemons that left their group and lost their parent are in no record; their environment still says whose they are.
    let prefix = Marks::of_any_server(&options.places);
    let daemons = marker::end(&prefix, REAP_GRACE).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot look for daemons of the last server");
        0
    });
    piw_fault::point!("server::after_reap");
    Scratch::clear_all(&options.places);
    let recovered = state.recover().await?;
    let presented = state.present_ended_runs().await?;
    piw_fault::point!("server::recovered");
    tracing::info!(
        reaped,
        daemons,
        claimable = recovered.claimable,
        parked = recovered.parked,
        presented,
        "recovered"
    );
    Ok(())
}

type Assembled = (Arc<Server>, Supervisor, mpsc::Receiver<crate::server::StopRequest>);

fn assemble(options: &ServerOptions, state: State, epoch: u64, lock: &ServerLock) -> Result<Assembled, ServerError> {
    let registry = Arc::new(Registry::new(options.places.children(), Some(lock.place())));
    let spawner = Spawner::start(
        options.internal_exe.clone(),
        options.places.clone(),
        Arc::clone(&registry),
        epoch,
    )
    .map_err(ServerError::Runtime)?;
    let live = Arc::new(LiveRunners::default());
    let output = options.places.output();
    let resolvers = Resolvers::new(spawner.clone(), Arc::clone(&registry), output.clone());
    let validators = Validators::new(
        state.clone(),
        spawner.clone(),
        Arc::clone(&registry),
        output.clone(),
        options.max_runners as usize,
    );
    let supervisor = Supervisor {
        state: state.clone(),
        spawner,
        registry,
        live: Arc::clone(&live),
        output,
        owns_process: options.signals,
        overrun: options.overrun.unwrap_or(OVERRUN),
    };
    let (stop, requests) = mpsc::channel(16);
    let coordinators = Coordinators::new(epoch);
    let publisher = Publisher::start(state.clone(), &epoch.to_string(), coordinators.clone());
    let server = Arc::new(Server {
        state,
        places: options.places.clone(),
        epoch,
        started: Instant::now(),
        max_runners: options.max_runners,
        live,
        admissions: Admissions::new(),
        resolvers,
        validators,
        update_rates: UpdateRates::default(),
        publisher,
        coordinators,
        in_flight: InFlight::default(),
        maintenance: Maintenance::default(),
        workflows: options.workflows,
        stop,
        connections: Connections::default(),
        closing: watch::Sender::new(false),
    });
    Ok((server, supervisor, requests))
}

/// Renews the server's claim and those of its runners; correctness never depends on it.
async fn renew(state: State, live: Arc<LiveRunners>, every: Duration, lost: mpsc::Sender<StateError>) {
    let mut tick = tokio::time::interval(every);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let renewed = match state.renew_server().await {
            Ok(()) => state.renew_claims(live.claims()).await,
            Err(error) => Err(error),
        };
        match renewed {
            Ok(renewed) => live.end_lost(&renewed),
            Err(error @ (StateError::Fenced(_) | StateError::Closed)) => {
                // The main loop ends on the first.
                let _ = lost.send(error).await;
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "claims cannot be renewed");
                tick.reset_after(RENEW_AGAIN);
            }
        }
    }
}
