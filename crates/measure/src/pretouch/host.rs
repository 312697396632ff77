//! What the host of a virtual machine does with memory that is free.

use std::path::Path;

use hugewise_linux::root::Root;

const BALLOONS: &str = "sys/bus/virtio/drivers/virtio_balloon";
/// `VIRTIO_BALLOON_F_REPORTING`: the place of its bit in the device's `features`.
const REPORTING: usize = 5;

/// Does the host take back memory as soon as it is free ("free page reporting" of the balloon)? Then a page
/// that is made present must be got from the host first, unless it was used a moment ago.
#[must_use]
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
    fn the_bit_of_the_balloon_tells() -> io::Result<()> {
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
