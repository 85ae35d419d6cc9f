//! Typed calls: one function per operation that this package uses, with the receipt as its type.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::subscription::{SubscriptionSpec, Watch};
use super::{Call, Client, ClientError};
use crate::canonical::CanonicalJson;
use crate::child::ContentRef;
use crate::content::{ContentAssembler, ContentError, MAX_CONTENT, Verified};
use crate::effect::{EffectList, EffectListReport, EffectReceipt, EffectResolve};
use crate::envelope::{EventKind, Outcome, Response};
use crate::frame::FrameError;
use crate::interaction::{
    self, BranchReport, ClearTerminal, DecisionAnswer, InteractionAssistant, InteractionReceipt, InteractionSubmit,
    InteractionUpdate, SessionView, SessionWindow, TURN_RECEIPT_SCHEMA, TurnReceipt, TurnReport,
};
use crate::maintenance::{
    StateBackup, StateBackupReport, StatePrune, StatePruneReport, StateStatusReport, StateVerifyReport,
};
use crate::ops::{
    CheckpointAnswer, ContentPut, ContentPutReport, Operation, OperationError, PageRequest, RunList, RunReceipt,
    RunStart, RunStatusReport, RunsPage, RunsWatch as RunsQuery, ServerStatusReport, ServerStop, ServerStopReport,
    WorkflowCheck, WorkflowCheckReport, WorkflowList, WorkflowListReport,
};
use crate::session::{SessionRecord, SessionRecordReceipt};
use crate::view::{ArtifactRef, CONTENT_CHUNK, ContentChunk, RunListPage, RunPage, RunView};

/// A watched run.
pub type RunWatch = Watch<RunView>;
/// A watched window of the run list.
pub type RunsWatch = Watch<RunListPage>;

/// A watched Pi session.
pub type SessionWatch = Watch<SessionView>;

/// A call that was carried out.
#[derive(Debug, Clone, PartialEq)]
pub struct Done<T> {
    /// [`Outcome::Accepted`] or [`Outcome::Adopted`].
    pub outcome: Outcome,
    /// Revision after it.
    pub revision: Option<u64>,
    /// What was done or read.
    pub receipt: T,
}

/// The run that a command acts on, the revision that must still be current, and the command's identity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunRef {
    /// The run.
    pub run_id: String,
    /// Execution revision (`runRevision`) that must still be current; `None` acts on whatever is current.
    pub expected_revision: Option<u64>,
    /// Idempotency key; `None` makes a fresh one.
    pub key: Option<String>,
}

impl RunRef {
    /// Acts on whatever is current.
    #[must_use]
    pub fn current(run_id: &str) -> Self {
        Self {
            run_id: run_id.to_owned(),
            ..Self::default()
        }
    }

    /// Acts only at an execution revision.
    #[must_use]
    pub fn at(run_id: &str, revision: u64) -> Self {
        Self {
            run_id: run_id.to_owned(),
            expected_revision: Some(revision),
            key: None,
        }
    }

    fn call<T: Serialize>(&self, operation: Operation, payload: &T) -> Result<Call, ClientError> {
        let call = Call::new(operation, payload)?
            .run(&self.run_id)
            .at(self.expected_revision);
        Ok(match &self.key {
            Some(key) => call.key(key),
            None => call,
        })
    }
}

impl Client {
    /// Makes a call and reads its receipt.
    ///
    /// # Errors
    /// As [`Client::request`]; [`ClientError::Refused`] when the outcome is neither `accepted` nor `adopted`,
    /// [`ClientError::BadAnswer`] when the receipt is not what the operation promises.
    pub async fn call<T: DeserializeOwned>(&self, call: Call) -> Result<Done<T>, ClientError> {
        let operation = call.operation;
        let response = self.request(call).await?;
        read(operation, response)
    }

