//! Files of a log rotation: groups, sorts and opens them.
//!
//! A JVM writes to the named file and, when that is full, renames it to `.0`, `.1`, … in turn; the file
//! without a number is the newest. JDK 8 writes to `.N.current`. The next JVM continues the same rotation.

use std::{
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    time::SystemTime,
};

use hugewise_linux::sys::file;
use hugewise_texts::decoder;
use memchr::memchr;

use super::{Stamp, unified};

/// Bytes read at the beginning and the end of a file to find its timestamps.
const TIMESTAMP_SEARCH_BYTES: u64 = 64 << 10;

/// Groups files into sets, each sorted by time; the sets keep the order of `files`. Duplicates are dropped.
pub fn arrange(files: &[PathBuf]) -> Vec<Vec<PathBuf>> {
    arrange_by(files, &FileTimes::of)
}

/// Like [`arrange`], with the times that `times_of` returns for each file.
pub fn arrange_by(files: &[PathBuf], times_of: &dyn Fn(&Path) -> FileTimes) -> Vec<Vec<PathBuf>> {
    let mut sets: Vec<(PathBuf, Vec<Member>)> = Vec::new();
    for file in files {
        let (base, place) = place(file);
        let member = Member { file: file.clone(), place };
        match sets.iter_mut().find(|(of, _)| *of == base) {
            Some((_, members)) if members.iter().any(|known| known.file == *file) => {}
            Some((_, members)) => members.push(member),
            None => sets.push((base, vec![member])),
        }
    }
    sets.into_iter().map(|(_, members)| ordered(members, times_of)).collect()
}

/// Other files of the rotation in the same directory.
pub fn beside(file: &Path) -> Vec<PathBuf> {
    let (base, _) = place(file);
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found: Vec<PathBuf> = file::names(folder)
        .unwrap_or_default()
        .into_iter()
        .map(|name| file.with_file_name(name))
        .filter(|other| other != file && place(other).0 == base)
        .collect();
    found.sort();
    found
}

/// Opens a file, or standard input for `-`; gzip is decompressed.
pub fn open(file: &Path) -> io::Result<Box<dyn Read>> {
    if file == Path::new("-") {
        decoder::open(io::stdin().lock())
    } else {
        decoder::open(file::open_named(file)?)
    }
}

struct Member {
    file: PathBuf,
    place: RotationSlot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RotationSlot {
    /// The file that the JVM writes to; JDK 8 numbers it, too.
    Newest(Option<u64>),
    /// A full file, by its number.
    Full(u64),
}

/// Base name of the set and position in the rotation, of a name such as `gc.log.3.gz`.
fn place(file: &Path) -> (PathBuf, RotationSlot) {
    let Some(name) = file.file_name().and_then(|name| name.to_str()) else {
        return (file.to_owned(), RotationSlot::Newest(None));
    };
    let name = name.strip_suffix(".gz").unwrap_or(name);
    let (name, current) = name.strip_suffix(".current").map_or((name, false), |name| (name, true));
    let numbered = name.rsplit_once('.').and_then(|(base, number)| {
        // Longer numbers are dates or process ids.
        let number = number.parse().ok().filter(|_| number.len() <= 3)?;
        Some((base, number))
    });
    let (base, place) = match numbered {
        Some((base, number)) if current => (base, RotationSlot::Newest(Some(number))),
        Some((base, number)) => (base, RotationSlot::Full(number)),
        None => (name, RotationSlot::Newest(None)),
    };
    (file.with_file_name(base), place)
}

/// Times at which a file was written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FileTimes {
    first: Stamp,
    last: Stamp,
    modified: Option<SystemTime>,
}

