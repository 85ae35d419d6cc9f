//! A scripted provider: each request is shown to the test's function, which says what the model replies.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::wait;

/// Bytes of text in one streamed event.
const PIECE: usize = 512;

/// A request that Pi sent to its model.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Which request this is, from 0.
    pub index: usize,
    /// The body: `model`, `messages`, `tools`, ….
    pub body: Value,
}

impl Asked {
    /// The text of every message, with its role, in order.
    #[must_use]
    pub fn messages(&self) -> Vec<(String, String)> {
        let messages = self.body["messages"].as_array().cloned().unwrap_or_default();
        let text = |message: &Value| {
            (
                message["role"].as_str().unwrap_or_default().to_owned(),
                text_of(&message["content"]),
            )
        };
        messages.iter().map(text).collect()
    }

    /// The text of the last message: a person's, or the result of a tool.
    #[must_use]
    pub fn last(&self) -> String {
        self.messages().pop().map(|(_, text)| text).unwrap_or_default()
    }

    /// The text of the last message of this role.
    #[must_use]
    pub fn last_of(&self, role: &str) -> String {
        let messages = self.messages();
        let last = messages.into_iter().rev().find(|(from, _)| from == role);
        last.map(|(_, text)| text).unwrap_or_default()
    }

    /// The id of the latest workflow request in the conversation: the word after `request: `.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn request_id(&self) -> String {
        let messages = self.messages();
        let found = messages.iter().rev().find_map(|(_, text)| {
            let (_, rest) = text.rsplit_once("\nrequest: ")?;
            rest.split_whitespace().next().map(str::to_owned)
        });
        found.unwrap_or_else(|| panic!("no request id in {messages:?}"))
    }

    /// Names of the tools that the model may call.
    #[must_use]
    pub fn tools(&self) -> Vec<String> {
        let tools = self.body["tools"].as_array().cloned().unwrap_or_default();
        let name = |tool: &Value| tool["function"]["name"].as_str().map(str::to_owned);
        tools.iter().filter_map(name).collect()
    }

    /// A reply that submits `output` for the latest workflow request.
    #[must_use]
    pub fn submit(&self, output: &Value) -> Reply {
        Reply::call(
            "workflow",
            json!({ "action": "submit", "requestId": self.request_id(), "output": output }),
        )
    }
}

fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

/// What the model replies to one request.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    text: String,
    calls: Vec<(String, Value)>,
    error: Option<(u16, String)>,
    delay: Duration,
    endless: bool,
}

impl Reply {
    /// A text, streamed in pieces.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            ..Self::default()
        }
    }

    /// A call of a tool.
    #[must_use]
    pub fn call(tool: &str, arguments: Value) -> Self {
        Self::default().and_call(tool, arguments)
    }

    /// A failure of the provider with this HTTP status.
    #[must_use]
    pub fn error(status: u16, message: &str) -> Self {
        Self {
            error: Some((status, message.to_owned())),
            ..Self::default()
        }
    }

    /// Another call in the same message.
    #[must_use]
    pub fn and_call(mut self, tool: &str, arguments: Value) -> Self {
        self.calls.push((tool.to_owned(), arguments));
        self
    }

    /// The same reply, after a pause.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// The same reply, whose stream does not end: its text arrives, then nothing until the client or the model goes.
    #[must_use]
    pub fn endless(self) -> Self {
        Self { endless: true, ..self }
    }
}

type Script = Box<dyn FnMut(&Asked) -> Reply + Send>;

struct Shared {
    script: Mutex<Script>,
    asked: Mutex<Vec<Asked>>,
    closing: AtomicBool,
}

