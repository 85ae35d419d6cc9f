//! Carrying out what the model or a person asked for: calls to the server, and what to say of their answers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use piw_protocol::canonical::{self, INLINE_DEPTH};
use piw_protocol::client::{Client, ClientError, ConnectionState, RunRef};
use piw_protocol::interaction::{
    ClearTerminal, DecisionAnswer, InteractionKind, InteractionSubmit, InteractionUpdate, SessionAuthority,
    SessionInteraction, SessionView,
};
use piw_protocol::ops::{RunReceipt, RunStart, WorkflowList};
use piw_protocol::run::Update;
use piw_protocol::view::{RunView, ViewValue};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::glue::ToGlue;
use super::tool::{Action, HELP, Place, Typed};
use crate::command::session;
use crate::follow::lines::status_name;
use crate::question::Question;
use crate::text;

/// Longest wait for the connection, and for the authority to act in the session.
const PATIENCE: Duration = Duration::from_secs(15);
/// Bytes above which values are uploaded instead of travelling in the request.
const INLINE: usize = 256 * 1024;
/// Name of the text that a choice of a decision may take.
const INPUT: &str = "input";
/// Lines of a list that are said.
const LISTED: usize = 60;

/// Makes sure that a server runs, or says why none does.
pub(crate) type Starter = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;
/// What was done, or why it was not.
pub(crate) type Said = Result<String, String>;

/// What an action may use.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) client: Client,
    pub(crate) session: String,
    pub(crate) cwd: String,
    /// The live view; nothing while it is stale.
    pub(crate) live: watch::Receiver<Option<Arc<SessionView>>>,
    pub(crate) starter: Starter,
    pub(crate) questions: Questions,
}

/// Questions to the person that wait for an answer.
#[derive(Clone)]
pub(crate) struct Questions {
    out: mpsc::UnboundedSender<ToGlue>,
    next: Arc<AtomicU64>,
    open: Arc<Mutex<HashMap<u64, oneshot::Sender<Option<String>>>>>,
}

impl Questions {
    pub(crate) fn new(out: mpsc::UnboundedSender<ToGlue>) -> Self {
        Self {
            out,
            next: Arc::default(),
            open: Arc::default(),
        }
    }

    /// The person answered.
    pub(crate) fn answered(&self, seq: u64, value: Option<String>) {
        let waiting = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&seq);
        if let Some(waiting) = waiting {
            // Whoever asked may be gone.
            drop(waiting.send(value));
        }
    }

    async fn ask(&self, question: impl FnOnce(u64) -> ToGlue) -> Option<String> {
        let seq = self.next.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        self.open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(seq, reply);
        self.out.send(question(seq)).ok()?;
        answer.await.ok().flatten()
    }

    async fn select(&self, title: String, options: Vec<String>) -> Option<String> {
        self.ask(|seq| ToGlue::Select { seq, title, options }).await
    }

    async fn input(&self, title: String) -> Option<String> {
        self.ask(|seq| ToGlue::Input { seq, title }).await
    }
}

impl Desk {
    /// Carries out an action of the tool or of a person. `key` identifies it: the same key again does nothing twice.
    pub(crate) async fn act(&self, action: Action, key: &str) -> Said {
        self.connected().await?;
        match action {
            Action::List => self.list().await,
            Action::Start { workflow, input } => self.start(workflow, input, key).await,
            Action::Status(run) => self.status(run).await,
            Action::Pause(run) => {
                let run = self.run(run)?;
                let receipt = self.client.run_pause(&keyed(&run, key)).await;
                let paused = said(receipt)?;
                let note = paused.message.map(|message| format!("; {message}")).unwrap_or_default();
                Ok(format!("run {run} is paused{note}"))
            }
            Action::Resume(run) => {
                let run = self.run(run)?;
                said(self.client.run_resume(&keyed(&run, key)).await)?;
                Ok(format!("run {run} goes on"))
            }
            Action::Cancel(run) => {
                let run = self.run(run)?;
                said(self.client.run_cancel(&keyed(&run, key)).await)?;
                Ok(format!("run {run} is cancelled"))
            }
            Action::Answer { run, answer } => {
                let run = self.run(run)?;
                self.refuse_decisions(&run)?;
                self.checkpoint(&run, answer, key).await
            }
            Action::Update {
                request,
                update_type,
                key: update_key,
                data,
            } => {
                let authority = self.authority().await?;
                let update = InteractionUpdate {
                    authority,
                    request_id: request,
                    update: Update {
                        update_type,
                        key: update_key,
                        data,
                    },
                };
                let done = self.client.interaction_update(&update, key).await;
                done.map_err(|error| explain(&error))?;
                Ok("published".into())
            }
            Action::Submit { request, output } => self.submit(request, output, key).await,
        }
    }

