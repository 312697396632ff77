//! /proc/PID/smaps: every mapping of a process, and the pages it got.
//!
//! Source of the meanings: Documentation/filesystems/proc.rst of the kernel.

use std::ops::Range;

use crate::{
    root::{ReadError, Root},
    units::{Bytes, PageSize},
};

/// One mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vma {
    /// Its addresses.
    pub addresses: Range<u64>,
    /// `rwxp` and the like.
    pub permissions: String,
    /// What it maps, as the kernel prints it; empty for anonymous memory.
    pub name: String,
    /// Present bytes, hugetlb pages excluded.
    pub rss: Bytes,
    /// Present bytes that belong to no file, hugetlb pages excluded.
    pub anonymous: Bytes,
    /// Bytes on THP of the PMD size: anonymous, shared memory and files together.
    pub thp: Bytes,
    /// Touched bytes on hugetlb pages.
    pub hugetlb: Bytes,
    /// The page size that the mapping was made for: that of its pool for hugetlb, otherwise the
    /// base page size, whatever THP it holds.
    pub kernel_page_size: Bytes,
    /// `VmFlags` holds `ht`.
    pub is_hugetlb: bool,
}

impl Vma {
    /// Is it memory that the program asked for, and not a file's?
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        self.name.is_empty() || self.name.starts_with("[heap]") || self.name.starts_with("[anon")
    }
}

/// The mappings of process `pid` (`self` for our own), in the order of their addresses.
///
/// ESRCH or ENOENT where it has ended, EACCES where we may not trace it.
pub fn read(root: &Root, pid: &str) -> Result<Vec<Vma>, ReadError> {
    let path = format!("proc/{pid}/smaps");
    let text = root.read(&path)?;
    parse(&text).map_err(|(line, found)| root.content(path, line, "a mapping or one of its counters", found))
}

/// Parses the text; answers the number and text of the first line that it cannot read.
pub fn parse(text: &str) -> Result<Vec<Vma>, (usize, &str)> {
    let mut vmas: Vec<Vma> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let unreadable = (number + 1, line);
        match line.split_once(':') {
            // A counter's key is a word; a header has a dash before its first colon.
            Some((key, value)) if key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => {
                let vma = vmas.last_mut().ok_or(unreadable)?;
                count(vma, key, value.trim()).ok_or(unreadable)?;
            }
            _ => vmas.push(header(line).ok_or(unreadable)?),
        }
    }
    Ok(vmas)
}

/// `00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus-daemon`
fn header(line: &str) -> Option<Vma> {
    let mut rest = line;
    let mut word = || {
        let (word, after) = rest.trim_start().split_once(' ').unwrap_or((rest.trim_start(), ""));
        rest = after;
        (!word.is_empty()).then_some(word)
    };
    let (start, end) = word()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let permissions = word()?.to_owned();
    let (_offset, _device, _inode) = (word()?, word()?, word()?);
    (start <= end).then(|| Vma {
        addresses: start..end,
        permissions,
        name: rest.trim_start().to_owned(),
        ..Vma::default()
    })
}

fn count(vma: &mut Vma, key: &str, value: &str) -> Option<()> {
    let kib = || value.strip_suffix(" kB")?.parse().ok().map(Bytes::from_kib);
    match key {
        "Rss" => vma.rss = kib()?,
        "Anonymous" => vma.anonymous = kib()?,
        "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" => vma.thp += kib()?,
        "Private_Hugetlb" | "Shared_Hugetlb" => vma.hugetlb += kib()?,
        "KernelPageSize" => vma.kernel_page_size = kib()?,
        "VmFlags" => vma.is_hugetlb = value.split_whitespace().any(|flag| flag == "ht"),
        _ => {}
    }
    Some(())
}

/// The coverage of some mappings taken together; `pmd_size` is the size of a whole THP.
#[must_use]
pub fn coverage<'a>(
    vmas: impl IntoIterator<Item = &'a Vma>,
    pmd_size: Option<PageSize>,
) -> crate::coverage::Coverage {
    let mut seen = crate::coverage::Coverage::none("/proc/PID/smaps");
    for vma in vmas {
        seen.resident += vma.rss + vma.hugetlb;
        if let (true, Some(size)) = (vma.thp > Bytes::ZERO, pmd_size) {
            *seen.huge.entry(size).or_default() += vma.thp;
        }
        if let (true, Ok(size)) = (vma.hugetlb > Bytes::ZERO, PageSize::new(vma.kernel_page_size)) {
            *seen.huge.entry(size).or_default() += vma.hugetlb;
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "\
c0000000-100000000 rw-p 00000000 00:0f 1052                              /anon_hugepage (deleted)
Size:            1048576 kB
KernelPageSize:     2048 kB
MMUPageSize:        2048 kB
Rss:                   0 kB
Shared_Hugetlb:        0 kB
Private_Hugetlb:  1046528 kB
VmFlags: rd wr mr mw me de ht sd
7f0000000000-7f0040000000 rw-p 00000000 00:00 0
KernelPageSize:        4 kB
Rss:              524288 kB
Anonymous:        524288 kB
AnonHugePages:    262144 kB
Private_Hugetlb:       0 kB
THPeligible:           1
VmFlags: rd wr mr mw me ac sd hg
7ffc1000-7ffc2000 rw-p 00000000 00:00 0                          /dev/shm/a name: with\\012 everything
Rss:                   4 kB
";

    #[test]
    fn hugetlb_and_thp_are_told_apart() -> Result<(), Box<dyn Error>> {
        let vmas = parse(TEXT).map_err(|(line, _)| line.to_string())?;
        assert_eq!(vmas.len(), 3);
        assert_eq!(vmas[2].name, "/dev/shm/a name: with\\012 everything");
        assert!(vmas[0].is_hugetlb && !vmas[1].is_hugetlb);
        let (two, pmd) = ("2m".parse()?, "2m".parse()?);
        let heap = coverage(&vmas[..1], Some(pmd));
        assert_eq!(heap.resident, Bytes::from_kib(1_046_528));
        assert_eq!(heap.share(), Some(1.0));
        assert_eq!(heap.huge.get(&two), Some(&Bytes::from_kib(1_046_528)));
        assert_eq!(coverage(&vmas[1..2], Some(pmd)).share(), Some(0.5));
        Ok(())
    }

    #[test]
    fn an_unreadable_line_is_named() {
        let error = parse("Rss: 4 kB\n").map_err(|(line, text)| (line, text.to_owned()));
        assert_eq!(error, Err((1, "Rss: 4 kB".to_owned())));
        assert!(parse("c0-d0 rw-p 0 0:0 0\nRss: lots\n").is_err_and(|(line, _)| line == 2));
    }

    #[test]
    fn our_own_is_readable() -> Result<(), Box<dyn Error>> {
        assert!(read(&Root::live(), "self")?.iter().any(|vma| vma.name == "[stack]"));
        Ok(())
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "(.|\n)*") {
            let _ = parse(&text);
        }

        #[test]
        fn mangled_text_never_panics(cut in 0..TEXT.len(), junk in ".{0,20}") {
            let _ = parse(&format!("{}{junk}{}", &TEXT[..cut], &TEXT[cut..]));
        }
    }
}
