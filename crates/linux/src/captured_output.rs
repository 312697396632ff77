//! The output of a program, captured while it runs.

use std::{
    fs::File,
    io::{self, Read},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::sys::{pipe, process::Program, wait_readable};

/// Time between two looks whether the program has ended.
const INTERVAL: Duration = Duration::from_millis(50);
/// Most that is read of a stream after the end of the program: no pipe holds more.
const MAX_REST_BYTES: usize = 1 << 20;

/// Standard output and standard error of a program.
pub(crate) struct CapturedOutput {
    readers: [JoinHandle<io::Result<Vec<u8>>>; 2],
    has_ended: Arc<AtomicBool>,
}

impl CapturedOutput {
    /// Captures the first `limit` bytes of each stream; the rest is discarded.
    pub(crate) fn of(program: &mut Program, limit: usize) -> io::Result<CapturedOutput> {
        let has_ended = Arc::new(AtomicBool::new(false));
        let [stdout, stderr] = [pipe()?, pipe()?];
        program.stdout(stdout.1).stderr(stderr.1);
        let readers = [stdout.0, stderr.0].map(|stream| {
            let has_ended = Arc::clone(&has_ended);
            thread::spawn(move || read(stream, limit, &has_ended))
        });
        Ok(CapturedOutput { readers, has_ended })
    }

    /// The text of both after the end of the program; invalid UTF-8 is replaced. Processes that it has left may keep
    /// them open.
    pub(crate) fn finish(self) -> io::Result<[String; 2]> {
        self.has_ended.store(true, Ordering::Relaxed);
        let [stdout, stderr] = self.readers.map(|reader| {
            let read = reader.join().map_err(|_| io::Error::other("the output could not be read"))?;
            read.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        });
        Ok([stdout?, stderr?])
    }
}

fn read(mut stream: File, limit: usize, has_ended: &AtomicBool) -> io::Result<Vec<u8>> {
    let (mut kept, mut part, mut rest) = (Vec::new(), [0; 1 << 14], 0);
    loop {
        let is_last = has_ended.load(Ordering::Relaxed);
        if !wait_readable(&stream, if is_last { Duration::ZERO } else { INTERVAL })? {
            if is_last {
                return Ok(kept);
            }
            continue;
        }
        let bytes = match stream.read(&mut part) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        rest += if is_last { bytes } else { 0 };
        if bytes == 0 || rest > MAX_REST_BYTES {
            return Ok(kept);
        }
        let room = limit.saturating_sub(kept.len());
        kept.extend_from_slice(part.get(..bytes.min(room)).unwrap_or_default());
    }
}
