//! Writes down what clients do, each operation when it ends.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use serde::Serialize;
use tokio::sync::watch;

use super::operation::{Ending, Operation, Request, Rest};

pub struct Recorder {
    began: Instant,
    output: Mutex<Output>,
    acked_writes: watch::Sender<u64>,
    clients: AtomicU64,
    values: AtomicU64,
}

struct Output {
    file: BufWriter<File>,
    /// A history with a hole must not be judged.
    failed: Option<io::Error>,
}

impl Recorder {
    pub fn create(path: &Path) -> Result<Self> {
        let folder = path.parent().context("a file in a folder")?;
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self {
            began: Instant::now(),
            output: Mutex::new(Output { file: BufWriter::new(file), failed: None }),
            acked_writes: watch::Sender::new(0),
            clients: AtomicU64::new(0),
            values: AtomicU64::new(0),
        })
    }

    /// Since the beginning. One clock for all clients.
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A number that no other client has.
    pub fn new_client(&self) -> u64 {
        self.clients.fetch_add(1, Ordering::Relaxed)
    }

    /// A value that nobody has written before.
    pub fn new_value(&self) -> String {
        format!("v{}", self.values.fetch_add(1, Ordering::Relaxed))
    }

    pub fn acked_writes(&self) -> u64 {
        *self.acked_writes.borrow()
    }

    pub async fn wait_for_acked_writes(&self, count: u64) {
        // The sender is ours, so that it cannot be gone.
        let _ = self.acked_writes.subscribe().wait_for(|acked| *acked >= count).await;
    }

    pub fn rested(&self, from_ns: u64) {
        self.write(&Rest { from_ns, until_ns: self.now_ns() });
    }

    pub fn begin(
        self: &Arc<Self>,
        client: u64,
        endpoint: SocketAddr,
        request: Request,
        is_final: bool,
    ) -> Pending {
        let call_ns = self.now_ns();
        let ending = Ending::Unknown { error: "the client was stopped".into() };
        let operation =
            Operation { client, request, call_ns, return_ns: call_ns, ending, endpoint, is_final };
        Pending { recorder: self.clone(), operation }
    }

    pub fn flush(&self) -> io::Result<()> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        match output.failed.take() {
            Some(error) => Err(error),
            None => output.file.flush(),
        }
    }

    fn write(&self, line: &impl Serialize) {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let written = serde_json::to_writer(&mut output.file, line).map_err(io::Error::from);
        if let Err(error) = written.and_then(|()| output.file.write_all(b"\n")) {
            output.failed.get_or_insert(error);
        }
    }
}

/// An operation under way. It is written down when it ends or is dropped: a client that is stopped in the middle
/// of a write may have written.
pub struct Pending {
    recorder: Arc<Recorder>,
    operation: Operation,
}

impl Pending {
    pub fn request(&self) -> &Request {
        &self.operation.request
    }

    pub fn end(mut self, ending: Ending) -> Ending {
        self.operation.ending = ending.clone();
        ending
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.operation.return_ns = self.recorder.now_ns();
        self.recorder.write(&self.operation);
        if let Ending::Ok(answer) = &self.operation.ending
            && answer.applied
        {
            self.recorder.acked_writes.send_modify(|count| *count += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::operation::Answer;
    use super::*;

    #[tokio::test]
    async fn what_is_dropped_is_written_down_as_unknown() {
        let path = std::env::temp_dir().join(format!("history-recorder-{}.jsonl", std::process::id()));
        let recorder = Arc::new(Recorder::create(&path).expect("it can be created"));
        let endpoint = "10.0.0.1:2379".parse().expect("an address");
        let put = |client| {
            let request = Request::Put { key: "k".into(), write: recorder.new_value() };
            recorder.begin(client, endpoint, request, false)
        };
        put(1).end(Ending::Ok(Answer { applied: true, ..Answer::default() }));
        drop(put(2));
        recorder.rested(5);
        recorder.wait_for_acked_writes(1).await;
        recorder.flush().expect("it is written");
        let text = std::fs::read_to_string(&path).expect("it is there");
        std::fs::remove_file(&path).expect("it can be removed");
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("json")).collect();
        let outcomes: Vec<_> = lines.iter().map(|line| line["outcome"].as_str()).collect();
        assert_eq!(outcomes, [Some("ok"), Some("unknown"), None]);
        assert_eq!((lines[0]["write"].as_str(), lines[1]["write"].as_str()), (Some("v0"), Some("v1")));
        assert_eq!(recorder.acked_writes(), 1);
    }
}