    /// Carries out what a person typed after `/workflow`.
    pub(crate) async fn typed(&self, typed: Typed, key: &str) -> Said {
        match typed {
            Typed::Help => Ok(HELP.into()),
            Typed::Do(action) => self.act(action, key).await,
            Typed::Answer { given } => {
                self.connected().await?;
                self.answer(given, key).await
            }
            Typed::Clear => {
                self.connected().await?;
                let authority = self.authority().await?;
                let clear = ClearTerminal {
                    target_session_id: authority.target_session_id,
                    coordinator_epoch: authority.coordinator_epoch,
                };
                let done = self.client.clear_terminal(&clear).await;
                done.map_err(|error| explain(&error))?;
                Ok("cleared".into())
            }
        }
    }

    /// Opens the viewer on the session's run beside the session when it runs in tmux, else says how.
    pub(crate) async fn watch(&self, place: Place) -> Said {
        let run = self
            .view()
            .and_then(|view| view.run.as_ref().map(|run| run.run_id.clone()));
        let hint = match &run {
            Some(run) => format!("in another terminal: piw {run}"),
            None => "in another terminal: piw".to_owned(),
        };
        let Some(pane) = std::env::var_os("TMUX_PANE").filter(|_| std::env::var_os("TMUX").is_some()) else {
            return Ok(hint);
        };
        let program = std::env::current_exe().map_err(|error| format!("cannot find piw itself: {error}; {hint}"))?;
        let mut tmux = tokio::process::Command::new("tmux");
        match place {
            Place::Right => tmux.args(["split-window", "-d", "-h", "-t"]).arg(&pane),
            Place::Below => tmux.args(["split-window", "-d", "-v", "-t"]).arg(&pane),
            Place::Window => tmux.args(["new-window", "-d"]),
        };
        tmux.arg("--").arg(program).args(run).kill_on_drop(true);
        tmux.stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        match tmux.status().await {
            Ok(status) if status.success() => Ok("the viewer is open".into()),
            Ok(status) => Err(format!("tmux cannot open a pane ({status}); {hint}")),
            Err(error) => Err(format!("tmux cannot be run: {error}; {hint}")),
        }
    }

    fn view(&self) -> Option<Arc<SessionView>> {
        self.live.borrow().clone()
    }

    /// Waits for the connection; starts the server when there is none.
    async fn connected(&self) -> Result<(), String> {
        let mut state = self.client.state();
        match &*state.borrow() {
            ConnectionState::Connected { .. } => return Ok(()),
            ConnectionState::Stopped(error) => return Err(explain(error)),
            _ => {}
        }
        let starter = Arc::clone(&self.starter);
        let started = tokio::task::spawn_blocking(move || starter()).await;
        started.map_err(|error| format!("the workflow server cannot be started: {error}"))??;
        let ready = timeout(PATIENCE, async {
            loop {
                match &*state.borrow_and_update() {
                    ConnectionState::Connected { .. } => return Ok(()),
                    ConnectionState::Stopped(error) => return Err(explain(error)),
                    _ => {}
                }
                if state.changed().await.is_err() {
                    return Err("the bridge ends".to_owned());
                }
            }
        });
        ready
            .await
            .unwrap_or_else(|_| Err("the workflow server cannot be reached; try again in a moment".into()))
    }

    /// Waits until this session may act: a live view, and the branch reported.
    async fn authority(&self) -> Result<SessionAuthority, String> {
        let mut live = self.live.clone();
        let ready = timeout(PATIENCE, async {
            loop {
                let epoch = live
                    .borrow_and_update()
                    .as_ref()
                    .and_then(|view| view.coordinator_active.then_some(view.coordinator_epoch));
                if let Some(epoch) = epoch {
                    return Ok(epoch);
                }
                if live.changed().await.is_err() {
                    return Err("the bridge ends".to_owned());
                }
            }
        });
        let epoch = ready.await.unwrap_or_else(|_| {
            Err("this session is not connected to the workflow server as its coordinator; try again in a moment".into())
        })?;
        Ok(SessionAuthority {
            target_session_id: self.session.clone(),
            coordinator_epoch: epoch,
        })
    }