fn ordered(mut members: Vec<Member>, times_of: &dyn Fn(&Path) -> FileTimes) -> Vec<PathBuf> {
    if members.len() < 2 {
        return members.into_iter().map(|member| member.file).collect();
    }
    members.sort_by_key(|member| match member.place {
        RotationSlot::Full(number) => (false, number),
        RotationSlot::Newest(number) => (true, number.unwrap_or(0)),
    });
    let newest = members.iter().filter(|member| matches!(member.place, RotationSlot::Newest(_))).count();
    let full = members.len() - newest;
    let mut known: Vec<(PathBuf, FileTimes)> =
        members.iter().map(|member| (member.file.clone(), times_of(&member.file))).collect();
    if known.iter().all(|(_, seen)| seen.first.unix_ns.is_some()) {
        known.sort_by_key(|(_, seen)| seen.first.unix_ns);
    } else if let Some(RotationSlot::Newest(Some(number))) = members.last().map(|member| member.place) {
        let older = members[..full].iter().filter(|m| matches!(m.place, RotationSlot::Full(n) if n < number));
        known[..full].rotate_left(older.count());
    } else {
        let start = (0..full.max(1)).min_by_key(|start| cost(&known, full, *start)).unwrap_or(0);
        known[..full].rotate_left(start);
    }
    known.into_iter().map(|(file, _)| file).collect()
}

/// Discontinuity of the order that begins at `start`: number of uptimes that decrease, total gap in
/// nanoseconds, number of modification times that decrease.
fn cost(known: &[(PathBuf, FileTimes)], full: usize, start: usize) -> (usize, u64, usize) {
    let order = || (start..full).chain(0..start).chain(full..known.len());
    let mut cost = (0, 0u64, 0);
    for (before, after) in order().zip(order().skip(1)) {
        let (before, after) = (known[before].1, known[after].1);
        let age = |stamp: Stamp| stamp.uptime_ns.or(stamp.monotonic_ns);
        if let (Some(end), Some(begin)) = (age(before.last), age(after.first)) {
            cost.0 += usize::from(begin < end);
            cost.1 = cost.1.saturating_add(begin.saturating_sub(end));
        }
        cost.2 += usize::from(before.modified > after.modified);
    }
    cost
}

impl FileTimes {
    /// From the beginning and the end of a file; unreadable parts count as empty.
    pub fn in_text(head: impl Read, tail: impl Read, modified: Option<SystemTime>) -> FileTimes {
        FileTimes {
            first: stamps(head.take(TIMESTAMP_SEARCH_BYTES)).0.unwrap_or_default(),
            last: stamps(tail.take(TIMESTAMP_SEARCH_BYTES)).1.unwrap_or_default(),
            modified,
        }
    }

    fn of(file: &Path) -> FileTimes {
        let nothing = || -> Box<dyn Read> { Box::new(io::empty()) };
        FileTimes::in_text(
            open(file).unwrap_or_else(|_| nothing()),
            tail(file).map_or_else(|_| nothing(), |tail| Box::new(tail)),
            file.metadata().and_then(|found| found.modified()).ok(),
        )
    }
}

/// End of an uncompressed file.
fn tail(file: &Path) -> io::Result<impl Read> {
    let mut input = file::open(file)?;
    let size = input.metadata()?.len();
    input.seek(SeekFrom::Start(size.saturating_sub(TIMESTAMP_SEARCH_BYTES)))?;
    Ok(input)
}

