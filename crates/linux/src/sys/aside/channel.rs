//! Messages between this process and one that works aside, over a socket: a kind, a length, and the bytes.

use std::{
    io::{self, Read, Write},
    mem,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    ptr,
    time::{Duration, Instant},
};

use crate::{
    interrupt::Interrupt,
    sys::{checked, wait_readable, wait_writable},
};

const ANSWER: u8 = 0;
/// The bytes are an error number of 4 bytes, or 0, and a text.
const ERROR: u8 = 1;
/// Kind and length.
const HEAD_BYTES: usize = 9;
/// Longest text of an error, in bytes.
const MAX_ERROR_BYTES: usize = 4096;
/// Time between two checks for a signal.
const INTERRUPT_INTERVAL: Duration = Duration::from_millis(50);

/// The end of the time in which other processes are waited for.
#[derive(Clone, Copy, Debug)]
pub struct Deadline<'a> {
    end: Instant,
    interrupt: Option<&'a Interrupt>,
}

impl<'a> Deadline<'a> {
    /// A deadline `time` from now, or at a signal of `interrupt`.
    pub fn after(time: Duration, interrupt: Option<&'a Interrupt>) -> Deadline<'a> {
        Deadline { end: Instant::now() + time, interrupt }
    }

    /// The same, but `time` from now if that is earlier.
    #[must_use]
    pub fn at_most(self, time: Duration) -> Deadline<'a> {
        Deadline { end: self.end.min(Instant::now() + time), ..self }
    }

    /// The time that is left; `TimedOut` without any, `Interrupted` after a signal.
    pub fn left(&self) -> io::Result<Duration> {
        if self.interrupt.is_some_and(|interrupt| interrupt.signal().is_some()) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
        }
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"))
        } else {
            Ok(left)
        }
    }

    /// Waits with `wait` until it returns true.
    pub(super) fn wait(&self, wait: impl Fn(Duration) -> io::Result<bool>) -> io::Result<()> {
        while !wait(self.left()?.min(INTERRUPT_INTERVAL))? {}
        Ok(())
    }
}

/// What the work has sent.
#[derive(Debug)]
pub struct Message {
    pub bytes: Vec<u8>,
    pub descriptor: Option<OwnedFd>,
}

/// The end of the channel in the child.
#[derive(Debug)]
pub struct Answers(UnixStream);

impl Answers {
    pub(super) fn new(channel: UnixStream) -> Answers {
        Answers(channel)
    }

    /// Sends an answer, with a descriptor if there is one.
    pub fn send(&mut self, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.message(ANSWER, bytes, descriptor)
    }

    pub(super) fn send_error(&mut self, error: &io::Error) -> io::Result<()> {
        let number = error.raw_os_error().unwrap_or(0).to_ne_bytes();
        let text = error.to_string();
        let text = &text.as_bytes()[..text.len().min(MAX_ERROR_BYTES - number.len())];
        self.message(ERROR, &[&number, text].concat(), None)
    }

    fn message(&mut self, kind: u8, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut head = [kind; HEAD_BYTES];
        head[1..].copy_from_slice(&(bytes.len() as u64).to_ne_bytes());
        send_with(&self.0, &head, descriptor)?;
        self.0.write_all(bytes)
    }

    /// Waits for `bytes` from the other process; `UnexpectedEof` if it has dropped its [`super::Aside`].
    pub fn receive(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact(bytes)
    }
}

