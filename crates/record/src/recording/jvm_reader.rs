//! The process aside ([`hugewise_linux::sys::aside`]) that does what a recording does for one JVM: it locates the heap,
//! asks for a log, and reads that. The JVM and its file system may not answer; then the recording goes on, and ends,
//! without them.

use std::{
    io::{self, Read, Write},
    os::{fd::AsFd, unix::net::UnixStream},
};

use hugewise_changes::journal::JvmLog as JournalLog;
use hugewise_linux::{root::Root, sys::aside::Aside};

use super::{
    jvm_messages::{END, JOURNALLED, Message, NOT_JOURNALLED},
    jvm_work::Work,
};

/// Most bytes that are received at once.
const MAX_RECEIVED_BYTES: u64 = 8 << 20;
/// Largest message, in bytes: the lines of a reading, of which each byte may be escaped.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// The end of the recording of the conversation.
#[derive(Debug)]
pub struct JvmReader {
    _aside: Aside,
    channel: UnixStream,
    received: Vec<u8>,
    has_ended: bool,
}

impl JvmReader {
    /// Starts the work for process `pid`, with a log if `wants_log`; `log` is the one to switch on, `None` if the JVM may
    /// not be asked.
    pub fn start(root: &Root, pid: u32, wants_log: bool, log: Option<&JournalLog>) -> io::Result<JvmReader> {
        let (ours, theirs) = UnixStream::pair()?;
        let aside = Aside::start(&[theirs.as_fd()], |_| Work::of(root, pid, wants_log, log, &theirs)?.run())?;
        ours.set_nonblocking(true)?;
        Ok(JvmReader { _aside: aside, channel: ours, received: Vec::new(), has_ended: false })
    }

    /// The messages that have arrived.
    pub fn messages(&mut self) -> Vec<Message> {
        match (&self.channel).take(MAX_RECEIVED_BYTES).read_to_end(&mut self.received) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(read) if read as u64 == MAX_RECEIVED_BYTES => {}
            Ok(_) | Err(_) => self.has_ended = true,
        }
        let complete = self.received.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        if self.received.len() - complete > MAX_MESSAGE_BYTES {
            self.has_ended = true;
        }
        let lines: Vec<u8> = self.received.drain(..complete).collect();
        lines.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }

    /// Whether there will be no other message.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Answers [`Message::ToJournal`].
    pub fn journalled(&self, is_noted: bool) {
        self.send(if is_noted { JOURNALLED } else { NOT_JOURNALLED });
    }

    /// Asks for the last messages.
    pub fn end(&self) {
        self.send(END);
    }

    fn send(&self, request: u8) {
        // Without a reader there is no answer either.
        let _ = (&self.channel).write(&[request]);
    }
}
