//! `run.start` and `run.restart`: resolve the definition in a child, then commit the run.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use piw_protocol::child::{RESOLVE_SCHEMA, ResolveInput, ResolveRequest, ValueRef};
use piw_protocol::envelope::{Outcome, Request};
use piw_protocol::ops::RunStart;
use piw_protocol::run::SourceRef;
use piw_state::{CommandIdentity, NewRun, ResolvedRun};

use super::{decided, payload, run_id};
use crate::answer::{Answer, unavailable};
use crate::paths;
use crate::scratch::Scratch;
use crate::server::Server;
use crate::supervise::resolve::{ResolveError, Resolved};

impl Server {
    pub(super) async fn run_start(self: &Arc<Self>, request: Request) -> Answer {
        let server = Arc::clone(self);
        self.once(request, |identity, request| async move {
            server.start(identity, &request).await
        })
        .await
    }

    pub(super) async fn run_restart(self: &Arc<Self>, request: Request) -> Answer {
        let server = Arc::clone(self);
        self.once(request, |identity, request| async move {
            server.restart(identity, &request).await
        })
        .await
    }

    async fn start(&self, identity: CommandIdentity, request: &Request) -> Result<Answer, Answer> {
        let start: RunStart = payload(request)?;
        let project_path = project_directory(&start.project_path)?;
        let input = match start.input_content {
            Some(_) if !start.input.is_null() => {
                return Err(Answer::invalid(&"`input` and `inputContent` exclude each other"));
            }
            Some(content) => ValueRef::Content(content),
            None => ValueRef::Inline(start.input),
        };
        let bound = start.session_id.is_some();
        let resolved = self
            .resolve_run(start.workflow, project_path.clone(), input, &identity.client_id, bound)
            .await?;
        let new = NewRun {
            project_path,
            session_id: start.session_id,
            resolved,
        };
        Ok(decided(self.state.start_run(identity, new).await))
    }

    /// The same workflow and the same input, as they resolve now.
    async fn restart(&self, identity: CommandIdentity, request: &Request) -> Result<Answer, Answer> {
        let run_id = run_id(request)?;
        let original = match self.state.original(run_id.clone()).await {
            Ok(Some(original)) => original,
            Ok(None) => {
                return Err(Answer::refuse(
                    Outcome::NotFound,
                    "run_not_found",
                    &format!("no run {run_id}"),
                ));
            }
            Err(error) => return Err(unavailable(&error)),
        };
        let workflow = match original.sources.root {
            SourceRef::File { path, .. } => path,
            SourceRef::Builtin { id, .. } => format!("builtin:{id}"),
        };
        let resolved = self
            .resolve_run(
                workflow,
                original.project_path,
                original.input,
                &identity.client_id,
                original.bound,
            )
            .await?;
        Ok(decided(
            self.state
                .restart_run(identity, run_id, request.expected_revision, resolved)
                .await,
        ))
    }

    /// Resolves a workflow with an input into what a new run freezes; `bound`: to a session, which executes its agent steps.
    async fn resolve_run(
        &self,
        workflow: String,
        project_path: String,
        input: ValueRef,
        owner: &str,
        bound: bool,
    ) -> Result<ResolvedRun, Answer> {
        let scratch = self.scratch()?;
        let input = self.resolver_input(input, &scratch).await?;
        let resolved = self.resolve(workflow, project_path, Some(input), scratch).await?;
        if !resolved.definition.unsupported.is_empty() {
            let message = resolved.definition.unsupported.join("\n");
            return Err(Answer::refuse(Outcome::Rejected, "unsupported", &message));
        }
        if !bound && !resolved.definition.needs_session.is_empty() {
            let message = resolved.definition.needs_session.join("\n");
            return Err(Answer::refuse(Outcome::Rejected, "unsupported", &message));
        }
        if !bound && let Some(problem) = &resolved.definition.agent_problem {
            let message = format!(
                "workflow \"{}\" has agent steps, but {problem}",
                resolved.definition.definition.name
            );
            return Err(Answer::refuse(Outcome::Rejected, "agent_unavailable", &message));
        }
        let input = self.resolved_input(&resolved, owner).await?;
        let definition = resolved.definition;
        Ok(ResolvedRun {
            definition: definition.definition,
            definition_digest: definition.definition_digest,
            sources: definition.sources,
            title: definition.title,
            input,
        })
    }

    pub(super) fn scratch(&self) -> Result<Scratch, Answer> {
        Scratch::new(&self.places).map_err(|error| {
            let message = format!("cannot make a scratch directory: {error}");
            Answer::refuse(Outcome::Unavailable, "state_directory", &message)
        })
    }

    /// Resolves a definition, or says why it does not.
    pub(super) async fn resolve(
        &self,
        workflow: String,
        project_path: String,
        input: Option<ResolveInput>,
        scratch: Scratch,
    ) -> Result<Resolved, Answer> {
        let request = ResolveRequest {
            schema: RESOLVE_SCHEMA.to_owned(),
            workflow,
            project_path,
            global_dir: paths::global_workflows().map(|path| path.to_string_lossy().into_owned()),
            input,
            scratch_dir: None,
        };
        self.resolvers.resolve(request, scratch).await.map_err(refused)
    }
}

/// The project directory as the database names it: absolute, existing, links resolved.
pub(super) fn project_directory(path: &str) -> Result<String, Answer> {
    if !Path::new(path).is_absolute() {
        return Err(Answer::invalid(&format!(
            "`projectPath` must be absolute, but is {path:?}"
        )));
    }
    let resolved = fs::canonicalize(path)
        .map_err(|error| Answer::invalid(&format!("the project directory {path:?} cannot be used: {error}")))?;
    if !resolved.is_dir() {
        return Err(Answer::invalid(&format!(
            "the project directory {path:?} is no directory"
        )));
    }
    resolved.into_os_string().into_string().map_err(|_| {
        Answer::invalid(&format!(
            "the project directory {path:?} leads to a path that is no UTF-8 text"
        ))
    })
}

/// What a failed resolution means to the client.
fn refused(error: ResolveError) -> Answer {
    let message = error.to_string();
    match error {
        ResolveError::Refused(info) => {
            let reason = match info.code.as_deref() {
                Some("workflowNotFound") => "workflow_not_found",
                Some("badReference" | "reservedName" | "ambiguousName") => "workflow_reference",
                Some("inputRefused" | "inputTooLarge") => "input_refused",
                _ => "workflow_refused",
            };
            Answer::refuse_with_cause(reason, message, info)
        }
        ResolveError::TimedOut => Answer::refuse(Outcome::Rejected, "workflow_timed_out", &message),
        ResolveError::Crashed(_) => Answer::refuse(Outcome::Rejected, "workflow_crashed", &message),
        ResolveError::Spawn(_) => Answer::refuse(Outcome::Unavailable, "spawn_failed", &message),
    }
}
