//! Whether the host of a virtual machine reclaims free memory.

use std::path::Path;

use crate::root::Root;

const BALLOONS: &str = "sys/bus/virtio/drivers/virtio_balloon";
/// Index of the bit `VIRTIO_BALLOON_F_REPORTING` in the device's `features`.
const REPORTING: usize = 5;

/// Whether the host reclaims memory as soon as the guest frees it ("free page reporting" of the balloon).
/// Populating a page then includes getting it back from the host, unless it was used very recently.
pub fn takes_back_free_memory(root: &Root) -> bool {
    let devices = root.list(BALLOONS).unwrap_or_default();
    devices.iter().any(|device| {
        let features = root.read(Path::new(BALLOONS).join(device).join("features")).unwrap_or_default();
        features.as_bytes().get(REPORTING) == Some(&b'1')
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, io};

    use super::*;

    #[test]
    fn free_page_reporting_is_read_from_the_balloon() -> io::Result<()> {
        for (features, reports) in [("011001010000", true), ("011000010000", false), ("01", false)] {
            let dir = tempfile::tempdir()?;
            let device = dir.path().join(BALLOONS).join("virtio0");
            fs::create_dir_all(&device)?;
            fs::write(device.join("features"), format!("{features}\n"))?;
            fs::write(dir.path().join(BALLOONS).join("bind"), "")?;
            assert_eq!(takes_back_free_memory(&Root::at(dir.path())), reports, "{features}");
        }
        assert!(!takes_back_free_memory(&Root::at(tempfile::tempdir()?.path())));
        Ok(())
    }
}