    /// The run that is meant: the named one, or the session's.
    fn run(&self, named: Option<String>) -> Result<String, String> {
        let own = || {
            self.view()
                .and_then(|view| view.run.as_ref().map(|run| run.run_id.clone()))
        };
        named
            .or_else(own)
            .ok_or_else(|| "this session has no run; name one, or start one".to_owned())
    }

    async fn list(&self) -> Said {
        let list = WorkflowList {
            project_path: self.cwd.clone(),
        };
        let report = self
            .client
            .workflow_list(&list)
            .await
            .map_err(|error| explain(&error))?;
        let mut lines: Vec<String> = report
            .workflows
            .iter()
            .filter(|entry| !entry.shadowed)
            .take(LISTED)
            .map(|entry| {
                let summary = entry
                    .summary
                    .as_deref()
                    .map(|summary| format!(": {}", text::clean(summary)));
                format!(
                    "{} ({}){}",
                    text::clean(&entry.name),
                    entry.origin,
                    summary.unwrap_or_default()
                )
            })
            .collect();
        if lines.is_empty() {
            lines.push("nothing can be started here; piw init writes a first workflow".into());
        }
        if let Some(run) = self.view().and_then(|view| view.run.clone()) {
            let status = status_name(run.display.status);
            lines.push(format!(
                "this session has run {} of {} ({status})",
                run.run_id,
                text::clean(&run.workflow_name)
            ));
        }
        Ok(lines.join("\n"))
    }

    async fn start(&self, workflow: String, input: Value, key: &str) -> Said {
        let (input, input_content) = match self.encode(input).await? {
            Encoded::Inline(input) => (input, None),
            Encoded::Uploaded(content) => (Value::Null, Some(content)),
        };
        let start = RunStart {
            workflow: workflow.clone(),
            project_path: self.cwd.clone(),
            input,
            input_content,
            session_id: Some(self.session.clone()),
        };
        let receipt = said(self.client.run_start(&start, Some(key)).await)?;
        Ok(format!(
            "started run {} of {workflow}. Its steps come into this conversation by themselves, one at a time, when no turn is \
             under way; nothing has to be waited for or polled",
            receipt.run_id
        ))
    }

    async fn status(&self, run: Option<String>) -> Said {
        let run_id = self.run(run)?;
        let own = self
            .view()
            .filter(|view| view.run.as_ref().is_some_and(|run| run.run_id == run_id));
        if let Some((view, run)) = own.as_ref().and_then(|view| Some((view, view.run.as_ref()?))) {
            let mut said = format!(
                "run {run_id} of {}: {}",
                text::clean(&run.workflow_name),
                status_name(run.display.status)
            );
            if let Some(node) = run.waiting_on.as_ref().or(run.current_node.as_ref()) {
                said.push_str(&format!(" at {}", text::clean(node)));
            }
            if let Some(reason) = &run.display.reason {
                said.push_str(&format!("; {}", session::lines(reason)));
            }
            if let Some(request) = &view.interaction {
                said.push_str(&format!(
                    "\nrequest {} ({}) is {}",
                    request.request_id,
                    request.kind.name(),
                    request.status
                ));
            }
            if !run.display.controls.is_empty() {
                said.push_str(&format!("\npossible now: {}", run.display.controls.join(" ")));
            }
            return Ok(said);
        }
        let report = self.client.run_status(&run_id).await.map_err(|error| explain(&error))?;
        Ok(format!("run {run_id}: {}", status_name(report.display.status)))
    }

    async fn submit(&self, request: String, output: Value, key: &str) -> Said {
        let authority = self.authority().await?;
        let (output, output_content) = match self.encode(output).await? {
            Encoded::Inline(output) => (output, None),
            Encoded::Uploaded(content) => (Value::Null, Some(content)),
        };
        let submit = InteractionSubmit {
            authority,
            request_id: request.clone(),
            output,
            output_content,
        };
        let receipt = self
            .client
            .submit(&submit, key)
            .await
            .map_err(|error| explain(&error))?;
        if receipt.decision == "accepted" {
            return Ok("accepted; this step is done. End your turn: the workflow goes on by itself".into());
        }
        let why = receipt
            .error
            .map_or_else(|| "no reason given".to_owned(), |error| session::lines(&error.message));
        Err(format!(
            "rejected: {why}\nCorrect the output and submit it again for request {request}"
        ))
    }

