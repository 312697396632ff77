//! Mapped files on base pages: their file system, large folios, and what a collapse needs.

use std::io::Read;

use flate2::read::GzDecoder;
use hugewise_linux::{facts::OSRELEASE, root::Root, units::Bytes};

use super::{Circumstances, PartCounts};

/// Longest configuration of a kernel that is read, in bytes.
const MAX_CONFIG_BYTES: u64 = 4 << 20;
/// The option with which MADV_COLLAPSE and khugepaged accept files.
const OPTION: &str = "CONFIG_READ_ONLY_THP_FOR_FS";

pub fn words(counts: &PartCounts, around: &Circumstances<'_>) -> String {
    let file_system = counts.mount.as_ref().map_or("an unknown file system", |mount| mount.kind.as_str());
    let mut text = format!("a file on {file_system}: its pages are those of the page cache");
    // No amounts: regions with the same text share a line.
    if counts.pages.mthp.values().any(|bytes| *bytes > Bytes::ZERO) || counts.pages.split > Bytes::ZERO {
        text += ", and some are in large folios";
    }
    if counts.copies.0 > counts.pages.base.0 / 2 {
        text += "; most of these are private copies, which the kernel makes as base pages";
    }
    text += match around.has_file_thp.get_or_init(|| has_option(around.known.root)) {
        Some(true) => {
            "; MADV_COLLAPSE accepts only files that no process has open for writing (CONFIG_READ_ONLY_THP_FOR_FS)"
        }
        Some(false) => {
            "; MADV_COLLAPSE would answer EINVAL: this kernel is built without CONFIG_READ_ONLY_THP_FOR_FS"
        }
        None => {
            "; MADV_COLLAPSE would need CONFIG_READ_ONLY_THP_FOR_FS, and whether this kernel is built with it is unknown"
        }
    };
    text
}

/// Whether the kernel is built with the option; `None` if its configuration cannot be read.
fn has_option(root: &Root) -> Option<bool> {
    let packed = root.read_within("proc/config.gz", MAX_CONFIG_BYTES).ok();
    let config = packed.and_then(|packed| {
        let mut text = String::new();
        GzDecoder::new(packed.as_slice()).take(MAX_CONFIG_BYTES).read_to_string(&mut text).ok().map(|_| text)
    });
    let config = config.or_else(|| {
        let release: String = root.value(OSRELEASE, "a release").ok()?;
        root.read(format!("boot/config-{release}")).ok()
    })?;
    Some(config.lines().any(|line| line == format!("{OPTION}=y")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_of_the_kernel_is_read() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            path.parent().map(std::fs::create_dir_all).transpose()?;
            std::fs::write(path, text)
        };
        let root = Root::at(folder.path());
        assert_eq!(has_option(&root), None);
        write(OSRELEASE, "6.1.0-1-amd64\n")?;
        write("boot/config-6.1.0-1-amd64", "CONFIG_A=y\nCONFIG_READ_ONLY_THP_FOR_FS=y\n")?;
        assert_eq!(has_option(&root), Some(true));
        write("boot/config-6.1.0-1-amd64", "# CONFIG_READ_ONLY_THP_FOR_FS is not set\n")?;
        assert_eq!(has_option(&root), Some(false));
        Ok(())
    }
}
