//! A systemd service: its program takes the flags of a backing from variables.

use std::ffi::OsString;

use hugewise_evidence::observation::RegionOfInterest;
use hugewise_jvm::{large_page_flags, launch::LaunchLine};
use hugewise_launch::{channel::Channel, proof::PassedOptions};
use hugewise_linux::{
    c_library::Allocator,
    hugepages::{backing::Backing, page_sizes::PageSizes},
    reading::Reason,
    systemd::Unit,
};
use hugewise_plan::malloc::MallocSettings;

use super::{Conditions, OwnFigures, Prepared, Workload, WorkloadKind, other};
use crate::execution::Launch;

/// Names and values; `None` removes a variable.
type Variables = Vec<(String, Option<OsString>)>;
type Values = Vec<(String, String)>;

/// A service, as it runs before the experiment.
#[derive(Clone, Debug)]
pub struct UnitProgram {
    pub unit: Unit,
    /// Whether its main process is a JVM, or has started one.
    pub is_jvm: bool,
    /// The variable by which its JVM takes options; `None` if its start script drops all of them.
    pub channel: Option<Channel>,
    /// Its malloc, if that is known to be none of its C library's.
    pub allocator: Option<Allocator>,
    /// Those of its configured variables that set its pages.
    pub environment: Vec<(String, String)>,
}

impl UnitProgram {
    /// The variables that set the pages of a program other than a JVM.
    pub const MALLOC_VARIABLES: [&'static str; 2] = ["GLIBC_TUNABLES", "MALLOC_CONF"];

    /// The options of a backing for its JVM.
    pub fn passed(&self, backing: Backing) -> Result<PassedOptions, Reason> {
        Ok(PassedOptions {
            backing,
            variable: self.channel.as_ref().map(|channel| channel.variable.clone()),
            options: large_page_flags::of_any_jvm(backing)?,
            other_variables: Vec::new(),
        })
    }

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
            let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            (variables, vec![other::described(&settings)])
        };
        let set = |(name, value): (String, String)| (name, Some(value.into()));
        Ok((variables.into_iter().map(set).collect(), notes))
    }

    /// The variables of a JVM on this backing, without other flags about large pages, and what was changed.
    fn of_jvm(&self, backing: Backing) -> Result<(Values, Vec<String>), Reason> {
        let passed = self.passed(backing)?;
        let (flags, Some(variable)) = (passed.options.join(" "), passed.variable) else {
            return Reason::err(format!(
                "the script that starts {} drops or replaces every variable by which a JVM takes options: set the flags \
                 in the options that it reads",
                self.unit
            ));
        };
        let java = LaunchLine { java: "java".to_owned(), ..LaunchLine::default() };
        let (variables, aside) = java.variables_without_page_flags(&|name| self.variable(name));
        let mut variables: Values =
            variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let kept = variables.iter().position(|(name, _)| *name == variable);
        let value = kept.map(|at| variables.remove(at).1).or_else(|| self.variable(&variable));
        let value =
            value.filter(|value| !value.is_empty()).map_or(flags.clone(), |value| value + " " + &flags);
        let mut notes = vec![format!("{variable} has {flags} for its JVM")];
        variables.push((variable, value));
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
        passed: program.is_jvm.then(|| program.passed(backing)).transpose()?,
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
            channel: Some(Channel::of_every_jvm()),
            allocator: None,
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        };
        let (variables, notes) = program.of_jvm(Backing::Thp)?;
        let expected =
            [("JDK_JAVA_OPTIONS", "-Xms1g"), ("JAVA_TOOL_OPTIONS", "-Da=b -XX:+UseTransparentHugePages")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(variables, expected);
        assert!(notes.iter().any(|note| note.contains("UseLargePages of JDK_JAVA_OPTIONS")), "{notes:?}");
        let plain = UnitProgram { environment: Vec::new(), ..program };
        let base = [("JAVA_TOOL_OPTIONS".to_owned(), "-XX:-UseLargePages".to_owned())];
        assert_eq!(plain.of_jvm(Backing::Base)?.0, base);
        let closed = UnitProgram { channel: None, ..plain };
        assert!(closed.of_jvm(Backing::Thp).is_err_and(|why| why.to_string().contains("drops or replaces")));
        Ok(())
    }
}
