//! From lines to events: assigns CPU times to pauses, and separates the JVMs of one log.

use std::{
    collections::BTreeSet,
    io::{self, Read},
    mem,
};

use hugewise_texts::decoder::{self, Layer, Undresser};
use memchr::memmem;

use super::{
    Cpu, Event, LogPosition, Pause, Safepoint, Stall, Stamp, Unparsed,
    legacy::{self, Legacy},
    lines,
    names::{Name, short},
    numbers::NS_PER_SECOND,
    safepoints::{self, ParsedSafepoint},
    unified::{self, ParsedLine},
};

/// Uptime below which a line counts as one of a JVM's first lines.
const MAX_FIRST_LINE_UPTIME_NS: u64 = 10 * NS_PER_SECOND;

/// Reads logs. One reader reads the files of one rotation, the oldest first, as one log.
#[derive(Debug, Default)]
pub struct Reader {
    place: LogPosition,
    files: usize,
    run: Run,
    pending: PendingPause,
    /// Pauses that have begun: one, or two if a young collection turns into a full one.
    begun: Vec<StartedPause>,
    /// Operation of a safepoint that has begun.
    stopping: String,
    /// Operation of the last safepoint with an operation; kept, since most safepoints have the same.
    operation: String,
    legacy: Legacy,
    undresser: Undresser,
    /// Whether the line has no layers any more.
    is_plain: bool,
    known: bool,
    /// Whether a single number of nanoseconds is the uptime; `None` before the first timestamp of a JVM.
    lone_is_uptime: Option<bool>,
}

/// One JVM of the log.
#[derive(Debug, Default)]
struct Run {
    number: u32,
    /// Whether it logged a pause or a safepoint.
    seen: bool,
    last: Stamp,
    /// Id of the last young or full collection: these ids only increase.
    last_id: Option<u64>,
}

#[derive(Debug)]
struct StartedPause {
    gc_id: u64,
    place: LogPosition,
    young: bool,
}

/// A pause whose CPU time may follow in a line of its own.
#[derive(Debug, Default)]
struct PendingPause {
    is_set: bool,
    legacy: bool,
    place: LogPosition,
    gc_id: Option<u64>,
    name: Name,
    /// An earlier name: young and full collections alternate.
    other_name: Name,
    start: Stamp,
    duration_ns: u64,
    nested: bool,
}