    async fn encode(&self, value: Value) -> Result<Encoded, String> {
        let bytes = canonical::to_vec(&value).map_err(|error| format!("the value cannot be sent: {error}"))?;
        if bytes.len() <= INLINE && canonical::depth(&value) <= INLINE_DEPTH {
            return Ok(Encoded::Inline(value));
        }
        let uploaded = self.client.put_content(&bytes, "application/json").await;
        uploaded.map(Encoded::Uploaded).map_err(|error| explain(&error))
    }

    /// A model never answers a protected decision, whatever it names.
    fn refuse_decisions(&self, run: &str) -> Result<(), String> {
        let view = self.view();
        let decision = view.as_ref().and_then(|view| view.interaction.as_ref());
        if decision.is_some_and(|request| request.kind == InteractionKind::Decision && request.run_id == run) {
            return Err(
                "only a person can answer this decision, with /workflow answer; say so and end your turn".to_owned(),
            );
        }
        Ok(())
    }

    async fn checkpoint(&self, run: &str, answer: Value, key: &str) -> Said {
        let receipt = said(self.client.checkpoint_answer(&keyed(run, key), answer).await)?;
        Ok(match receipt.new_run_id {
            Some(next) => format!("answered; it goes on as run {next}"),
            None => "answered".into(),
        })
    }

    /// Answers what the session's run waits for, and asks the person for what is missing.
    async fn answer(&self, given: Option<String>, key: &str) -> Said {
        let view = self
            .view()
            .ok_or("the workflow server is not connected; try again in a moment")?;
        if let Some(request) = view
            .interaction
            .as_ref()
            .filter(|request| request.kind == InteractionKind::Decision)
        {
            return self.decide(request, given).await;
        }
        let run = view.run.as_ref().ok_or("this session has no run")?;
        let Some(node) = run.waiting_on.as_ref().filter(|_| view.interaction.is_none()) else {
            return Err(format!("run {} waits for no answer of a person", run.run_id));
        };
        let given = match given {
            Some(given) => given,
            None => {
                let title = self.question(&run.run_id, node).await;
                let answer = self.questions.input(title).await;
                answer.ok_or("nothing was answered")?
            }
        };
        // What is no JSON is meant as text.
        let answer = serde_json::from_str(&given).unwrap_or(Value::String(given));
        self.checkpoint(&run.run_id, answer, key).await
    }

    /// What a checkpoint asks, in a few lines.
    async fn question(&self, run: &str, node: &str) -> String {
        let fallback = format!("Answer {} (JSON or text)", text::clean(node));
        let view: Option<RunView> = self.client.run_view(run).await.ok();
        let summary = view
            .as_ref()
            .and_then(Question::of)
            .and_then(|question| question.summary);
        summary.map_or(fallback, |summary| session::lines(&summary))
    }

    async fn decide(&self, request: &SessionInteraction, given: Option<String>) -> Said {
        let (contract, digest) = self.contract(request).await?;
        let choices = choices(&contract);
        if choices.is_empty() {
            return Err("the decision names no choices; answer it with: piw answer".into());
        }
        let title = asked(&contract, &request.node_id);
        let labels: Vec<String> = choices.iter().map(Choice::shown).collect();
        let picked = match given {
            // A choice that was typed is still confirmed with the question in sight.
            Some(given) => {
                let known = choices.iter().find(|choice| choice.value == given);
                let known = known.ok_or_else(|| {
                    let all: Vec<&str> = choices.iter().map(|choice| choice.value.as_str()).collect();
                    format!("{given:?} is no choice; choose one of {}", all.join(" "))
                })?;
                self.questions
                    .select(title, vec![known.shown(), "do not answer".into()])
                    .await
            }
            None => self.questions.select(title, labels).await,
        };
        let picked = picked.ok_or("nothing was chosen")?;
        let Some(choice) = choices.iter().find(|choice| choice.shown() == picked) else {
            return Err("nothing was chosen".into());
        };
        let mut inputs = serde_json::Map::new();
        if let Some(prompt) = &choice.input {
            let typed = self
                .questions
                .input(prompt.clone())
                .await
                .ok_or("nothing was answered")?;
            if !typed.is_empty() {
                inputs.insert(INPUT.to_owned(), Value::String(typed));
            }
        }
        let authority = self.authority().await?;
        let answer = DecisionAnswer {
            request_id: request.request_id.clone(),
            digest,
            choice: choice.value.clone(),
            inputs,
            authority: Some(authority),
        };
        let receipt = said(self.client.decision_answer(&answer).await)?;
        Ok(match receipt.new_run_id {
            Some(next) => format!("answered {}; it goes on as run {next}", choice.value),
            None => format!("answered {}", choice.value),
        })
    }

