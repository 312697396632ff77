//! The performance counters that a JVM publishes in a file in shared memory, `/tmp/hsperfdata_USER/PID`.
//!
//! Source: `perfMemory.hpp` and `perfData.hpp` of OpenJDK. The JVM is not involved in a reading. Most counters change
//! at collections only; a JVM with `-XX:-UsePerfData` has none.

use std::{collections::BTreeMap, fs::File, io, os::unix::fs::FileExt, path::Path, time::Duration};

use hugewise_linux::{
    proc::process::Process,
    reading::Reason,
    root::Root,
    sys::{
        aside::{Aside, Deadline},
        file::{self, inside},
    },
};

const MAGIC: u32 = 0xcafe_c0c0;
/// Size of the header, and offset of its field for the first entry.
const HEADER_BYTES: usize = 32;
const ENTRY_OFFSET: usize = 24;
/// Size of the head of an entry.
const ENTRY_BYTES: usize = 20;
/// Largest part of the file that is read; the default of `-XX:PerfDataMemorySize` is 32 KiB.
const MAX_FILE_BYTES: usize = 1 << 20;
/// Longest reading.
const TIME_LIMIT: Duration = Duration::from_secs(1);

/// Numbers by name, at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerformanceCounters(BTreeMap<String, i64>);

impl<'a> FromIterator<(&'a str, i64)> for PerformanceCounters {
    fn from_iter<I: IntoIterator<Item = (&'a str, i64)>>(counters: I) -> PerformanceCounters {
        PerformanceCounters(counters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

impl PerformanceCounters {
    /// The value of a counter; `None` if the JVM has no such counter.
    pub fn get(&self, name: &str) -> Option<i64> {
        self.0.get(name).copied()
    }

    /// The time in safepoints since the start of the JVM, in seconds: all its pauses. `None` if the JVM does not
    /// report it.
    pub fn safepoint_seconds(&self) -> Option<f64> {
        Some(self.get("sun.rt.safepointTime")? as f64 / self.ticks_per_second()?)
    }

    /// The time in collections since the start of the JVM, in seconds; `None` if the JVM does not report it.
    pub fn gc_seconds(&self) -> Option<f64> {
        let of_collector = |number: usize| self.get(&format!("sun.gc.collector.{number}.time"));
        let times: Vec<i64> = (0..4).map_while(of_collector).collect();
        if times.is_empty() {
            None
        } else {
            Some(times.iter().sum::<i64>() as f64 / self.ticks_per_second()?)
        }
    }

    fn ticks_per_second(&self) -> Option<f64> {
        self.get("sun.os.hrt.frequency").filter(|ticks| *ticks > 0).map(|ticks| ticks as f64)
    }

    /// Parses the file; `None` if it is in another format.
    fn parse(bytes: &[u8]) -> Option<PerformanceCounters> {
        let big = bytes.get(..4)? == MAGIC.to_be_bytes();
        // The magic number is always big-endian; a byte after it has the byte order of the other fields.
        let is_little = *bytes.get(4)? == 1;
        if !big || bytes.len() < HEADER_BYTES {
            return None;
        }
        let word = |at: usize| -> Option<usize> {
            let bytes: [u8; 4] = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
            let word = if is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) };
            usize::try_from(word).ok()
        };
        let number = |at: usize| -> Option<i64> {
            let bytes: [u8; 8] = bytes.get(at..at.checked_add(8)?)?.try_into().ok()?;
            Some(if is_little { i64::from_le_bytes(bytes) } else { i64::from_be_bytes(bytes) })
        };
        let mut counters = BTreeMap::new();
        let mut at = word(ENTRY_OFFSET)?;
        for _ in 0..word(ENTRY_OFFSET + 4)? {
            let length = word(at)?;
            let (name_at, vector_length, kind) = (word(at + 4)?, word(at + 8)?, *bytes.get(at + 12)?);
            let data_at = word(at + 16)?;
            if length < ENTRY_BYTES {
                return None;
            }
            let name = bytes.get(at.checked_add(name_at)?..at.checked_add(length)?)?;
            let name = name.split(|byte| *byte == 0).next()?;
            // Type `J`: a 64-bit number. A vector is a text.
            if kind == b'J' && vector_length == 0 {
                let value = number(at.checked_add(data_at)?)?;
                counters.insert(String::from_utf8_lossy(name).into_owned(), value);
            }
            at = at.checked_add(length)?;
        }
        Some(PerformanceCounters(counters))
    }
}

/// The file of the counters of a running JVM, opened aside: it is in a folder of the process, on a file system that may
/// hang, and the process can put any other file there.
#[derive(Debug)]
pub struct CounterFile(Aside);

impl CounterFile {
    /// Opens the file of process `pid`: a regular file of its user, below its own /tmp without a link.
    pub fn open(root: &Root, pid: u32) -> Result<CounterFile, Reason> {
        let process = Process::read(root, pid)?;
        let owner = *process.uid.known().ok_or_else(|| Reason::new("its user is unknown"))?;
        // By its id in the innermost namespace a JVM knows itself.
        let inner = process.pid_inside.unwrap_or(pid);
        let folder = root.path(format!("proc/{pid}/root"));
        let mut aside = Aside::start(&[], |answers| {
            let file = find(&folder, inner, owner)?;
            answers.send(&[], None)?;
            loop {
                answers.receive(&mut [0])?;
                answers.send(&beginning(&file)?, None)?;
            }
        })?;
        aside.receive(0, &Deadline::of_reading(TIME_LIMIT)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Reason::new(format!("process {pid} has no /tmp/hsperfdata_USER/{inner} (-XX:-UsePerfData?)"))
            }
            _ => Reason::new(format!("/tmp/hsperfdata_USER/{inner} of process {pid}: {error}")),
        })?;
        Ok(CounterFile(aside))
    }

    /// Reads the counters; `None` if the file is not in the format of OpenJDK now. After an error, every further reading
    /// fails.
    pub fn read(&mut self) -> Result<Option<PerformanceCounters>, Reason> {
        let deadline = Deadline::of_reading(TIME_LIMIT);
        self.0.send(&[0], &deadline)?;
        Ok(PerformanceCounters::parse(&self.0.receive(MAX_FILE_BYTES, &deadline)?.bytes))
    }
}