impl Reader {
    /// Reads a stream to its end or to an error; events before the error are passed to `sink`.
    pub fn read(&mut self, input: impl Read, sink: &mut impl FnMut(Event<'_>)) -> io::Result<()> {
        self.place = LogPosition { file: self.files, line: 0 };
        self.files += 1;
        let text = decoder::text(input)?;
        self.undresser.begin(&text.head);
        self.undresser.note(&text.layers);
        let ended = lines::each(text, |line, cut| {
            self.place.line += 1;
            match self.undresser.is_dressed() && !cut {
                true => self.undress(line, sink),
                false => self.line(line, cut, sink),
            }
        });
        let mut undresser = mem::take(&mut self.undresser);
        undresser.finish(&mut |plain: &[u8]| self.line(plain, false, sink));
        self.undresser = undresser;
        ended
    }

    /// What was taken off the lines.
    pub fn layers(&self) -> &BTreeSet<Layer> {
        &self.undresser.layers
    }

    #[cold]
    fn undress(&mut self, line: &[u8], sink: &mut impl FnMut(Event<'_>)) {
        let mut undresser = mem::take(&mut self.undresser);
        self.is_plain = true;
        undresser.line(line, &mut |plain: &[u8]| self.line(plain, false, sink));
        self.is_plain = false;
        self.undresser = undresser;
    }

    /// Whether a line that does not parse has layers around a record, which are taken off.
    #[cold]
    fn undressed(&mut self, line: &[u8], sink: &mut impl FnMut(Event<'_>)) -> bool {
        let found = !self.is_plain && self.undresser.finds_record(line);
        if found {
            self.undress(line, sink);
        }
        found
    }

    /// Passes pending events to `sink`: call it after the last stream, and before a stream of another log.
    pub fn finish(&mut self, sink: &mut impl FnMut(Event<'_>)) {
        self.emit_pending(None, sink);
        self.report_unfinished(sink);
        let mut legacy = mem::take(&mut self.legacy);
        legacy.lost(&mut |said| self.legacy(said, b"", sink));
        if self.run.seen {
            self.next_run(sink);
        }
        self.lone_is_uptime = None;
    }

    /// Whether the streams contained lines of a garbage collection log.
    pub fn has_log_lines(&self) -> bool {
        self.known
    }

    /// Number of JVMs that logged a pause or a safepoint; valid after [`Reader::finish`].
    pub fn runs(&self) -> u32 {
        self.run.number
    }

    fn line(&mut self, line: &[u8], cut: bool, sink: &mut impl FnMut(Event<'_>)) {
        let (decorations, message) = match line {
            [b'[', next, ..] if next.is_ascii_digit() || next.is_ascii_lowercase() => unified::split(line),
            [b'G', b'C', b'(', ..] => (&b""[..], line),
            _ => return self.other(line, cut, sink),
        };
        if unified::is_detail(message) {
            self.known = true;
        } else {
            self.message(decorations, message, line, cut, sink);
        }
    }

    /// A line that does not begin like one of a unified log.
    #[cold]
    fn other(&mut self, line: &[u8], cut: bool, sink: &mut impl FnMut(Event<'_>)) {
        if self.message(b"", line, line, cut, sink) {
            return;
        }
        if let Some(at) = memmem::find(line, safepoints::STOPPED) {
            let (stamp, _) = Stamp::before_text(&line[..at]);
            match safepoints::stopped(&line[at..]) {
                Some(stop) => self.stopped(stop, stamp, sink),
                None => self.unread("a safepoint", line, sink),
            }
            return;
        }
        let mut legacy = mem::take(&mut self.legacy);
        let known = legacy.line(line, self.place, &mut |said| self.legacy(said, line, sink));
        self.legacy = legacy;
        self.known |= known;
        if !known && !self.undressed(line, sink) {
            if let Some((decorations, message)) = unified::split_behind(line) {
                self.message(decorations, message, line, cut, sink);
            }
        }
    }

    /// Handles a message of a unified log; returns whether it is one.
    fn message(
        &mut self,
        decorations: &[u8],
        message: &[u8],
        line: &[u8],
        cut: bool,
        sink: &mut impl FnMut(Event<'_>),
    ) -> bool {
        match unified::read(message) {
            ParsedLine::Other if message.starts_with(b"GC(") => self.known = true,
            ParsedLine::Other => return self.tagged(decorations, sink),
            ParsedLine::Begins { gc_id, name } => {
                // A second start with the same id is a damaged end line.
                if cut || self.begun.last().is_some_and(|begun| begun.gc_id == gc_id) {
                    self.begun.pop();
                    self.unread("a pause", line, sink);
                } else {
                    self.begins(gc_id, name, sink);
                }
            }
            ParsedLine::Paused { gc_id, name, duration_ns } => {
                let stamp = self.stamp(decorations);
                self.paused(gc_id, name, stamp, duration_ns, sink);
            }
            ParsedLine::Cpu { gc_id, cpu } => {
                // If no pause with this id has just ended, it is the CPU time of a concurrent phase.
                if self.pending.is_set && !self.pending.legacy && self.pending.gc_id == Some(gc_id) {
                    self.emit_pending(Some(cpu), sink);
                }
            }
            ParsedLine::Concurrent { gc_id } => {
                self.known = true;
                if self.pending.gc_id == Some(gc_id) {
                    self.emit_pending(None, sink);
                }
            }
            ParsedLine::Stopping(operation) => {
                self.stopping = short(operation).into_owned();
            }
            ParsedLine::Stopped(stop) => {
                let stamp = self.stamp(decorations);
                self.stopped(stop, stamp, sink);
            }
            ParsedLine::Stalled { kind, thread, duration_ns } => {
                let end = self.stamp(decorations);
                self.known = true;
                self.run.seen = true;
                let thread = &String::from_utf8_lossy(thread);
                let (place, run) = (self.place, self.run.number);
                sink(Event::Stall(Stall { place, run, kind, thread, end, duration_ns }));
            }
            ParsedLine::Starts => {
                self.known = true;
                if self.run.seen {
                    self.next_run(sink);
                }
            }
            ParsedLine::Heap(range) => sink(Event::Heap(range)),
            ParsedLine::Unreadable(_) if self.undressed(line, sink) => {}
            ParsedLine::Unreadable(what) => {
                // The line is the damaged end of the pause that has begun: the pause is reported once.
                if what == "a pause" {
                    self.begun.pop();
                }
                self.unread(what, line, sink);
            }
        }
        true
    }

    /// Handles a message that is recognized by its tags only.
    fn tagged(&mut self, decorations: &[u8], sink: &mut impl FnMut(Event<'_>)) -> bool {
        if decorations.is_empty() {
            return false;
        }
        let tags = decorations.trim_ascii_end().strip_suffix(b"]");
        if tags.is_some_and(|tags| tags.trim_ascii_end().ends_with(b"[gc,init")) {
            self.known = true;
            let stamp = self.stamp(decorations);
            sink(Event::Init(stamp));
        }
        true
    }

    fn stamp(&mut self, decorations: &[u8]) -> Stamp {
        let lone = self.lone_is_uptime.unwrap_or_else(|| {
            let uptime = Stamp::of_decorations(decorations, true).uptime_ns;
            *self.lone_is_uptime.insert(uptime.is_some_and(|ns| ns < MAX_FIRST_LINE_UPTIME_NS))
        });
        Stamp::of_decorations(decorations, lone)
    }

    fn begins(&mut self, gc_id: u64, name: &[u8], sink: &mut impl FnMut(Event<'_>)) {
        let turns_full = matches!(&self.begun[..], [only] if only.young) && name.starts_with(b"Full");
        if !turns_full {
            self.report_unfinished(sink);
        }
        self.known = true;
        self.begun.push(StartedPause { gc_id, place: self.place, young: name.starts_with(b"Young") });
    }

    fn paused(
        &mut self,
        gc_id: u64,
        name: &[u8],
        stamp: Stamp,
        duration_ns: u64,
        sink: &mut impl FnMut(Event<'_>),
    ) {
        self.emit_pending(None, sink);
        if self.begun.last().is_some_and(|begun| begun.gc_id == gc_id) {
            self.begun.pop();
        } else if !self.begun.is_empty() {
            self.report_unfinished(sink);
        }
        let grows = name.starts_with(b"Young") || name.starts_with(b"Full");
        // A full collection within a young one is logged before it.
        let falls = grows && self.run.last_id.is_some_and(|last| gc_id + 1 < last);
        self.detect_next_run(stamp, falls, sink);
        if grows {
            self.run.last_id = Some(gc_id);
        }
        if self.pending.legacy {
            self.pending = PendingPause::default();
        }
        self.pending.is_set = true;
        self.pending.place = self.place;
        self.pending.gc_id = Some(gc_id);
        self.pending.start = stamp.before(duration_ns);
        self.pending.duration_ns = duration_ns;
        self.pending.nested = !self.begun.is_empty();
        if !self.pending.name.is(name) {
            mem::swap(&mut self.pending.name, &mut self.pending.other_name);
            self.pending.name.set(name);
        }
    }

    fn legacy(&mut self, said: legacy::ParsedLine, line: &[u8], sink: &mut impl FnMut(Event<'_>)) {
        match said {
            legacy::ParsedLine::Paused { place, stamp, gc_id, name, cause, duration_ns } => {
                self.emit_pending(None, sink);
                self.detect_next_run(stamp, false, sink);
                self.pending = PendingPause {
                    is_set: true,
                    legacy: true,
                    place,
                    gc_id,
                    name: Name::of_parts(name, cause.unwrap_or_default()),
                    other_name: Name::default(),
                    start: stamp,
                    duration_ns,
                    nested: false,
                };
            }
            legacy::ParsedLine::Cpu(cpu) if self.pending.is_set && self.pending.legacy => {
                self.emit_pending(Some(cpu), sink)
            }
            legacy::ParsedLine::Cpu(_) => {}
            legacy::ParsedLine::Unreadable(place, what) => {
                let text = if place == self.place { line } else { b"" };
                sink(Event::Unparsed(Unparsed { place, what, text }));
            }
        }
    }

    fn stopped(&mut self, stop: ParsedSafepoint<'_>, stamp: Stamp, sink: &mut impl FnMut(Event<'_>)) {
        self.detect_next_run(stamp, false, sink);
        let before = mem::take(&mut self.stopping);
        let operation = match stop.operation {
            Some(named) => {
                if self.operation.as_bytes() != named {
                    self.operation.clear();
                    self.operation.push_str(&short(named));
                }
                Some(self.operation.as_str())
            }
            None => (!before.is_empty()).then_some(before.as_str()),
        };
        sink(Event::Safepoint(Safepoint {
            place: self.place,
            run: self.run.number,
            operation,
            end: stamp,
            time_to_safepoint_ns: stop.time_to_safepoint_ns,
            total_ns: stop.total_ns,
        }));
    }

    /// Handles the time of a pause or a safepoint, and detects whether the next JVM has begun.
    fn detect_next_run(&mut self, stamp: Stamp, id_falls: bool, sink: &mut impl FnMut(Event<'_>)) {
        // Lines of several threads may be up to a second out of order.
        let falls = |before: Option<u64>, now: Option<u64>| {
            before.zip(now).is_some_and(|(before, now)| now.saturating_add(NS_PER_SECOND) < before)
        };
        let last = self.run.last;
        if id_falls || falls(last.uptime_ns, stamp.uptime_ns) || falls(last.monotonic_ns, stamp.monotonic_ns)
        {
            self.next_run(sink);
        }
        self.known = true;
        self.run.seen = true;
        self.run.last = stamp;
    }

    fn next_run(&mut self, sink: &mut impl FnMut(Event<'_>)) {
        self.emit_pending(None, sink);
        self.report_unfinished(sink);
        self.run = Run { number: self.run.number.saturating_add(1), ..Run::default() };
        // A number below ten seconds is an uptime, and the next JVM logs uptimes, too. A larger number may be
        // of either clock: the clock of the next JVM is detected again.
        self.lone_is_uptime = self.lone_is_uptime.filter(|uptime| *uptime);
    }

    fn emit_pending(&mut self, cpu: Option<Cpu>, sink: &mut impl FnMut(Event<'_>)) {
        let pending = &mut self.pending;
        if !mem::take(&mut pending.is_set) {
            return;
        }
        sink(Event::Pause(Pause {
            place: pending.place,
            run: self.run.number,
            gc_id: pending.gc_id,
            kind: &pending.name.kind,
            cause: (!pending.name.cause.is_empty()).then_some(&pending.name.cause),
            start: pending.start,
            duration_ns: pending.duration_ns,
            cpu,
            nested: pending.nested,
        }));
    }

    fn report_unfinished(&mut self, sink: &mut impl FnMut(Event<'_>)) {
        for begun in self.begun.drain(..) {
            let what = "a pause without its end";
            sink(Event::Unparsed(Unparsed { place: begun.place, what, text: b"" }));
        }
    }

    fn unread(&mut self, what: &'static str, text: &[u8], sink: &mut impl FnMut(Event<'_>)) {
        sink(Event::Unparsed(Unparsed { place: self.place, what, text }));
    }
}