    /// `run.start`.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn run_start(&self, start: &RunStart, key: Option<&str>) -> Result<Done<RunReceipt>, ClientError> {
        let call = Call::new(Operation::RunStart, start)?;
        self.call(match key {
            Some(key) => call.key(key),
            None => call,
        })
        .await
    }

    /// `run.pause`.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn run_pause(&self, run: &RunRef) -> Result<Done<RunReceipt>, ClientError> {
        self.call(run.call(Operation::RunPause, &json!({}))?).await
    }

    /// `run.resume`.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn run_resume(&self, run: &RunRef) -> Result<Done<RunReceipt>, ClientError> {
        self.call(run.call(Operation::RunResume, &json!({}))?).await
    }

    /// `run.cancel`.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn run_cancel(&self, run: &RunRef) -> Result<Done<RunReceipt>, ClientError> {
        self.call(run.call(Operation::RunCancel, &json!({}))?).await
    }

    /// `run.restart`.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn run_restart(&self, run: &RunRef) -> Result<Done<RunReceipt>, ClientError> {
        self.call(run.call(Operation::RunRestart, &json!({}))?).await
    }

    /// `session.record`. The answer comes after the commit; a batch may be sent again until it is answered.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn session_record(&self, record: &SessionRecord) -> Result<Done<SessionRecordReceipt>, ClientError> {
        self.call(Call::new(Operation::SessionRecord, record)?).await
    }

    /// `checkpoint.answer`.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn checkpoint_answer(&self, run: &RunRef, answer: Value) -> Result<Done<RunReceipt>, ClientError> {
        self.call(run.call(Operation::CheckpointAnswer, &CheckpointAnswer { answer })?)
            .await
    }

    /// `decision.answer`: a person's answer to a protected decision.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn decision_answer(&self, answer: &DecisionAnswer) -> Result<Done<RunReceipt>, ClientError> {
        self.call(Call::new(Operation::DecisionAnswer, answer)?).await
    }

    /// `effect.list` of one run, or of all.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn effect_list(&self, run_id: Option<&str>, list: &EffectList) -> Result<EffectListReport, ClientError> {
        let call = Call::new(Operation::EffectList, list)?;
        self.read(match run_id {
            Some(run_id) => call.run(run_id),
            None => call,
        })
        .await
    }

    /// `effect.resolve` at the revision that the person saw.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn effect_resolve(
        &self,
        run: &RunRef,
        resolve: &EffectResolve,
    ) -> Result<Done<EffectReceipt>, ClientError> {
        self.call(run.call(Operation::EffectResolve, resolve)?).await
    }

    /// `run.status`.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn run_status(&self, run_id: &str) -> Result<RunStatusReport, ClientError> {
        self.read(Call::new(Operation::RunStatus, &json!({}))?.run(run_id))
            .await
    }

    /// `run.list`.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn run_list(&self, list: &RunList) -> Result<RunListPage, ClientError> {
        let page: RunListPage = self.read(Call::new(Operation::RunList, list)?).await?;
        expect(Operation::RunList, page.check())?;
        Ok(page)
    }

    /// `view.runs.page`.
    ///
    /// # Errors
    /// As [`Client::call`], and [`ClientError::BadAnswer`] when the page is not the one asked for.
    pub async fn runs_page(&self, page: &RunsPage) -> Result<RunListPage, ClientError> {
        let answer: RunListPage = self.read(Call::new(Operation::ViewRunsPage, page)?).await?;
        expect(Operation::ViewRunsPage, answer.check())?;
        if answer.revision != page.revision || answer.start != page.cursor {
            let problem = format!("revision {:?} from item {} was asked for", page.revision, page.cursor);
            expect(Operation::ViewRunsPage, Err(problem))?;
        }
        Ok(answer)
    }

    /// `view.run.get`.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn run_view(&self, run_id: &str) -> Result<RunView, ClientError> {
        self.read(Call::new(Operation::ViewRunGet, &json!({}))?.run(run_id))
            .await
    }

    /// `view.page` at a presentation revision of the run's view.
    ///
    /// # Errors
    /// As [`Client::call`], and [`ClientError::BadAnswer`] when the page is not the one asked for.
    pub async fn page(&self, run_id: &str, revision: u64, request: &PageRequest) -> Result<RunPage, ClientError> {
        let call = Call::new(Operation::ViewPage, request)?.run(run_id).at(Some(revision));
        let page: RunPage = self.read(call).await?;
        expect(Operation::ViewPage, page.check(run_id, revision, request))?;
        Ok(page)
    }

    /// Fetches the content of a reference in a view of `run_id` and verifies it. `progress` hears the bytes that arrived so
    /// far. Dropping the future gives up.
    ///
    /// # Errors
    /// As [`Client::call`], and [`ClientError::Content`] when the content is not what its reference says.
    pub async fn content(
        &self,
        run_id: &str,
        reference: &ArtifactRef,
        mut progress: impl FnMut(u64) + Send,
    ) -> Result<Verified<Vec<u8>>, ClientError> {
        let mut assembler = ContentAssembler::new(run_id, reference, MAX_CONTENT)?;
        while let Some(request) = assembler.next_request() {
            let chunk: ContentChunk = self
                .read(Call::new(Operation::ViewContent, &request)?.run(run_id))
                .await?;
            assembler.accept(&chunk)?;
            progress(assembler.received());
        }
        Ok(assembler.finish()?)
    }

    /// Uploads content with `content.put` and answers its name.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn put_content(&self, bytes: &[u8], media_type: &str) -> Result<ContentRef, ClientError> {
        let content = ContentRef::of(bytes, media_type);
        if content.bytes > MAX_CONTENT {
            return Err(ContentError::TooLarge {
                bytes: content.bytes,
                limit: MAX_CONTENT,
            }
            .into());
        }
        let mut offset = 0;
        loop {
            let end = bytes.len().min(offset + CONTENT_CHUNK);
            let put = ContentPut::chunk(&content, offset as u64, &bytes[offset..end]);
            let report: ContentPutReport = self.read(Call::new(Operation::ContentPut, &put)?).await?;
            // Content that the server has already is complete with its first chunk.
            if put.complete || report.complete {
                let problem = format!("{} of {} bytes arrived", report.received, content.bytes);
                let complete = report.complete && report.sha256 == content.sha256;
                expect(Operation::ContentPut, if complete { Ok(()) } else { Err(problem) })?;
                return Ok(content);
            }
            offset = end;
        }
    }

    /// `workflow.list`.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn workflow_list(&self, list: &WorkflowList) -> Result<WorkflowListReport, ClientError> {
        self.read(Call::new(Operation::WorkflowList, list)?).await
    }

    /// `workflow.check`.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn workflow_check(&self, check: &WorkflowCheck) -> Result<WorkflowCheckReport, ClientError> {
        self.read(Call::new(Operation::WorkflowCheck, check)?).await
    }

    /// `server.status`.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn server_status(&self) -> Result<ServerStatusReport, ClientError> {
        self.read(Call::new(Operation::ServerStatus, &json!({}))?).await
    }

    /// `server.stop`.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn server_stop(&self, stop: &ServerStop) -> Result<Done<ServerStopReport>, ClientError> {
        self.call(Call::new(Operation::ServerStop, stop)?).await
    }

    /// `state.status`.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn state_status(&self) -> Result<StateStatusReport, ClientError> {
        self.read(Call::new(Operation::StateStatus, &json!({}))?).await
    }

    /// `state.verify`.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn state_verify(&self) -> Result<StateVerifyReport, ClientError> {
        self.read(Call::new(Operation::StateVerify, &json!({}))?).await
    }

    /// `state.backup`. The server goes on with it when this client goes away.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn state_backup(&self, path: &str) -> Result<Done<StateBackupReport>, ClientError> {
        let path = path.to_owned();
        self.call(Call::new(Operation::StateBackup, &StateBackup { path })?)
            .await
    }

    /// `state.prune`. The server goes on with it when this client goes away.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn state_prune(&self, prune: &StatePrune) -> Result<Done<StatePruneReport>, ClientError> {
        self.call(Call::new(Operation::StatePrune, prune)?).await
    }

    /// `view.runs.watch`: keeps a window of the run list current. For another window watch again and drop the old watch when
    /// the new one is live. `query.subscription_id` is chosen here.
    ///
    /// # Errors
    /// When the query has no canonical form.
    pub fn watch_runs(&self, query: RunsQuery) -> Result<RunsWatch, ClientError> {
        let id = uuid::Uuid::new_v4().to_string();
        let payload = payload(&RunsQuery {
            subscription_id: id.clone(),
            ..query
        })?;
        let spec = SubscriptionSpec {
            watch: Operation::ViewRunsWatch,
            unwatch: Operation::ViewRunsUnwatch,
            event: EventKind::Runs,
            run_id: None,
            subject: None,
            payload,
        };
        Ok(self.watch(id, spec))
    }

    /// `view.run.watch`: keeps the view of a run current.
    #[must_use]
    pub fn watch_run(&self, run_id: &str) -> RunWatch {
        let id = uuid::Uuid::new_v4().to_string();
        let payload = payload(&json!({ "subscriptionId": id })).expect("a plain object has a canonical form");
        let spec = SubscriptionSpec {
            watch: Operation::ViewRunWatch,
            unwatch: Operation::ViewRunUnwatch,
            event: EventKind::RunSnapshot,
            run_id: Some(run_id.to_owned()),
            subject: Some(run_id.to_owned()),
            payload,
        };
        self.watch(id, spec)
    }

    /// `view.session.watch`: keeps the view of a Pi session current and makes this client its coordinator, on every
    /// connection anew and with a greater epoch each time.
    #[must_use]
    pub fn watch_session(&self, session_id: &str) -> SessionWatch {
        let id = uuid::Uuid::new_v4().to_string();
        let payload = payload(&interaction::SessionWatch {
            subscription_id: id.clone(),
            session_id: session_id.to_owned(),
        });
        let spec = SubscriptionSpec {
            watch: Operation::ViewSessionWatch,
            unwatch: Operation::ViewSessionUnwatch,
            event: EventKind::SessionSnapshot,
            run_id: None,
            subject: Some(session_id.to_owned()),
            payload: payload.expect("an object of two texts has a canonical form"),
        };
        self.watch(id, spec)
    }

    /// `view.session.window`: moves the node window of a watched session; `None` lets it follow the working node. It is as
    /// short-lived as the connection.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn session_window(&self, watch_id: &str, cursor: Option<u64>) -> Result<(), ClientError> {
        let window = SessionWindow {
            subscription_id: watch_id.to_owned(),
            cursor,
        };
        let done: Done<Value> = self.call(Call::new(Operation::ViewSessionWindow, &window)?).await?;
        drop(done);
        Ok(())
    }

    /// `workflowMessage.reportBranch`.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn report_branch(&self, report: &BranchReport) -> Result<(), ClientError> {
        let call = Call::new(Operation::WorkflowMessageReportBranch, report)?;
        let done: Done<Value> = self.call(call).await?;
        drop(done);
        Ok(())
    }

    /// `workflowTurn.report`.
    ///
    /// # Errors
    /// As [`Client::call`], and [`ClientError::BadAnswer`] when the receipt is of another schema.
    pub async fn report_turn(&self, report: &TurnReport) -> Result<TurnReceipt, ClientError> {
        let call = Call::new(Operation::WorkflowTurnReport, report)?.run(&report.run_id);
        let receipt: TurnReceipt = self.read(call).await?;
        let problem = format!("schema {:?}, expected {TURN_RECEIPT_SCHEMA:?}", receipt.schema);
        let same = receipt.schema == TURN_RECEIPT_SCHEMA;
        expect(Operation::WorkflowTurnReport, if same { Ok(()) } else { Err(problem) })?;
        Ok(receipt)
    }

    /// `sessionView.clearTerminal`.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn clear_terminal(&self, clear: &ClearTerminal) -> Result<(), ClientError> {
        let done: Done<Value> = self
            .call(Call::new(Operation::SessionViewClearTerminal, clear)?)
            .await?;
        drop(done);
        Ok(())
    }

    /// `interaction.submit`; `key` is the id of the tool call. The answer comes when the submission is decided.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn submit(&self, submit: &InteractionSubmit, key: &str) -> Result<InteractionReceipt, ClientError> {
        self.read(Call::new(Operation::InteractionSubmit, submit)?.key(key))
            .await
    }

    /// `interaction.assistant`; `key` names the message.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn assistant(
        &self,
        message: &InteractionAssistant,
        key: &str,
    ) -> Result<InteractionReceipt, ClientError> {
        self.read(Call::new(Operation::InteractionAssistant, message)?.key(key))
            .await
    }

    /// `interaction.update`; `key` is the id of the tool call.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn interaction_update(&self, update: &InteractionUpdate, key: &str) -> Result<(), ClientError> {
        let done: Done<Value> = self
            .call(Call::new(Operation::InteractionUpdate, update)?.key(key))
            .await?;
        drop(done);
        Ok(())
    }

    async fn read<T: DeserializeOwned>(&self, call: Call) -> Result<T, ClientError> {
        self.call(call).await.map(|done| done.receipt)
    }
}

fn payload<T: Serialize>(value: &T) -> Result<CanonicalJson, ClientError> {
    CanonicalJson::new(value).map_err(|error| FrameError::from(error).into())
}

fn expect(operation: Operation, check: Result<(), String>) -> Result<(), ClientError> {
    check.map_err(|problem| ClientError::BadAnswer { operation, problem })
}

fn read<T: DeserializeOwned>(operation: Operation, response: Response) -> Result<Done<T>, ClientError> {
    let Response {
        outcome,
        revision,
        receipt,
        error,
        ..
    } = response;
    if !outcome.is_success() {
        let error = error.unwrap_or_else(|| OperationError::new(outcome.name(), "no reason given"));
        return Err(ClientError::Refused {
            operation,
            outcome,
            error,
        });
    }
    let receipt = receipt.unwrap_or_default().decode();
    let receipt = receipt.map_err(|error| ClientError::BadAnswer {
        operation,
        problem: error.to_string(),
    })?;
    Ok(Done {
        outcome,
        revision,
        receipt,
    })
}
