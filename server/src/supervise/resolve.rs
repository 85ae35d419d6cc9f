//! Resolving a definition in a child: one request, one answer, and the child is gone.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use piw_process::group;
use piw_protocol::canonical;
use piw_protocol::child::{ResolveRequest, ResolveResponse, ResolvedDefinition};
use piw_protocol::run::ErrorInfo;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use super::capture;
use super::channel::ChannelError;
use super::registry::Registry;
use super::spawn::{Role, Spawned, Spawner};
use crate::scratch::Scratch;

/// Longest life of a resolver: its own limits end user code earlier, this ends what they cannot.
const DEADLINE: Duration = Duration::from_secs(60);
/// Resolvers at once; further ones wait.
const AT_ONCE: usize = 4;
/// How long a resolver may take to leave after its answer, and after SIGTERM.
const GRACE: Duration = Duration::from_millis(500);

/// Why a definition was not resolved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveError {
    /// The workflow or its input is at fault.
    #[error("{}", .0.message)]
    Refused(ErrorInfo),
    /// The child did not answer in time.
    #[error("loading the workflow took longer than {} s and was stopped", DEADLINE.as_secs())]
    TimedOut,
    /// The child died or answered nonsense: user code killed it, or this program is broken.
    #[error("the process that loaded the workflow ended without an answer ({0})")]
    Crashed(String),
    /// No child could be started.
    #[error("cannot start a process to load the workflow: {0}")]
    Spawn(io::Error),
}

/// A resolved definition with the files its input may be in.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) definition: ResolvedDefinition,
    pub(crate) scratch: Scratch,
}

/// Runs resolvers. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Resolvers {
    spawner: Spawner,
    registry: Arc<Registry>,
    slots: Arc<Semaphore>,
    output: PathBuf,
}

impl Resolvers {
    pub(crate) fn new(spawner: Spawner, registry: Arc<Registry>, output: PathBuf) -> Self {
        Self {
            spawner,
            registry,
            slots: Arc::new(Semaphore::new(AT_ONCE)),
            output,
        }
    }

    /// Resolves one definition. `prepare` writes a large input into the scratch directory, if there is one.
    pub(crate) async fn resolve(
        &self,
        mut request: ResolveRequest,
        scratch: Scratch,
    ) -> Result<Resolved, ResolveError> {
        request.scratch_dir = Some(scratch.path().to_string_lossy().into_owned());
        let answer = match self.ask(&request).await? {
            ResolveResponse::File(path) => {
                let bytes = scratch.read(&path).map_err(ResolveError::Crashed)?;
                canonical::from_slice(&bytes).map_err(|error| ResolveError::Crashed(error.to_string()))?
            }
            answer => answer,
        };
        match answer {
            ResolveResponse::Resolved(resolved) => Ok(Resolved {
                definition: *resolved,
                scratch,
            }),
            ResolveResponse::Refused(error) => Err(ResolveError::Refused(error)),
            ResolveResponse::File(_) => Err(ResolveError::Crashed("a file that names a file".to_owned())),
        }
    }

    /// One request, one answer of a fresh child.
    async fn ask<A: DeserializeOwned>(&self, request: &ResolveRequest) -> Result<A, ResolveError> {
        let _slot = self
            .slots
            .acquire()
            .await
            .map_err(|error| ResolveError::Crashed(error.to_string()))?;
        let mut spawned = self
            .spawner
            .spawn(Role::Resolver, None)
            .await
            .map_err(ResolveError::Spawn)?;
        let answer = tokio::time::timeout(DEADLINE, exchange(&mut spawned, request)).await;
        let result = match answer {
            Ok(Ok(Some(frame))) => {
                canonical::from_slice(&frame).map_err(|error| ResolveError::Crashed(error.to_string()))
            }
            Ok(Ok(None)) => Err(ResolveError::Crashed(self.how_it_ended(&mut spawned).await)),
            Ok(Err(error)) => Err(ResolveError::Crashed(error.to_string())),
            Err(_) => Err(ResolveError::TimedOut),
        };
        piw_fault::point!("server::resolved");
        self.dismiss(spawned, result.is_ok()).await;
        result
    }

    async fn how_it_ended(&self, spawned: &mut Spawned) -> String {
        match tokio::time::timeout(GRACE, spawned.child.wait()).await {
            Ok(Ok(status)) => status.to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it closed its channel".to_owned(),
        }
    }

    /// Waits for the child to leave, ends its group, and keeps its output when it failed.
    async fn dismiss(&self, mut spawned: Spawned, answered: bool) {
        drop(spawned.channel);
        let left = answered && tokio::time::timeout(GRACE, spawned.child.wait()).await.is_ok();
        if !left {
            if let Err(error) = group::end(&spawned.identity, GRACE).await {
                tracing::warn!(pid = spawned.identity.pid, %error, "a resolver cannot be ended");
            }
            let _ = tokio::time::timeout(GRACE, spawned.child.wait()).await;
        }
        self.registry.unregister(&spawned.identity);
        if answered {
            spawned.capture.discard();
            return;
        }
        let text = spawned.capture.text().await;
        if !text.is_empty()
            && let Err(error) = capture::keep(&self.output, &format!("resolver-{}", spawned.identity.pid), &text)
        {
            tracing::warn!(%error, "a resolver's output cannot be kept");
        }
    }
}

async fn exchange(spawned: &mut Spawned, request: &ResolveRequest) -> Result<Option<Vec<u8>>, ChannelError> {
    let bytes = piw_protocol::frame::encode(request)?;
    let channel = &mut spawned.channel;
    tokio::io::AsyncWriteExt::write_all(channel, &bytes).await?;
    let mut decoder = piw_protocol::frame::Decoder::new();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        if let Some(frame) = decoder.next_frame()? {
            return Ok(Some(frame));
        }
        match tokio::io::AsyncReadExt::read(channel, &mut buffer).await? {
            0 => return Ok(None),
            count => decoder.push(&buffer[..count]),
        }
    }
}