/// First and last timestamp.
fn stamps(input: impl Read) -> (Option<Stamp>, Option<Stamp>) {
    let (mut first, mut last) = (None, None);
    // An unreadable file has no timestamps, and is sorted by its number.
    let _ = decoder::each_line(input, |_, lines, _| {
        for line in lines {
            let stamp = match &line[..] {
                [b'[', next, ..] if next.is_ascii_digit() => {
                    Stamp::of_decorations(unified::split(line).0, false)
                }
                [next, ..] if next.is_ascii_digit() => {
                    let end = memchr(b'[', line).unwrap_or(line.len());
                    Stamp::before_text(&line[..end]).0
                }
                _ => Stamp::default(),
            };
            if stamp != Stamp::default() {
                first.get_or_insert(stamp);
                last = Some(stamp);
            }
        }
    });
    (first, last)
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use super::*;

    fn names(set: &[PathBuf]) -> Vec<&str> {
        set.iter().filter_map(|file| file.file_name()?.to_str()).collect()
    }

    #[test]
    fn sets_are_distinguished_by_their_names() {
        let files: Vec<PathBuf> =
            ["a/gc.log", "a/gc.log", "b/gc.log.1", "a/gc.log.1.gz", "a/gc_4711.log", "a/gc.log.20261121"]
                .map(PathBuf::from)
                .into();
        let sets = arrange(&files);
        let sets: Vec<_> = sets.iter().map(|set| names(set)).collect();
        assert_eq!(
            sets,
            [vec!["gc.log.1.gz", "gc.log"], vec!["gc.log.1"], vec!["gc_4711.log"], vec!["gc.log.20261121"]]
        );
    }

    #[test]
    fn a_rotation_is_sorted_by_time() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let line = |stamp: &str| format!("[{stamp}s][info][gc] GC(1) Pause Remark 1.000ms\n");
        for (case, files, order) in [
            (
                "one JVM, rotation wrapped around",
                [
                    (".0", "300.0", "400.0"),
                    (".1", "100.0", "200.0"),
                    (".2", "200.0", "300.0"),
                    ("", "400.0", "410.0"),
                ],
                [".1", ".2", ".0", ""],
            ),
            (
                "two JVMs, the second began in the middle",
                [(".0", "30.0", "42.0"), (".1", "42.0", "44.0"), (".2", "0.0", "11.0"), ("", "11.0", "13.0")],
                [".0", ".1", ".2", ""],
            ),
            (
                "two short JVMs",
                [
                    (".0", "0.002", "0.160"),
                    (".1", "0.160", "0.181"),
                    (".2", "0.002", "0.150"),
                    ("", "0.151", "0.169"),
                ],
                [".0", ".1", ".2", ""],
            ),
            (
                "the second JVM wrote the newest file only",
                [(".0", "90.0", "99.0"), (".1", "70.0", "80.0"), (".2", "80.0", "90.0"), ("", "0.0", "13.0")],
                [".1", ".2", ".0", ""],
            ),
        ] {
            let mut paths = Vec::new();
            for (suffix, first, last) in files {
                let path = dir.path().join(format!("gc.log{suffix}"));
                fs::write(&path, line(first) + "no stamp\n" + &line(last))?;
                paths.push(path);
            }
            let sets = arrange(&paths);
            let expected: Vec<String> = order.iter().map(|suffix| format!("gc.log{suffix}")).collect();
            assert_eq!(names(&sets[0]), expected, "{case}");
        }
        Ok(())
    }

    #[test]
    fn dates_decide_and_jdk_8_numbers_its_newest() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let path = |name: &str| dir.path().join(name);
        for (name, text) in [
            ("a.log.0", "2026-11-21T08:02:03.342+0000: [GC 1K->1K(1K), 0.1 secs]\n"),
            ("a.log.1", "2026-11-21T08:02:01.342+0000: [GC 1K->1K(1K), 0.1 secs]\n"),
            ("a.log", "2026-11-21T08:02:02.342+0000: [GC 1K->1K(1K), 0.1 secs]\n"),
            ("b.log.0", "OpenJDK 64-Bit Server VM\n"),
            ("b.log.1.current", ""),
            ("b.log.2", ""),
        ] {
            fs::write(path(name), text)?;
        }
        let all = ["a.log.0", "a.log.1", "a.log", "b.log.0", "b.log.1.current", "b.log.2"].map(path);
        let sets = arrange(&all);
        assert_eq!(names(&sets[0]), ["a.log.1", "a.log", "a.log.0"]);
        assert_eq!(names(&sets[1]), ["b.log.2", "b.log.0", "b.log.1.current"]);
        assert_eq!(names(&beside(&path("a.log"))), ["a.log.0", "a.log.1"]);
        Ok(())
    }

    #[test]
    fn gzip_is_read_and_other_packers_are_named() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("gc.log.gz");
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(b"GC(1) Pause Remark 1.000ms\n")?;
        let packed = packed.finish()?;
        fs::write(&path, [packed.clone(), packed.clone()].concat())?;
        let mut text = String::new();
        open(&path)?.read_to_string(&mut text)?;
        assert_eq!(text, "GC(1) Pause Remark 1.000ms\n".repeat(2));
        fs::write(&path, &packed[..packed.len() - 9])?;
        let cut = open(&path)?.read_to_string(&mut text);
        assert!(cut.is_err_and(|error| error.kind() == io::ErrorKind::UnexpectedEof));
        fs::write(&path, b"\x28\xb5\x2f\xfd1234")?;
        let other = open(&path).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(other.contains("zstdcat"), "{other}");
        fs::write(&path, b"")?;
        assert_eq!(open(&path)?.read_to_string(&mut text)?, 0);
        Ok(())
    }
}
