//! The backings that are compared.

use hugewise_linux::hugepages::backing::Backing;
use hugewise_measure::comparison::{ArmBacking, ProgramBacking};

use super::Compare;

/// Backings compared by default.
const DEFAULT_BACKINGS: [Backing; 3] = [Backing::Base, Backing::Thp, Backing::Hugetlb(None)];

impl Compare {
    /// The backings of the tables, in their order: of the program, or all combinations of those of several servers.
    pub(super) fn arms(&self) -> Vec<ArmBacking> {
        let several = self.server.names_of_several();
        if several.is_empty() {
            return self.arms_of_program();
        }
        let mut combinations = vec![Vec::new()];
        for name in several {
            let with = |known: &Vec<(String, Backing)>| {
                let backing = |backing| [known.as_slice(), &[(name.to_owned(), backing)]].concat();
                self.backings(name).into_iter().map(backing).collect::<Vec<_>>()
            };
            combinations = combinations.iter().flat_map(with).collect();
        }
        combinations.into_iter().map(ArmBacking::Servers).collect()
    }

    fn arms_of_program(&self) -> Vec<ArmBacking> {
        if self.aa {
            let given = self.backing.iter().flat_map(|list| &list.backings).next();
            return vec![given.copied().unwrap_or(Backing::Base).into(); 2];
        }
        let mut arms: Vec<ArmBacking> = Vec::new();
        let name = self.server.names().first().copied().unwrap_or_default();
        for backing in self.backings(name) {
            arms.push(backing.into());
            arms.extend(
                self.off_heap
                    .map(|off_heap| ArmBacking::from(ProgramBacking { backing, off_heap: Some(off_heap) })),
            );
        }
        arms
    }

    /// The backings of a server, or of a program without a name: base, and those of its own lists or else of the lists
    /// for all.
    fn backings(&self, name: &str) -> Vec<Backing> {
        let lists = |server: Option<&str>| -> Vec<Backing> {
            let of_server = self.backing.iter().filter(|list| list.server.as_deref() == server);
            of_server.flat_map(|list| list.backings.clone()).collect()
        };
        let own = lists(Some(name));
        let given = if own.is_empty() { lists(None) } else { own };
        let wanted = match (self.off_heap, given.as_slice()) {
            (None, []) => &DEFAULT_BACKINGS[..],
            (_, given) => given,
        };
        let mut backings = vec![Backing::Base];
        for backing in wanted {
            if !backings.contains(backing) {
                backings.push(*backing);
            }
        }
        backings
    }
}