pub(super) fn send(channel: &UnixStream, mut bytes: &[u8], deadline: &Deadline<'_>) -> io::Result<()> {
    while !bytes.is_empty() {
        deadline.wait(|time| wait_writable(channel, time))?;
        match (&*channel).write(bytes) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if is_early(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub(super) fn receive(channel: &UnixStream, limit: usize, deadline: &Deadline<'_>) -> io::Result<Message> {
    let mut head = [0; HEAD_BYTES];
    let (mut got, mut descriptor) = (0, None);
    while got < HEAD_BYTES {
        deadline.wait(|time| wait_readable(channel, time))?;
        match receive_with(channel, &mut head[got..]) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((more, found)) => (got, descriptor) = (got + more, found.or(descriptor)),
            Err(error) if is_early(&error) => {}
            Err(error) => return Err(error),
        }
    }
    let [kind, length @ ..] = head;
    let limit = if kind == ERROR { MAX_ERROR_BYTES } else { limit };
    let length = usize::try_from(u64::from_ne_bytes(length)).ok().filter(|length| *length <= limit);
    let Some(length) = length else {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {limit} bytes")));
    };
    let (mut bytes, mut got) = (vec![0; length], 0);
    while got < length {
        deadline.wait(|time| wait_readable(channel, time))?;
        match (&*channel).read(&mut bytes[got..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(more) => got += more,
            Err(error) if is_early(&error) => {}
            Err(error) => return Err(error),
        }
    }
    if kind == ERROR { Err(error(&bytes)) } else { Ok(Message { bytes, descriptor }) }
}

/// Whether a call on a non-blocking socket is to be repeated.
fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// The error that [`Answers::send_error`] sent.
fn error(bytes: &[u8]) -> io::Error {
    let (number, text) =
        bytes.split_first_chunk().map_or((0, bytes), |(n, text)| (i32::from_ne_bytes(*n), text));
    match number {
        0 => io::Error::other(String::from_utf8_lossy(text).into_owned()),
        number => io::Error::from_raw_os_error(number),
    }
}

/// Room for the control message of one descriptor, aligned as its head.
#[repr(C)]
union Control {
    _head: libc::cmsghdr,
    bytes: [u8; 64],
}

/// The size of a descriptor in a control message.
const DESCRIPTOR_BYTES: u32 = size_of::<libc::c_int>() as u32;

/// Sends all of `bytes`, which are few, with a descriptor if there is one.
fn send_with(channel: &UnixStream, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = Control { bytes: [0; 64] };
    // SAFETY: zero is a valid value of each field.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    if let Some(descriptor) = descriptor {
        message.msg_control = (&raw mut control).cast();
        // SAFETY: CMSG_SPACE computes; the head and the data of the first control message lie in `control`, which is
        // large enough and aligned.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(DESCRIPTOR_BYTES) as _;
            let head = libc::CMSG_FIRSTHDR(&raw const message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(DESCRIPTOR_BYTES) as _;
            ptr::write_unaligned(libc::CMSG_DATA(head).cast(), descriptor.as_raw_fd());
        }
    }
    // SAFETY: the message and what it points to live until the call is over, and are only read.
    let sent =
        checked(unsafe { libc::sendmsg(channel.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) })?;
    if sent.unsigned_abs() == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives at most `bytes`, and a descriptor if one was sent with them.
fn receive_with(channel: &UnixStream, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = Control { bytes: [0; 64] };
    // SAFETY: zero is a valid value of each field.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    message.msg_control = (&raw mut control).cast();
    // SAFETY: CMSG_SPACE computes. The message and what it points to live until the call is over, and have the given
    // sizes. A head that CMSG_FIRSTHDR returns lies in `control`, as does a descriptor behind it, which is new and ours.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(DESCRIPTOR_BYTES) as _;
        let flags = libc::MSG_CMSG_CLOEXEC;
        let got = checked(libc::recvmsg(channel.as_raw_fd(), &raw mut message, flags))?.unsigned_abs();
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        let is_descriptor = !head.is_null()
            && (*head).cmsg_level == libc::SOL_SOCKET
            && (*head).cmsg_type == libc::SCM_RIGHTS;
        let descriptor =
            is_descriptor.then(|| OwnedFd::from_raw_fd(ptr::read_unaligned(libc::CMSG_DATA(head).cast())));
        Ok((got, descriptor))
    }
}