/// The provider; it stops answering when this is dropped.
pub struct Model {
    port: u16,
    shared: Arc<Shared>,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

impl Model {
    /// A model that replies what `script` says, one request after the other.
    ///
    /// # Panics
    /// When no port can be opened.
    #[must_use]
    pub fn new(script: impl FnMut(&Asked) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            script: Mutex::new(Box::new(script)),
            asked: Mutex::default(),
            closing: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.closing.load(Ordering::SeqCst) {
                    return;
                }
                let serving = Arc::clone(&serving);
                // A client that goes away in the middle is the client's business.
                let serve = move |stream| drop(serving.serve(stream));
                thread::spawn(move || stream.map(serve));
            }
        });
        Self { port, shared }
    }

    /// A model that replies these in order, and repeats the last one.
    #[must_use]
    pub fn replies(replies: Vec<Reply>) -> Self {
        let mut replies = replies.into_iter();
        let mut last = Reply::text("");
        Self::new(move |_| {
            last = replies.next().unwrap_or_else(|| last.clone());
            last.clone()
        })
    }

    /// Base URL of its API.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// The requests so far.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked().clone()
    }

    /// Waits until there were this many requests; returns them.
    #[must_use]
    pub fn wait_for(&self, count: usize) -> Vec<Asked> {
        wait::until(&format!("the model was asked {count} times"), || {
            let asked = self.asked();
            (asked.len() >= count).then_some(asked)
        })
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        // Wakes the listener, which then sees that it has to leave.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

impl Shared {
    fn asked(&self) -> MutexGuard<'_, Vec<Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers one request; every connection serves one.
    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let body = read_request(&stream)?;
        let reply = {
            // The script is asked in the order in which requests are recorded.
            let mut script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
            let asked = {
                let mut all = self.asked();
                let asked = Asked { index: all.len(), body };
                all.push(asked.clone());
                asked
            };
            script(&asked)
        };
        thread::sleep(reply.delay);
        if let Some((status, message)) = &reply.error {
            let body = json!({ "error": { "message": message, "type": "scripted" } }).to_string();
            let head = format!(
                "HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\ncontent-length: {}",
                body.len()
            );
            return write!(stream, "{head}\r\nconnection: close\r\n\r\n{body}");
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
        for event in events(&reply) {
            write!(stream, "data: {event}\n\n")?;
        }
        if reply.endless {
            let mut rest = Vec::new();
            while !self.closing.load(Ordering::SeqCst) {
                stream.set_read_timeout(Some(Duration::from_millis(100)))?;
                if stream.read_to_end(&mut rest).is_ok() {
                    break;
                }
            }
            return Ok(());
        }
        stream.write_all(b"data: [DONE]\n\n")
    }
}

/// The body of a request.
fn read_request(stream: &TcpStream) -> std::io::Result<Value> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(std::io::Error::other)?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    serde_json::from_slice(&body).map_err(std::io::Error::other)
}

/// The streamed events of a reply.
fn events(reply: &Reply) -> Vec<Value> {
    let chunk = |delta: Value, finish: Value| {
        json!({
            "id": "scripted", "object": "chat.completion.chunk", "created": 0, "model": "scripted-1",
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }],
        })
    };
    let mut events = vec![chunk(json!({ "role": "assistant", "content": "" }), Value::Null)];
    for piece in pieces(&reply.text) {
        events.push(chunk(json!({ "content": piece }), Value::Null));
    }
    for (index, (tool, arguments)) in reply.calls.iter().enumerate() {
        // Ids are unique in a conversation, as those of real providers are.
        let id = format!("call_{:016x}", fastrand::u64(..));
        let head =
            json!({ "index": index, "id": id, "type": "function", "function": { "name": tool, "arguments": "" } });
        events.push(chunk(json!({ "tool_calls": [head] }), Value::Null));
        for piece in pieces(&arguments.to_string()) {
            let part = json!({ "index": index, "function": { "arguments": piece } });
            events.push(chunk(json!({ "tool_calls": [part] }), Value::Null));
        }
    }
    if !reply.endless {
        let reason = if reply.calls.is_empty() { "stop" } else { "tool_calls" };
        let mut last = chunk(json!({}), json!(reason));
        last["usage"] = json!({ "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 });
        events.push(last);
    }
    events
}

fn pieces(text: &str) -> Vec<&str> {
    let mut rest = text;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let mut end = PIECE.min(rest.len());
        while !rest.is_char_boundary(end) {
            end += 1;
        }
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after;
    }
    pieces
}
