//! The base page size: that of this process, or from the auxiliary vector of a captured tree.

use crate::{
    reading::Reading,
    root::Root,
    sys::memory,
    units::{Bytes, PageSize},
};

/// Path of the auxiliary vector: pairs of native words.
pub const AUXV: &str = "proc/self/auxv";

/// The base page size: 4 KiB on x86-64; 4, 16 or 64 KiB on arm64.
///
/// The running machine is asked without a file: the vector of a process that has changed its user is not readable to it.
/// A captured tree must come from a machine with the same word size and byte order.
pub fn read(root: &Root) -> Reading<PageSize> {
    if root.is_live() {
        if root.is_recording() {
            // What is recorded is read as a tree later.
            let _ = root.read_bytes(AUXV);
        }
        return memory::base_page_size().into();
    }
    Reading::from(root.read_bytes(AUXV))
        .and_then(|auxv| find(&auxv).ok_or_else(|| root.content(AUXV, 1, "an entry AT_PAGESZ", "none")))
}

fn find(auxv: &[u8]) -> Option<PageSize> {
    let word = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_ne_bytes);
    auxv.chunks_exact(16)
        .filter(|pair| word(&pair[..8]) == Some(libc::AT_PAGESZ))
        .find_map(|pair| PageSize::new(Bytes(word(&pair[8..])?)).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_size_is_found_among_the_other_entries() {
        let auxv: Vec<u8> = [3u64, 0x40, 6, 65536, 0, 0].into_iter().flat_map(u64::to_ne_bytes).collect();
        assert_eq!(find(&auxv).map(|size| size.log2()), Some(16));
        assert_eq!(find(&auxv[..16]), None);
        assert!(read(&Root::live()).known().is_some());
    }

    #[test]
    fn a_recording_has_the_vector() -> std::io::Result<()> {
        let root = Root::live().recording();
        let size = read(&root);
        let tree = tempfile::tempdir()?;
        root.recorded().write(tree.path(), false)?;
        assert_eq!(read(&Root::at(tree.path())), size);
        Ok(())
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(auxv in any::<Vec<u8>>()) {
            let _ = find(&auxv);
        }
    }
}