    /// The request of a decision and its digest, fetched and verified when it travels as content.
    async fn contract(&self, request: &SessionInteraction) -> Result<(Value, String), String> {
        let whole = self.value(request, &request.contract).await?;
        let digest = whole.get("digest").and_then(Value::as_str);
        let digest = digest
            .ok_or("the decision has no digest; answer it with: piw answer")?
            .to_owned();
        let subject = whole.get("subject").cloned().unwrap_or_default();
        Ok((self.value(request, &subject).await?, digest))
    }

    async fn value(&self, request: &SessionInteraction, value: &Value) -> Result<Value, String> {
        let whole = session::value(&self.client, &request.run_id, &ViewValue::from_wire(value)).await;
        whole.map_err(|error| explain(&error))
    }
}

enum Encoded {
    Inline(Value),
    Uploaded(piw_protocol::child::ContentRef),
}

/// One choice of a decision.
#[derive(Debug, PartialEq, Eq)]
struct Choice {
    value: String,
    label: String,
    /// What to ask for its text, when it takes one.
    input: Option<String>,
}

impl Choice {
    fn shown(&self) -> String {
        let label = text::clean(&self.label);
        if self.label == self.value || self.label.is_empty() {
            return text::clean(&self.value).into_owned();
        }
        format!("{}: {label}", text::clean(&self.value))
    }
}

/// The choices of a decision, in their order.
fn choices(request: &Value) -> Vec<Choice> {
    let listed = request.get("choices").and_then(Value::as_array);
    let text = |choice: &Value, field: &str| choice.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let all = listed.into_iter().flatten();
    all.filter(|choice| choice.get("name").is_some_and(Value::is_string))
        .map(|choice| Choice {
            value: text(choice, "name"),
            label: text(choice, "label"),
            input: choice.get(INPUT).map(|input| {
                let prompt = text(input, "label");
                let asked = if prompt.is_empty() { "Text".to_owned() } else { prompt };
                let optional = input.get("required") == Some(&Value::Bool(false));
                text::clean(&asked).into_owned() + if optional { " (may be empty)" } else { "" }
            }),
        })
        .collect()
}

/// What a decision asks, in a few lines.
fn asked(contract: &Value, node: &str) -> String {
    let summary = contract
        .get("presentation")
        .and_then(|presentation| presentation.get("summary"));
    let parts: Vec<String> = [contract.get("title"), summary]
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(|part| {
            let (lines, _) = text::clean_lines(part, 12);
            lines.join("\n")
        })
        .collect();
    match parts.is_empty() {
        true => format!("Decide {}", text::clean(node)),
        false => parts.join("\n"),
    }
}

fn keyed(run: &str, key: &str) -> RunRef {
    RunRef {
        key: Some(key.to_owned()),
        ..RunRef::current(run)
    }
}

fn said(done: Result<piw_protocol::client::Done<RunReceipt>, ClientError>) -> Result<RunReceipt, String> {
    done.map(|done| done.receipt).map_err(|error| explain(&error))
}

/// An error as text, safe to show, with what can be done about it.
pub(crate) fn explain(error: &ClientError) -> String {
    let failure = session::failure(error);
    match failure.hint {
        Some(hint) => format!("{}\n{hint}", failure.message),
        None => failure.message,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn choices_are_read_in_their_order() {
        let listed = choices(&json!({"choices": [
            {"name": "no"}, {"name": "yes", "label": "Pub\u{1b}[2Jlish", "input": {"type": "text", "label": "Reason"}},
            {"name": "later", "input": {"type": "text", "required": false}}, {"label": "nameless"}]}));
        let shown: Vec<String> = listed.iter().map(Choice::shown).collect();
        assert_eq!(shown, ["no", "yes: Pub␛[2Jlish", "later"]);
        let inputs: Vec<Option<&str>> = listed.iter().map(|choice| choice.input.as_deref()).collect();
        assert_eq!(inputs, [None, Some("Reason"), Some("Text (may be empty)")]);
        assert!(choices(&json!({})).is_empty());
    }

    #[test]
    fn a_question_shows_its_presentation() {
        let contract = json!({"title": "Publish?", "presentation": {"summary": "one\ntwo\u{202e}"}});
        assert_eq!(asked(&contract, "n"), "Publish?\none\ntwo\u{fffd}");
        assert_eq!(asked(&json!({}), "gate"), "Decide gate");
    }
}
