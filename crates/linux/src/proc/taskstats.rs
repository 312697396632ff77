//! taskstats: the delays of each thread, by generic netlink.
//!
//! Sources: Documentation/accounting/{taskstats,taskstats-struct,delay-accounting}.rst and
//! include/uapi/linux/{taskstats,genetlink,netlink}.h. The kernel accounts delays only for threads that
//! started while `kernel.task_delayacct` was 1.

use std::{
    io,
    time::{Duration, Instant},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    native_endian::{u16_at, u32_at, u64_at},
    sys::netlink::Socket,
};

const NLM_F_REQUEST: u16 = libc::NLM_F_REQUEST as u16;
const CTRL_CMD_GETFAMILY: u8 = libc::CTRL_CMD_GETFAMILY as u8;
const CTRL_ATTR_FAMILY_ID: u16 = libc::CTRL_ATTR_FAMILY_ID as u16;
const CTRL_ATTR_FAMILY_NAME: u16 = libc::CTRL_ATTR_FAMILY_NAME as u16;
const TASKSTATS_CMD_GET: u8 = 1;
const CMD_ATTR_PID: u16 = 1;
const CMD_ATTR_REGISTER_CPUMASK: u16 = 3;
const TYPE_STATS: u16 = 3;
const TYPE_AGGR_PID: u16 = 4;
/// Mask that removes the flags for nested attributes and network byte order.
const TYPE_MASK: u16 = 0x3fff;

const HEADER: usize = 16;
const GENERIC_HEADER: usize = 4;
/// Maximum length of a datagram, in bytes: a few structures of about 600 bytes.
const MAX_DATAGRAM_BYTES: usize = 16 << 10;
/// Maximum wait for the kernel's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Socket buffer for threads that exit between two samples, in bytes.
const SOCKET_BUFFER_BYTES: i32 = 16 << 20;

/// The waits of a thread for one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Delay {
    /// Number of waits.
    pub count: u64,
    /// Total duration, in nanoseconds.
    pub ns: u64,
}

/// The waits of a thread since its start, by resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Delays {
    /// Direct compaction (`COMPACT`); `null` before version 11 of taskstats.
    pub compact: Option<Delay>,
    /// Direct reclaim (`FREEPAGES`).
    pub reclaim: Delay,
    /// Pages reclaimed shortly before (thrashing); `null` before version 9 of taskstats.
    pub thrashing: Option<Delay>,
    /// Pages read from swap.
    pub swap_in: Delay,
    /// Copies on write; `null` before version 13 of taskstats.
    pub copy_on_write: Option<Delay>,
    /// A CPU, while the thread was runnable.
    pub cpu: Delay,
    /// Block devices.
    pub block_io: Delay,
}

/// The kernel's accounting of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskStats {
    /// The version of the structure.
    pub version: u16,
    /// The thread id.
    pub tid: u32,
    /// The process id; `None` before version 12.
    pub pid: Option<u32>,
    /// The process id of the parent process.
    pub parent: u32,
    pub name: String,
    /// CPU time in user mode, in microseconds.
    pub user_us: u64,
    /// CPU time in kernel mode, in microseconds.
    pub sys_us: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub delays: Delays,
}

/// A netlink socket for taskstats.
#[derive(Debug)]
pub struct Channel {
    socket: Socket,
    family: u16,
    buffer: Vec<u8>,
}

impl Channel {
    /// ENOENT if the kernel has no taskstats; queries need CAP_NET_ADMIN.
    pub fn open() -> io::Result<Channel> {
        let mut channel = Channel {
            socket: Socket::open(SOCKET_BUFFER_BYTES)?,
            family: libc::GENL_ID_CTRL as u16,
            buffer: vec![0; MAX_DATAGRAM_BYTES],
        };
        channel.send(NLM_F_REQUEST, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, b"TASKSTATS\0")?;
        let answer = channel.answer()?;
        let family = attributes(&answer)
            .find(|(kind, _)| *kind == CTRL_ATTR_FAMILY_ID)
            .and_then(|(_, value)| u16_at(value, 0));
        channel.family = family.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(channel)
    }

