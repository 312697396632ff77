//! Whether the readings of this machine are of the machine that wrote a text.

use hugewise_linux::{facts::Facts, root::Root};

use super::Capture;

const HOSTNAME: &str = "proc/sys/kernel/hostname";
const BOOT_ID: &str = "proc/sys/kernel/random/boot_id";

/// Relation of a text to the machine whose facts are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The same machine since the same boot, or the user says so.
    Same,
    /// Another machine or boot, with the difference.
    Foreign(String),
    /// The text does not contain what would decide.
    Unknown,
}

/// Name and boot of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    host: Option<String>,
    boot_id: Option<String>,
}

impl Identity {
    pub fn read(root: &Root) -> Identity {
        Identity {
            host: root.value(HOSTNAME, "a name").ok(),
            boot_id: root.value::<String>(BOOT_ID, "an id").ok().map(|id| id.replace('-', "")),
        }
    }
}

impl Origin {
    /// Compares the text with the machine.
    pub(super) fn of(capture: &Capture, facts: &Facts, machine: &Identity) -> Origin {
        let memory = |bytes: &hugewise_linux::units::Bytes| bytes.to_string();
        let kernel = facts.kernel.known().cloned();
        let pairs = [
            ("of the host", capture.host.clone(), machine.host.clone()),
            ("of the boot", capture.boot_id.clone(), machine.boot_id.clone()),
            ("of a machine with the kernel", capture.kernel.clone(), kernel),
            (
                "of a machine with a memory of",
                capture.memory.as_ref().map(memory),
                facts.meminfo.total.known().map(memory),
            ),
        ];
        let mut same_boot = false;
        for (what, of_text, here) in pairs {
            let (Some(of_text), Some(here)) = (of_text, here) else { continue };
            if of_text != here {
                return Origin::Foreign(format!("the text is {what} {of_text}, and here it is {here}"));
            }
            same_boot |= what == "of the boot";
        }
        if same_boot { Origin::Same } else { Origin::Unknown }
    }

    /// What stands before a reading of the machine.
    pub(super) fn label(&self) -> &'static str {
        if *self == Origin::Same { "" } else { "foreign (this machine): " }
    }

    /// Why readings of the machine are foreign to the text; `None` if they are not.
    pub(super) fn reason(&self) -> Option<String> {
        match self {
            Origin::Same => None,
            Origin::Foreign(difference) => {
                Some(format!("readings of this machine do not count for this text: {difference}"))
            }
            Origin::Unknown => Some(
                "readings of this machine do not count: the text does not name its host and boot; with --root / they count"
                    .to_owned(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use hugewise_linux::hugepages::contiguity::Scan;

    use super::*;

    #[test]
    fn host_and_boot_decide() {
        let facts = Facts::gather(&Root::at("/nowhere"), Scan::Never);
        let here = Identity { host: Some("web-7".into()), boot_id: Some("ab12".into()) };
        let text = |host: Option<&str>, boot: Option<&str>| {
            let mut capture = Capture::default();
            capture.host = host.map(str::to_owned);
            capture.boot_id = boot.map(str::to_owned);
            capture
        };
        let origin = |host, boot| Origin::of(&text(host, boot), &facts, &here);
        assert_eq!(origin(None, None), Origin::Unknown);
        assert_eq!(origin(Some("web-7"), None), Origin::Unknown, "the boot may be another one");
        assert_eq!(origin(Some("web-7"), Some("ab12")), Origin::Same);
        assert!(matches!(origin(Some("web-8"), Some("ab12")), Origin::Foreign(_)));
        assert!(matches!(origin(Some("web-7"), Some("ab13")), Origin::Foreign(_)));
    }
}
