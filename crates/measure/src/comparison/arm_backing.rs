//! The backings of an arm: of a program, or of several servers by name.

use std::{fmt, str::FromStr};

use hugewise_linux::{hugepages::backing::Backing, reading::Reason};
use hugewise_plan::malloc::OffHeap;
use serde::{Deserialize, Serialize};

/// Between the two backings of a program in the text.
const SEPARATOR: &str = " + off-heap ";

/// The backing of a program, as text `thp` or `base + off-heap thp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramBacking {
    /// Backing of the Java heap; of all memory if the program is not a JVM.
    pub backing: Backing,
    /// Backing of memory outside the Java heap; `None` if it is not set.
    pub off_heap: Option<OffHeap>,
}

/// The backing of an arm, as text that of its program, or `db=base app=thp` with several servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum ArmBacking {
    Program(ProgramBacking),
    /// Servers by name, in the order of their start.
    Servers(Vec<(String, Backing)>),
}

impl ArmBacking {
    /// The backing of the program; of several servers, that of the first.
    pub fn backing(&self) -> Backing {
        self.of_programs().next().map_or(Backing::Base, |program| program.backing)
    }

    /// The backing of memory outside the Java heap; `None` if it is not set.
    pub fn off_heap(&self) -> Option<OffHeap> {
        self.of_programs().next()?.off_heap
    }

    /// The same without the backing of memory outside the Java heap.
    #[must_use]
    pub fn without_off_heap(&self) -> ArmBacking {
        match self {
            ArmBacking::Program(program) => program.backing.into(),
            ArmBacking::Servers(_) => self.clone(),
        }
    }

    /// Several servers by name, with their backings; empty for one program.
    pub fn servers(&self) -> &[(String, Backing)] {
        match self {
            ArmBacking::Program(_) => &[],
            ArmBacking::Servers(servers) => servers,
        }
    }

    /// The backings of the programs, in the order of their start.
    pub fn of_programs(&self) -> impl Iterator<Item = ProgramBacking> {
        let program = match self {
            ArmBacking::Program(program) => Some(*program),
            ArmBacking::Servers(_) => None,
        };
        program.into_iter().chain(self.servers().iter().map(|(_, backing)| (*backing).into()))
    }
}

impl From<Backing> for ProgramBacking {
    fn from(backing: Backing) -> ProgramBacking {
        ProgramBacking { backing, off_heap: None }
    }
}

impl From<ProgramBacking> for ArmBacking {
    fn from(program: ProgramBacking) -> ArmBacking {
        ArmBacking::Program(program)
    }
}

impl From<Backing> for ArmBacking {
    fn from(backing: Backing) -> ArmBacking {
        ProgramBacking::from(backing).into()
    }
}

impl From<ArmBacking> for String {
    fn from(arm: ArmBacking) -> String {
        arm.to_string()
    }
}

impl TryFrom<String> for ArmBacking {
    type Error = Reason;

    fn try_from(text: String) -> Result<ArmBacking, Reason> {
        text.parse()
    }
}

impl fmt::Display for ProgramBacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.off_heap {
            Some(off_heap) => f.pad(&format!("{}{SEPARATOR}{off_heap}", self.backing)),
            None => self.backing.fmt(f),
        }
    }
}

impl fmt::Display for ArmBacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArmBacking::Program(program) => program.fmt(f),
            ArmBacking::Servers(servers) => {
                let servers: Vec<String> =
                    servers.iter().map(|(name, backing)| format!("{name}={backing}")).collect();
                f.pad(&servers.join(" "))
            }
        }
    }
}

impl FromStr for ArmBacking {
    type Err = Reason;

    fn from_str(text: &str) -> Result<ArmBacking, Reason> {
        if text.contains('=') {
            let server = |text: &str| {
                let (name, backing) =
                    text.split_once('=').ok_or_else(|| Reason::new(format!("'{text}' has no '='")))?;
                Ok((name.to_owned(), backing.parse()?))
            };
            let servers: Result<Vec<_>, Reason> = text.split_whitespace().map(server).collect();
            return Ok(ArmBacking::Servers(servers?));
        }
        let (backing, off_heap) = match text.split_once(SEPARATOR) {
            Some((backing, off_heap)) => (backing, Some(off_heap.parse()?)),
            None => (text, None),
        };
        Ok(ProgramBacking { backing: backing.parse()?, off_heap }.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_back() -> Result<(), Reason> {
        for text in [
            "base",
            "hugetlb:1GiB",
            "thp + off-heap thp",
            "base + off-heap hugetlb",
            "db=base app=thp",
            "app=hugetlb:1GiB",
        ] {
            assert_eq!(text.parse::<ArmBacking>()?.to_string(), text);
        }
        for text in ["thp + off-heap 4k", "db=base app", "db=4k"] {
            assert!(text.parse::<ArmBacking>().is_err(), "{text}");
        }
        let programs: Vec<ProgramBacking> = "db=base app=thp".parse::<ArmBacking>()?.of_programs().collect();
        assert_eq!(programs, [Backing::Base.into(), Backing::Thp.into()]);
        Ok(())
    }
}