/// The file `/tmp/hsperfdata_USER/PID` below `folder`, of the user `owner`.
fn find(folder: &Path, pid: u32, owner: u32) -> io::Result<File> {
    let tmp = inside::directory(folder, Path::new("tmp"))?;
    let mut refused = io::Error::from(io::ErrorKind::NotFound);
    for name in file::names(&file::path_of(&tmp))? {
        if !name.to_string_lossy().starts_with("hsperfdata_") {
            continue;
        }
        match inside::open_of(&file::path_of(&tmp), &Path::new(&name).join(pid.to_string()), owner) {
            Ok(file) => return Ok(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// At most [`MAX_FILE_BYTES`] from the beginning of the file.
fn beginning(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; MAX_FILE_BYTES];
    let mut length = 0;
    while let Some(rest) = bytes.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, length as u64)? {
            0 => break,
            read => length += read,
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, process::Command};

    use hugewise_linux::sys::process::effective_uid;
    use proptest::prelude::*;

    use super::*;

    /// A little-endian file with these counters, and a text.
    fn made(counters: &[(&str, i64)]) -> Vec<u8> {
        let mut file = vec![0xca, 0xfe, 0xc0, 0xc0, 1, 2, 0, 1];
        file.resize(ENTRY_OFFSET, 0);
        file.extend((HEADER_BYTES as u32).to_le_bytes());
        file.extend((counters.len() as u32 + 1).to_le_bytes());
        let mut add = |name: &str, kind: u8, vector_length: u32, data: &[u8]| {
            let name_bytes = (name.len() + 1).next_multiple_of(8);
            let data_at = ENTRY_BYTES + 4 + name_bytes;
            file.extend(((data_at + data.len()) as u32).to_le_bytes());
            file.extend((ENTRY_BYTES as u32).to_le_bytes());
            file.extend(vector_length.to_le_bytes());
            file.extend([kind, 0, 0, 0]);
            file.extend((data_at as u32).to_le_bytes());
            let end = file.len() + name_bytes + 4;
            file.extend(name.as_bytes());
            file.resize(end, 0);
            file.extend(data);
        };
        add("java.property.java.version", b'B', 8, b"17.0.15\0");
        counters.iter().for_each(|(name, value)| add(name, b'J', 0, &value.to_le_bytes()));
        file
    }

    #[test]
    fn counters_are_read() {
        let file = made(&[
            ("sun.os.hrt.frequency", 1_000_000_000),
            ("sun.gc.collector.0.time", 1_500_000_000),
            ("sun.gc.collector.1.time", 500_000_000),
            ("sun.rt.safepointTime", 250_000_000),
        ]);
        let counters = PerformanceCounters::parse(&file);
        assert_eq!(counters.as_ref().and_then(PerformanceCounters::gc_seconds), Some(2.0));
        assert_eq!(counters.as_ref().and_then(PerformanceCounters::safepoint_seconds), Some(0.25));
        let text = counters.and_then(|counters| counters.get("java.property.java.version"));
        assert_eq!(text, None);
        assert_eq!(PerformanceCounters::parse(&made(&[])).and_then(|none| none.gc_seconds()), None);
    }

    /// A tree with process 7 of user `uid`, whose file of counters `make` makes.
    fn process(
        uid: u32,
        make: impl Fn(&Path) -> io::Result<()>,
    ) -> Result<(tempfile::TempDir, Root), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let folder = dir.path().join("proc/7/root/tmp/hsperfdata_x");
        fs::create_dir_all(&folder)?;
        let status =
            format!("Name:\tjava\nState:\tS\nUid:\t{uid}\t{uid}\t0\t0\nNSpid:\t7\t5\nVmSize:\t4 kB\n");
        fs::write(dir.path().join("proc/7/status"), status)?;
        fs::write(
            dir.path().join("proc/7/stat"),
            "7 (java) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 9 0 4711 0 0",
        )?;
        make(&folder.join("5"))?;
        let root = Root::at(dir.path());
        Ok((dir, root))
    }

    #[test]
    fn only_a_file_of_the_process_is_read() -> Result<(), Box<dyn std::error::Error>> {
        let ours = effective_uid();
        let plain = |path: &Path| fs::write(path, made(&[("a", 7)]));
        let (_dir, root) = process(ours, plain)?;
        let mut file = CounterFile::open(&root, 7)?;
        assert_eq!(file.read()?.and_then(|counters| counters.get("a")), Some(7));
        assert_eq!(file.read()?.and_then(|counters| counters.get("a")), Some(7), "it is read again");
        let refused = |uid, make: &dyn Fn(&Path) -> io::Result<()>| {
            let (_dir, root) = process(uid, make)?;
            Ok::<_, Box<dyn std::error::Error>>(CounterFile::open(&root, 7).is_err())
        };
        assert!(refused(ours + 1, &plain)?, "a file of another user");
        assert!(refused(ours, &|path| symlink("/proc/self/pagemap", path))?, "a link");
        assert!(refused(ours, &|path| Command::new("mkfifo").arg(path).status().map(drop))?, "a pipe");
        assert!(refused(ours, &|path| fs::create_dir(path))?, "a folder");
        assert!(refused(ours, &|_| Ok(()))?, "none");
        Ok(())
    }

    #[test]
    fn a_file_that_shrinks_and_one_without_end_are_read() -> Result<(), Box<dyn std::error::Error>> {
        let endless = |path: &Path| {
            fs::write(path, made(&[("a", 7)]))?;
            File::options().write(true).open(path)?.set_len(1 << 40)
        };
        let (dir, root) = process(effective_uid(), endless)?;
        let mut file = CounterFile::open(&root, 7)?;
        assert_eq!(file.read()?.and_then(|counters| counters.get("a")), Some(7));
        let path = dir.path().join("proc/7/root/tmp/hsperfdata_x/5");
        File::options().write(true).open(&path)?.set_len(40)?;
        assert_eq!(file.read()?, None);
        File::options().write(true).open(&path)?.set_len(0)?;
        assert_eq!(file.read()?, None);
        Ok(())
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(at in 0usize..300, bytes in prop::collection::vec(any::<u8>(), 0..16)) {
            let mut file = made(&[("a", 1), ("sun.os.hrt.frequency", 2)]);
            for (byte, other) in file.iter_mut().skip(at).zip(&bytes) {
                *byte = *other;
            }
            let _ = PerformanceCounters::parse(&file);
            let _ = PerformanceCounters::parse(&file[..at.min(file.len())]);
            let _ = PerformanceCounters::parse(&bytes);
        }
    }
}
