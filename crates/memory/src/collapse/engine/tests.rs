//! The engine on a simulated machine.

use std::collections::VecDeque;

use hugewise_linux::units::PageSize;

use super::*;

const PAGE: u64 = 2 << 20;
const EPERM: i32 = 1;
const ESRCH: i32 = 3;
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;

/// A simulated machine on which a call takes 1 ms.
struct Made {
    /// Error numbers of successive calls; 0 and a missing entry mean success.
    answers: VecDeque<i32>,
    calls: usize,
    room: Option<u64>,
    /// Huge pages by which a collapse reduces free memory: 1 if the freed base pages do not merge.
    takes: u64,
    gone: Vec<u64>,
    strained: VecDeque<Option<Interference>>,
    paused: Vec<bool>,
    interrupted_at: Option<usize>,
    ended_at: Option<usize>,
    now: Duration,
}

fn made(answers: &[i32]) -> Made {
    Made {
        answers: answers.iter().copied().collect(),
        calls: 0,
        room: Some(1000),
        takes: 0,
        gone: Vec::new(),
        strained: VecDeque::new(),
        paused: Vec::new(),
        interrupted_at: None,
        ended_at: None,
        now: Duration::from_secs(5),
    }
}

impl CollapseHost for Made {
    fn collapse(&mut self, addresses: &Range<u64>) -> io::Result<()> {
        assert_eq!(addresses.end - addresses.start, PAGE);
        self.calls += 1;
        self.now += Duration::from_millis(1);
        match self.answers.pop_front().unwrap_or(0) {
            0 => {
                self.room = self.room.map(|room| room.saturating_sub(self.takes));
                Ok(())
            }
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
    fn has_ended(&mut self) -> bool {
        self.ended_at.is_some_and(|at| self.calls >= at)
    }
    fn is_present(&mut self, addresses: &Range<u64>) -> Option<bool> {
        Some(!self.gone.contains(&(addresses.start / PAGE)))
    }
    fn room(&mut self) -> Option<Pages> {
        self.room.map(Pages)
    }
    fn interference(&mut self) -> Option<Interference> {
        self.strained.pop_front().flatten()
    }
    fn pause(&mut self, paused: bool) {
        self.paused.push(paused);
    }
    fn is_interrupted(&self) -> bool {
        self.interrupted_at.is_some_and(|at| self.calls >= at)
    }
    fn now(&self) -> Duration {
        self.now
    }
    fn wait(&mut self, time: Duration) {
        self.now += time;
    }
    fn progress(&mut self, done: usize, total: usize) {
        assert!(done <= total);
    }
}

fn candidates(count: u64) -> Vec<Candidate> {
    let one = |n| Candidate { addresses: n * PAGE..(n + 1) * PAGE, present: Bytes(PAGE - 4096) };
    (0..count).map(one).collect()
}

fn settings() -> Settings {
    let Ok(size) = PageSize::new(Bytes(PAGE)) else { unreachable!() };
    Settings { size, rate: None, allow_reclaim: false }
}

fn collapsed(host: &mut Made, count: u64) -> CollapseResult {
    collapse_all(host, &candidates(count), settings())
}

fn reported(conversion: &CollapseResult) -> Vec<(Range<u64>, RefusalReason)> {
    let pages = |range: &Range<u64>| range.start / PAGE..range.end / PAGE;
    conversion.refusals.iter().map(|refusal| (pages(&refusal.addresses), refusal.reason)).collect()
}

#[test]
fn all_are_converted_and_counted() {
    let done = collapsed(&mut made(&[]), 100);
    assert_eq!(
        (done.outcome, done.collapsed, done.refusals.len()),
        (CollapseOutcome::Finished, Pages(100), 0)
    );
    assert_eq!((done.present, done.lasted), (Bytes(100 * (PAGE - 4096)), Duration::from_millis(100)));
    assert_eq!(done.longest_call, Duration::from_millis(1));
}

#[test]
fn pinned_pages_are_tried_twice_and_then_skipped() {
    let mut host = made(&[EAGAIN, 0, EAGAIN, EAGAIN, EINVAL, 0]);
    let done = collapsed(&mut host, 5);
    assert_eq!((done.outcome, done.collapsed, host.calls), (CollapseOutcome::Finished, Pages(3), 7));
    assert_eq!(reported(&done), [(1..2, RefusalReason::Held), (2..3, RefusalReason::Unsuitable)]);
    // Held memory alone does not end the work: unpinned memory may follow a large pinned buffer.
    let done = collapsed(&mut made(&[EAGAIN; 80]), 60);
    assert_eq!((done.outcome, done.collapsed), (CollapseOutcome::Finished, Pages(20)));
    assert_eq!(reported(&done), [(0..40, RefusalReason::Held)]);
}

#[test]
fn where_no_huge_page_can_be_made_it_stops_soon() {
    let mut host = made(&[0, ENOMEM, ENOMEM, 0]);
    let done = collapsed(&mut host, 1000);
    assert_eq!((done.outcome, done.collapsed, host.calls), (CollapseOutcome::Fragmented, Pages(1), 3));
    assert_eq!(reported(&done), [(1..3, RefusalReason::NoMemory), (3..1000, RefusalReason::NotTried)]);
    // A failure between successes counts alone.
    let done = collapsed(&mut made(&[0, ENOMEM, 0, ENOMEM, 0]), 10);
    assert_eq!((done.outcome, done.collapsed), (CollapseOutcome::Finished, Pages(8)));
    let allowed = Settings { allow_reclaim: true, ..settings() };
    // If the kernel may reclaim, more failures are allowed.
    let mut host =
        Made { room: Some(0), ..made(&[0, ENOMEM, ENOMEM, ENOMEM, 0, ENOMEM, ENOMEM, ENOMEM, ENOMEM]) };
    let done = collapse_all(&mut host, &candidates(100), allowed);
    assert_eq!((done.outcome, done.collapsed, host.calls), (CollapseOutcome::Fragmented, Pages(2), 9));
    let mut host = Made { room: Some(0), ..made(&[EAGAIN; 100]) };
    let done = collapse_all(&mut host, &candidates(100), allowed);
    assert_eq!((done.outcome, host.calls), (CollapseOutcome::Fragmented, 2 * MAX_PINNED_FAILURES as usize));
}

#[test]
fn the_last_free_huge_pages_are_left_to_others() {
    let mut host = Made { room: Some(100), takes: 1, ..made(&[]) };
    let done = collapsed(&mut host, 1000);
    assert_eq!((done.outcome, done.collapsed), (CollapseOutcome::NoRoom, Pages(100 - RESERVED_HUGE_PAGES)));
    assert_eq!(reported(&done), [(100 - RESERVED_HUGE_PAGES..1000, RefusalReason::NotTried)]);
    let mut host = Made { room: Some(RESERVED_HUGE_PAGES), ..made(&[]) };
    assert_eq!((collapsed(&mut host, 9).outcome, host.calls), (CollapseOutcome::NoRoom, 0));
    // Freed base pages that merge to blocks make room for the next collapse.
    let mut host = Made { room: Some(RESERVED_HUGE_PAGES + 1), ..made(&[]) };
    assert_eq!(collapsed(&mut host, 1000).collapsed, Pages(1000));
}

#[test]
fn limits_and_rights_end_it() {
    let done = collapsed(&mut made(&[0, EBUSY, EBUSY]), 9);
    assert_eq!((done.outcome, done.collapsed), (CollapseOutcome::GroupLimit, Pages(1)));
    let done = collapsed(&mut made(&[ENOSYS]), 3);
    assert_eq!((done.outcome, reported(&done).len()), (CollapseOutcome::NotAllowed, 2));
    let mut host = made(&[EPERM]);
    let done = collapsed(&mut host, 9);
    assert_eq!((done.outcome, host.calls), (CollapseOutcome::NotAllowed, 1));
    assert_eq!(reported(&done), [(0..1, RefusalReason::NotAllowed), (1..9, RefusalReason::NotTried)]);
}

#[test]
fn released_candidates_are_not_refusals() {
    let mut host = Made { gone: vec![1, 2, 3], ..made(&[0, EINVAL, ENOMEM, ENOMEM, 0]) };
    let done = collapsed(&mut host, 5);
    assert_eq!((done.outcome, done.collapsed, done.gone), (CollapseOutcome::Finished, Pages(2), Pages(3)));
    assert!(done.refusals.is_empty());
}

#[test]
fn an_end_and_an_interrupt_leave_what_was_done() {
    let mut host = Made { ended_at: Some(3), ..made(&[0, 0, ESRCH]) };
    let done = collapsed(&mut host, 9);
    assert_eq!((done.outcome, done.collapsed), (CollapseOutcome::ProcessEnded, Pages(2)));
    assert_eq!(reported(&done), [(2..9, RefusalReason::NotTried)]);
    // Its memory may be released before the process has exited.
    let mut host = made(&[0, ESRCH]);
    assert_eq!((collapsed(&mut host, 9).outcome, host.calls), (CollapseOutcome::ProcessEnded, 2));
    let mut host = Made { interrupted_at: Some(4), ..made(&[]) };
    let done = collapsed(&mut host, 9);
    assert_eq!((done.outcome, done.collapsed), (CollapseOutcome::Interrupted, Pages(4)));
    assert_eq!(reported(&done), [(4..9, RefusalReason::NotTried)]);
}

#[test]
fn it_pauses_while_another_program_waits() {
    let (stall, press) = (Some(Interference::ThreadsStall), Some(Interference::MemoryPressure));
    let mut host = made(&[]);
    host.strained = [None, stall, stall, None, None, press, None].into();
    let done = collapsed(&mut host, 9);
    assert_eq!((done.outcome, done.collapsed), (CollapseOutcome::Finished, Pages(9)));
    assert_eq!(host.paused, [true, false, true, false]);
    let pauses: Vec<_> =
        done.pauses.iter().map(|(why, pauses)| (*why, pauses.times, pauses.lasted)).collect();
    assert_eq!(
        pauses,
        [
            (Interference::ThreadsStall, 1, PAUSE_CHECK_INTERVAL),
            (Interference::MemoryPressure, 1, Duration::ZERO)
        ]
    );
    // Lasting pressure ends the work.
    let mut host = made(&[]);
    host.strained = vec![press; 10_000].into();
    let done = collapsed(&mut host, 9);
    assert_eq!((done.outcome, host.calls), (CollapseOutcome::MemoryPressure, 0));
    assert!(done.lasted >= MAX_PAUSE && host.paused == [true, false]);
}

#[test]
fn the_rate_is_kept() {
    let mut host = made(&[]);
    let rate = Some(PAGE as f64 * 10.0);
    let done = collapse_all(&mut host, &candidates(20), Settings { rate, ..settings() });
    assert!(done.lasted >= Duration::from_millis(1999), "{:?}", done.lasted);
}

#[test]
fn another_attempt_counts_each_page_once() {
    let mut all = collapsed(&mut made(&[0, EINVAL]), 10);
    // The kernel had skipped four of the nine; of these, it now refuses one, and one is gone.
    let mut host = made(&[EINVAL, EINVAL]);
    host.gone = vec![1];
    let pass = collapsed(&mut host, 4);
    let lasted = all.lasted + pass.lasted;
    all.add_pass(Pages(4), pass);
    assert_eq!((all.collapsed, all.gone), (Pages(7), Pages(1)));
    assert_eq!(reported(&all), [(1..2, RefusalReason::Unsuitable), (0..1, RefusalReason::Unsuitable)]);
    assert_eq!((all.lasted, all.outcome), (lasted, CollapseOutcome::Finished));
    let mut stopped = made(&[0, 0]);
    stopped.interrupted_at = Some(2);
    all.add_pass(Pages(3), collapsed(&mut stopped, 3));
    assert_eq!((all.collapsed, all.outcome), (Pages(6), CollapseOutcome::Interrupted));
}
