//! Splits huge pages of a running process into base pages, from outside: `MADV_COLD` on one base page of each,
//! through process_madvise(2). The inverse of [`crate::collapse`], whose engine it shares
//! ([`crate::collapse::live::split_all`]).

use std::io;

use hugewise_linux::units::{Bytes, PageSize, Pages};
use schemars::JsonSchema;
use serde::Serialize;

use crate::collapse::refusals::RefusalReason;

/// Largest number of huge pages that are read for an estimate of zero-filled memory.
pub const MAX_PAGES_READ: usize = 1024;

/// Largest number of attempts at the same huge pages.
///
/// The kernel skips a huge page that is in use at that moment (an I/O, a fault of another thread), without an
/// error. Shared memory is then unmapped but still on a huge page, and the next access maps it so again.
pub const MAX_PASSES: usize = 5;

/// Why huge pages of a process cannot be split.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// The system call is missing or blocked.
    #[error(
        "process_madvise does not exist here (ENOSYS): it needs Linux 5.10, and a container whose seccomp filter \
         permits it"
    )]
    NoCall,
    /// The kernel does not know this advice for another process.
    #[error("this kernel does not accept MADV_COLD for another process (EINVAL): it needs Linux 5.10")]
    NoAdvice,
    /// A capability is missing or has no effect.
    #[error(
        "the kernel does not permit process_madvise on this process (EPERM): it needs CAP_SYS_NICE in the initial user \
         namespace, and the right to read the process"
    )]
    NotAllowed,
    /// The process has exited.
    #[error("the process has ended (ESRCH)")]
    Ended,
    /// Any other answer.
    #[error("process_madvise failed: {0}")]
    Other(String),
}

/// Judges the kernel's answer to a call without a range.
pub fn judge(answer: io::Result<()>) -> Result<(), SplitError> {
    let Err(error) = answer else { return Ok(()) };
    Err(match RefusalReason::of(&error) {
        RefusalReason::NoSuchCall => SplitError::NoCall,
        RefusalReason::Unsuitable => SplitError::NoAdvice,
        RefusalReason::NotAllowed => SplitError::NotAllowed,
        RefusalReason::NoProcess => SplitError::Ended,
        _ => SplitError::Other(error.to_string()),
    })
}

/// A phrase for the kernel's refusal to split a huge page.
#[must_use]
pub fn refusal_words(reason: RefusalReason) -> String {
    match reason {
        RefusalReason::Unsuitable => "EINVAL: the memory is locked (mlock)".to_owned(),
        RefusalReason::NoMemory => "ENOMEM: no memory is mapped here any more".to_owned(),
        other => other.words(),
    }
}

/// Bytes in base pages of `memory` that contain only zeros. `memory` begins at a base page; an incomplete last
/// page counts with its length.
#[must_use]
pub fn zero_filled(memory: &[u8], base: PageSize) -> Bytes {
    let is_zero = |page: &&[u8]| {
        // Most pages with contents differ in their first bytes.
        page.iter().take(64).all(|&byte| byte == 0) && page.iter().all(|&byte| byte == 0)
    };
    let size = usize::try_from(base.bytes().0).unwrap_or(usize::MAX);
    Bytes(memory.chunks(size).filter(is_zero).map(|page| page.len() as u64).sum())
}

/// The indices of the huge pages that are read, evenly spaced over `count`: all if there are at most `max`.
pub fn indices_to_read(count: usize, max: usize) -> impl Iterator<Item = usize> {
    let read = count.min(max);
    (0..read).map(move |n| n * count / read)
}

/// Zero-filled base pages within huge pages of anonymous memory, estimated by reading some of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ZeroEstimate {
    /// Estimated zero-filled bytes in all huge pages: as read, if all were read.
    pub zero_filled_bytes: Bytes,
    /// Huge pages that were read.
    pub pages_read: Pages,
    /// Huge pages of anonymous memory.
    pub pages: Pages,
}

impl ZeroEstimate {
    /// The estimate for `pages` huge pages, of which `pages_read` contained `zero` bytes in zero-filled base
    /// pages. `None` if there are some, and none could be read.
    #[must_use]
    pub fn of(zero: Bytes, pages_read: Pages, pages: Pages) -> Option<ZeroEstimate> {
        if pages_read.0 == 0 {
            return (pages.0 == 0).then(ZeroEstimate::default);
        }
        let all = u128::from(zero.0) * u128::from(pages.0) / u128::from(pages_read.0);
        Some(ZeroEstimate { zero_filled_bytes: Bytes(all as u64), pages_read, pages })
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn every_answer_of_the_kernel_is_judged() {
        let judged = |number| judge(Err(io::Error::from_raw_os_error(number)));
        assert_eq!(judge(Ok(())), Ok(()));
        assert_eq!(judged(38), Err(SplitError::NoCall));
        assert_eq!(judged(22), Err(SplitError::NoAdvice));
        assert_eq!(judged(1), Err(SplitError::NotAllowed));
        assert_eq!(judged(3), Err(SplitError::Ended));
        assert!(matches!(judged(5), Err(SplitError::Other(words)) if words.contains("os error 5")));
    }

    #[test]
    fn only_pages_without_any_contents_are_zero_filled() -> Result<(), Box<dyn Error>> {
        let base: PageSize = "4k".parse()?;
        let mut memory = vec![0u8; 5 * 4096];
        memory[4096] = 1;
        memory[3 * 4096 - 1] = 1;
        memory[3 * 4096 + 100] = 1;
        assert_eq!(zero_filled(&memory, base), Bytes(2 * 4096));
        assert_eq!(zero_filled(&memory[..4196], base), Bytes(4096));
        assert_eq!(zero_filled(&[], base), Bytes::ZERO);
        Ok(())
    }

    #[test]
    fn the_pages_to_read_are_spread_over_all() {
        let read = |count, max| indices_to_read(count, max).collect::<Vec<_>>();
        assert_eq!(read(3, 5), [0, 1, 2]);
        assert_eq!(read(10, 4), [0, 2, 5, 7]);
        assert!(read(0, 4).is_empty());
    }

    #[test]
    fn an_estimate_is_scaled_and_never_made_up() {
        let estimate = |zero, read, pages| ZeroEstimate::of(Bytes(zero), Pages(read), Pages(pages));
        assert_eq!(estimate(300, 3, 3).map(|it| it.zero_filled_bytes), Some(Bytes(300)));
        assert_eq!(estimate(300, 3, 10).map(|it| it.zero_filled_bytes), Some(Bytes(1000)));
        assert_eq!(estimate(0, 0, 0).map(|it| it.zero_filled_bytes), Some(Bytes::ZERO));
        assert_eq!(estimate(0, 0, 10), None);
        let huge = estimate(u64::MAX / 2, 1, 2).map(|it| it.zero_filled_bytes);
        assert_eq!(huge, Some(Bytes(u64::MAX - 1)));
    }

    #[test]
    fn every_refusal_has_its_words() {
        for number in 0..200 {
            let words = refusal_words(RefusalReason::of(&io::Error::from_raw_os_error(number)));
            assert!(!words.is_empty() && !words.contains("collapse"), "{words}");
        }
    }
}
