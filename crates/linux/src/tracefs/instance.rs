//! An open tracing instance.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use super::{DamagedPage, Format, Layout, Page, Tracefs, TracefsError};
use crate::sys::file;

/// Largest format of an event or table of counters, in bytes.
const MAX_TEXT_BYTES: u64 = 1 << 20;

/// A tracing instance that was created through the journal.
#[derive(Debug)]
pub struct Instance {
    dir: PathBuf,
    layout: Layout,
    /// The raw buffer of each CPU, by CPU number.
    buffers: Vec<(u32, File)>,
    piece: Vec<u8>,
    /// Keeps the mount of `dir`.
    _tracefs: Tracefs,
}

/// Options of an instance.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Buffer size per CPU, in KiB.
    pub buffer_kib: u64,
}

/// An event to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// The subsystem: `compaction`, …
    pub system: &'a str,
    /// The event: `mm_compaction_begin`, …
    pub name: &'a str,
    /// A filter in the syntax of the event's `filter` file; empty for all events.
    pub filter: &'a str,
}

/// Lost events since the instance was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Number of events overwritten before they were read, or dropped.
    pub events: u64,
}

impl Instance {
    /// Configures the instance `id`: its clock is CLOCK_MONOTONIC, and it also records the children of
    /// followed threads.
    pub fn open(tracefs: Tracefs, id: u32, options: Options) -> Result<Instance, TracefsError> {
        let dir = tracefs.instance(id);
        let header = dir.join("events/header_page");
        let text = read_at_once(&header).map_err(failed(&header))?;
        let layout = Layout::parse(&text)
            .ok_or_else(|| failed(&header)(io::Error::new(io::ErrorKind::InvalidData, text)))?;
        let mut instance =
            Instance { dir, layout, buffers: Vec::new(), piece: vec![0; layout.size], _tracefs: tracefs };
        instance.write("trace_clock", "mono")?;
        instance.write("options/event-fork", "1")?;
        instance.set_buffer(options.buffer_kib)?;
        instance.open_buffers()?;
        Ok(instance)
    }

    fn open_buffers(&mut self) -> Result<(), TracefsError> {
        let folder = self.dir.join("per_cpu");
        for name in file::names(&folder).map_err(failed(&folder))? {
            let cpu = name.to_string_lossy().strip_prefix("cpu").and_then(|n| n.parse().ok());
            let Some(cpu) = cpu else { continue };
            let path = folder.join(name).join("trace_pipe_raw");
            self.buffers.push((cpu, file::open(&path).map_err(failed(&path))?));
        }
        self.buffers.sort_by_key(|(cpu, _)| *cpu);
        Ok(())
    }

    /// The number of CPUs with a buffer.
    pub fn cpus(&self) -> usize {
        self.buffers.len()
    }

    /// Sets the buffer size per CPU. Growing keeps the contents.
    pub fn set_buffer(&self, kib: u64) -> Result<(), TracefsError> {
        self.write("buffer_size_kb", &kib.to_string())
    }

    /// Enables an event; `None` if the kernel does not have it.
    pub fn enable(&self, event: Event<'_>) -> Result<Option<Format>, TracefsError> {
        let folder = Path::new("events").join(event.system).join(event.name);
        let path = self.dir.join(&folder).join("format");
        let text = match file::read_text(&path, MAX_TEXT_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(failed(&path))?,
        };
        let format = Format::parse(&text).ok_or_else(|| failed(&path)(io::ErrorKind::InvalidData.into()))?;
        if !event.filter.is_empty() {
            self.write(folder.join("filter"), event.filter)?;
        }
        self.write(folder.join("enable"), "1")?;
        Ok(Some(format))
    }

    /// Starts to record these threads and their future children.
    pub fn follow(&self, tids: &[u32]) -> Result<(), TracefsError> {
        let path = self.dir.join("set_event_pid");
        let mut file = file::open_to_add(&path).map_err(failed(&path))?;
        // The kernel accepts less than a page per write.
        for some in tids.chunks(256) {
            let text: String = some.iter().map(|tid| format!("{tid} ")).collect();
            file.write_all(text.as_bytes()).map_err(failed(&path))?;
        }
        Ok(())
    }

    /// Reads all buffers, CPU by CPU. Returns the number of bytes in the fullest.
    pub fn drain(
        &mut self,
        mut each: impl FnMut(u32, Result<Page<'_>, DamagedPage>),
    ) -> Result<u64, TracefsError> {
        let mut fullest = 0;
        for (cpu, buffer) in &mut self.buffers {
            let mut bytes = 0;
            loop {
                match buffer.read(&mut self.piece) {
                    Ok(0) => break,
                    Ok(length) => {
                        bytes += length as u64;
                        each(*cpu, Page::open(self.piece.get(..length).unwrap_or_default(), self.layout));
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(source) => {
                        let path = self.dir.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
                        return Err(failed(&path)(source));
                    }
                }
            }
            fullest = fullest.max(bytes);
        }
        Ok(fullest)
    }

    /// The events lost since the instance was created.
    pub fn losses(&self) -> Result<Losses, TracefsError> {
        let mut losses = Losses::default();
        for (cpu, _) in &self.buffers {
            let path = self.dir.join(format!("per_cpu/cpu{cpu}/stats"));
            let text = file::read_text(&path, MAX_TEXT_BYTES).map_err(failed(&path))?;
            losses.events = losses.events.saturating_add(Losses::parse(&text).events);
        }
        Ok(losses)
    }

    fn write(&self, name: impl AsRef<Path>, value: &str) -> Result<(), TracefsError> {
        let path = self.dir.join(name);
        file::set(&path, value).map_err(failed(&path))
    }
}

/// Reads a file with one system call: a second read returns nothing.
fn read_at_once(path: &Path) -> io::Result<String> {
    let mut bytes = vec![0; 1 << 12];
    let length = file::open(path)?.read(&mut bytes)?;
    bytes.truncate(length);
    String::from_utf8(bytes).map_err(io::Error::other)
}

fn failed(path: &Path) -> impl Fn(io::Error) -> TracefsError {
    move |source| TracefsError::Io { path: path.to_owned(), source }
}

impl Losses {
    /// Parses `per_cpu/cpuN/stats`: the sum of the counters of lost events.
    pub fn parse(stats: &str) -> Losses {
        let counted = ["overrun", "commit overrun", "dropped events"];
        let number = |line: &str| {
            let (name, number) = line.split_once(':')?;
            counted.contains(&name.trim()).then(|| number.trim().parse::<u64>().ok())?
        };
        Losses { events: stats.lines().filter_map(number).fold(0, u64::saturating_add) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_to_lose_events_are_counted() {
        let stats = "entries: 17\noverrun: 3\ncommit overrun: 1\nbytes: 96\noldest event ts: 5.2\nnow ts: 6.1\n\
                     dropped events: 2\nread events: 9\n";
        assert_eq!(Losses::parse(stats).events, 6);
    }
}
