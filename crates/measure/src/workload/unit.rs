//! A systemd service: its program takes the flags of a backing from variables.

use std::ffi::OsString;

use hugewise_evidence::observation::RegionOfInterest;
use hugewise_jvm::{large_page_flags, launch::LaunchLine};
use hugewise_linux::{
    c_library::Allocator,
    hugepages::{backing::Backing, page_sizes::PageSizes},
    reading::Reason,
    systemd::Unit,
};
use hugewise_plan::malloc::MallocSettings;

use super::{Conditions, OwnFigures, Prepared, Workload, WorkloadKind, other};
use crate::execution::Launch;

/// The variable by which every JVM takes options.
const JVM_VARIABLE: &str = "JAVA_TOOL_OPTIONS";

/// Names and values; `None` removes a variable.
type Variables = Vec<(String, Option<OsString>)>;
type Values = Vec<(&'static str, String)>;

/// A service, as it runs before the experiment.
#[derive(Clone, Debug)]
pub struct UnitProgram {
    pub unit: Unit,
    /// Whether its main process is a JVM, or has started one.
    pub is_jvm: bool,
    /// Its malloc, if that is known to be none of its C library's.
    pub allocator: Option<Allocator>,
    /// Those of its configured variables that set its pages.
    pub environment: Vec<(String, String)>,
}

impl UnitProgram {
    /// The variables that set the pages of a program other than a JVM.
    pub const MALLOC_VARIABLES: [&'static str; 2] = ["GLIBC_TUNABLES", "MALLOC_CONF"];

    fn variable(&self, name: &str) -> Option<String> {
        self.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    /// The variables that put its program on this backing, and what they change.
    pub fn variables(&self, backing: Backing, sizes: &PageSizes) -> Result<(Variables, Vec<String>), Reason> {
        let (variables, notes) = if self.is_jvm {
            self.of_jvm(backing)?
        } else {
            let settings = MallocSettings::of_program(self.allocator, backing, sizes)?;
            let variables = settings.variables(&|name| self.variable(name));
            (variables, vec![other::described(&settings)])
        };
        let set = |(name, value): (&str, String)| (name.to_owned(), Some(value.into()));
        Ok((variables.into_iter().map(set).collect(), notes))
    }

    /// The variables of a JVM on this backing, without other flags about large pages, and what was changed.
    fn of_jvm(&self, backing: Backing) -> Result<(Values, Vec<String>), Reason> {
        let flags = large_page_flags::of_any_jvm(backing)?.join(" ");
        let java = LaunchLine { java: "java".to_owned(), ..LaunchLine::default() };
        let (mut variables, aside) = java.variables_without_page_flags(&|name| self.variable(name));
        let kept = variables.iter().position(|(name, _)| *name == JVM_VARIABLE);
        let value = kept.map(|at| variables.remove(at).1).or_else(|| self.variable(JVM_VARIABLE));
        let value =
            value.filter(|value| !value.is_empty()).map_or(flags.clone(), |value| value + " " + &flags);
        variables.push((JVM_VARIABLE, value));
        let mut notes = vec![format!("{JVM_VARIABLE} passes {flags} to its JVM")];
        notes.extend((!aside.is_empty()).then(|| format!("removed {}", aside.join(", "))));
        Ok((variables, notes))
    }
}

impl Workload {
    pub fn unit(program: UnitProgram, own: OwnFigures) -> Workload {
        let name = program.unit.to_string();
        Workload { name, turns: None, own, kind: WorkloadKind::Unit(program) }
    }
}

pub(super) fn prepare(
    program: &UnitProgram,
    backing: Backing,
    conditions: &Conditions,
) -> Result<Prepared, Reason> {
    let (environment, notes) = program.variables(backing, conditions.sizes)?;
    let (region, allowance) = match program.is_jvm {
        true => (RegionOfInterest::AnyJavaHeap, other::OF_JVM),
        false => (RegionOfInterest::Anonymous, other::ROUNDING),
    };
    Ok(Prepared {
        launch: Launch { command: vec![program.unit.name().into()], environment, ..Launch::default() },
        region,
        pools: other::pool_demand(backing, conditions, allowance).into_iter().collect(),
        shared_memory: false,
        notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jvm_keeps_its_variables_but_for_flags_about_pages() -> Result<(), Reason> {
        let environment = [("JAVA_TOOL_OPTIONS", "-Da=b"), ("JDK_JAVA_OPTIONS", "-XX:+UseLargePages -Xms1g")];
        let program = UnitProgram {
            unit: Unit::parse("app.service").ok_or_else(|| Reason::new("a name"))?,
            is_jvm: true,
            allocator: None,
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        };
        let (variables, notes) = program.of_jvm(Backing::Thp)?;
        let expected = [
            ("JDK_JAVA_OPTIONS", "-Xms1g".to_owned()),
            ("JAVA_TOOL_OPTIONS", "-Da=b -XX:+UseTransparentHugePages".to_owned()),
        ];
        assert_eq!(variables, expected);
        assert!(notes.iter().any(|note| note.contains("UseLargePages of JDK_JAVA_OPTIONS")), "{notes:?}");
        let plain = UnitProgram { environment: Vec::new(), ..program };
        assert_eq!(plain.of_jvm(Backing::Base)?.0, [("JAVA_TOOL_OPTIONS", "-XX:-UseLargePages".to_owned())]);
        Ok(())
    }
}