    /// The accounting of thread `tid`. ESRCH if it has exited.
    ///
    /// Must not follow [`Channel::subscribe_exits`]: exit messages would be lost.
    pub fn thread(&mut self, tid: u32) -> io::Result<TaskStats> {
        self.send(NLM_F_REQUEST, TASKSTATS_CMD_GET, CMD_ATTR_PID, &tid.to_ne_bytes())?;
        let answer = self.answer()?;
        stats(&answer).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// Subscribes to the exit of every thread of the machine on one of `cpus` (for example `0-3,8`).
    pub fn subscribe_exits(&mut self, cpus: &str) -> io::Result<()> {
        let mask = format!("{}\0", cpus.trim());
        let flags = NLM_F_REQUEST | libc::NLM_F_ACK as u16;
        self.send(flags, TASKSTATS_CMD_GET, CMD_ATTR_REGISTER_CPUMASK, mask.as_bytes())?;
        self.answer().map(drop)
    }

    /// The next thread that exited; `None` if there is none. ENOBUFS if messages were lost.
    pub fn next_exit(&mut self) -> io::Result<Option<TaskStats>> {
        while let Some(length) = self.socket.receive(&mut self.buffer)? {
            let reported = TaskStats::of_datagram(self.buffer.get(..length).unwrap_or_default())?;
            if reported.is_some() {
                return Ok(reported);
            }
        }
        Ok(None)
    }

    fn send(&self, flags: u16, command: u8, attribute: u16, value: &[u8]) -> io::Result<()> {
        self.socket.send(&request(self.family, flags, command, attribute, value))
    }

    fn answer(&mut self) -> io::Result<Vec<u8>> {
        let begin = Instant::now();
        loop {
            if let Some(length) = self.socket.receive(&mut self.buffer)? {
                return message(self.buffer.get(..length).unwrap_or_default()).map(<[u8]>::to_vec);
            }
            if begin.elapsed() > ANSWER_TIMEOUT {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.socket.wait(Duration::from_millis(100))?;
        }
    }
}

impl TaskStats {
    /// The thread in a datagram of the kernel; `None` if the message is about something else. An error
    /// message is returned as error.
    pub fn of_datagram(datagram: &[u8]) -> io::Result<Option<TaskStats>> {
        message(datagram).map(stats)
    }
}

fn request(family: u16, flags: u16, command: u8, attribute: u16, value: &[u8]) -> Vec<u8> {
    let attribute_length = 4 + value.len();
    let length = HEADER + GENERIC_HEADER + attribute_length.next_multiple_of(4);
    let mut message = Vec::with_capacity(length);
    message.extend((length as u32).to_ne_bytes());
    message.extend(family.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // Sequence number and port, which the kernel ignores.
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend((attribute_length as u16).to_ne_bytes());
    message.extend(attribute.to_ne_bytes());
    message.extend(value);
    message.resize(length, 0);
    message
}

/// The attributes of a datagram's message, or the error in it.
fn message(datagram: &[u8]) -> io::Result<&[u8]> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let kind = u16_at(datagram, 4).ok_or_else(invalid)?;
    if i32::from(kind) == libc::NLMSG_ERROR {
        return match u32_at(datagram, HEADER).ok_or_else(invalid)? as i32 {
            0 => Ok(&[]),
            code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        };
    }
    datagram.get(HEADER + GENERIC_HEADER..).ok_or_else(invalid)
}

/// Type and value of each attribute.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let value = bytes.get(4..length)?;
        let kind = u16_at(bytes, 2)? & TYPE_MASK;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn stats(body: &[u8]) -> Option<TaskStats> {
    let (_, of_thread) = attributes(body).find(|(kind, _)| *kind == TYPE_AGGR_PID)?;
    let (_, stats) = attributes(of_thread).find(|(kind, _)| *kind == TYPE_STATS)?;
    parse(stats)
}

/// Parses `struct taskstats`. Every version appends fields, except version 15, which inserted maximum and
/// minimum after each delay (version 16 moved them to the end).
fn parse(bytes: &[u8]) -> Option<TaskStats> {
    let version = u16_at(bytes, 0)?;
    let wide = version == 15;
    let mut at = 16;
    let delay = |at: &mut usize| {
        let delay = Delay { count: u64_at(bytes, *at)?, ns: u64_at(bytes, *at + 8)? };
        *at += if wide { 32 } else { 16 };
        Some(delay)
    };
    let (cpu, block_io, swap_in) = (delay(&mut at)?, delay(&mut at)?, delay(&mut at)?);
    at += 16; // cpu_run_{real,virtual}_total
    let name = bytes.get(at..at + 32)?;
    let name = String::from_utf8_lossy(name.split(|byte| *byte == 0).next()?).into_owned();
    at += 32 + 8; // ac_sched
    let (tid, parent) = (u32_at(bytes, at + 8)?, u32_at(bytes, at + 12)?);
    at += 24; // ac_uid, ac_gid, ac_pid, ac_ppid, ac_btime
    let (user_us, sys_us) = (u64_at(bytes, at + 8)?, u64_at(bytes, at + 16)?);
    let (minor_faults, major_faults) = (u64_at(bytes, at + 24)?, u64_at(bytes, at + 32)?);
    // ac_etime to ac_majflt; memory, I/O and switches up to cpu_scaled_run_real_total.
    at += 5 * 8 + 16 * 8;
    let reclaim = delay(&mut at)?;
    let thrashing = if version >= 9 { delay(&mut at) } else { None };
    at += 8; // ac_btime64
    let compact = if version >= 11 { delay(&mut at) } else { None };
    let pid = if version >= 12 { u32_at(bytes, at) } else { None };
    at += 32; // ac_tgid, ac_tgetime, ac_exe_dev, ac_exe_inode
    let copy_on_write = if version >= 13 { delay(&mut at) } else { None };
    let delays = Delays { compact, reclaim, thrashing, swap_in, copy_on_write, cpu, block_io };
    Some(TaskStats { version, tid, pid, parent, name, user_us, sys_us, minor_faults, major_faults, delays })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_kernel_reports_this_thread() {
        let Ok(mut channel) = Channel::open() else { return };
        let stats = match channel.thread(std::process::id()) {
            Ok(stats) => stats,
            // CAP_NET_ADMIN is missing.
            Err(error) => return assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        };
        assert_eq!(stats.tid, std::process::id());
        assert!(stats.pid.is_none_or(|pid| pid == std::process::id()));
        assert!(stats.minor_faults > 0 && !stats.name.is_empty(), "{stats:?}");
        assert_eq!(channel.thread(u32::MAX / 2).err().and_then(|error| error.raw_os_error()), Some(3));
    }

    proptest! {
        #[test]
        fn no_datagram_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
            let _ = TaskStats::of_datagram(&bytes);
            let _ = parse(&bytes);
        }

        #[test]
        fn a_request_is_what_the_kernel_would_read(value in prop::collection::vec(any::<u8>(), 0..40)) {
            let bytes = request(20, NLM_F_REQUEST, TASKSTATS_CMD_GET, CMD_ATTR_PID, &value);
            prop_assert_eq!(u32_at(&bytes, 0), Some(bytes.len() as u32));
            let body = message(&bytes).map_err(|error| TestCaseError::fail(error.to_string()))?;
            let found: Vec<_> = attributes(body).collect();
            prop_assert_eq!(found, vec![(CMD_ATTR_PID, value.as_slice())]);
        }
    }
}
