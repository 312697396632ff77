//! The workloads of a comparison.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context, anyhow, bail};
use hugewise_jvm::launch::{LaunchLine, read_option_file};
use hugewise_linux::root::Root;
use hugewise_measure::{
    comparison::parameters::substitute,
    experiment::{CaseToRun, Program},
    workload::{OwnFigures, Workload},
};

use super::{
    Compare,
    embedded::{self, Java},
    parameter_lists,
    server::{self, Server},
    unit,
};

impl Compare {
    pub(super) fn cases(
        &self,
        root: &Root,
        scratch: &Path,
        notes: &mut Vec<String>,
    ) -> anyhow::Result<Vec<CaseToRun>> {
        if self.command.is_empty() {
            let java = match &self.java {
                _ if self.no_java => Java::LeftOut,
                Some(path) => Java::Named(path.clone()),
                None => Java::Usual,
            };
            let turns = self.fragmented.is_none() && self.arms_fit_at_once(root, notes);
            return embedded::cases(root, self.bytes, &java, turns, scratch, notes);
        }
        let (servers, driver) = self.server.servers(&self.command)?;
        let mut words = driver.clone();
        words.extend(servers.iter().flat_map(|server| &server.command).cloned());
        let combinations = parameter_lists::combinations(&self.parameter_list, &words)?;
        let case = |parameters: BTreeMap<String, String>| {
            let given = substitute(&driver, &parameters);
            let (programs, driver) = if servers.is_empty() {
                (vec![Program::alone(self.workload(root, given, false)?, self.command.clone())], Vec::new())
            } else {
                let program = |server: &Server| {
                    let command = substitute(&server.command, &parameters);
                    let workload = match &server.service.unit {
                        Some(_) if self.off_heap.is_some() => Err(anyhow!(
                            "--off-heap needs the command line of a JVM: the variables of a service set its heap only"
                        )),
                        Some(unit) => unit::program(root, unit)
                            .and_then(|program| Ok(Workload::unit(program, self.own_figures()?))),
                        None => self.workload(root, command, true),
                    };
                    let workload = workload.with_context(|| match server.name.as_str() {
                        "" => "--server".to_owned(),
                        name => format!("server {name}"),
                    })?;
                    Ok(Program {
                        name: server.name.clone(),
                        workload,
                        service: Some(server.service.clone()),
                        command: server.shown_command(),
                    })
                };
                (servers.iter().map(program).collect::<anyhow::Result<_>>()?, given)
            };
            Ok(CaseToRun { programs, driver, embedded: false, parameters })
        };
        combinations.into_iter().map(case).collect()
    }

    fn own_figures(&self) -> anyhow::Result<OwnFigures> {
        let operations = self.server.operations()?;
        Ok(OwnFigures { metrics: self.metric.clone(), operations, jmh: self.jmh.clone() })
    }

    /// The workload of a command.
    fn workload(&self, root: &Root, command: Vec<String>, is_server: bool) -> anyhow::Result<Workload> {
        let own = self.own_figures()?;
        let database = if is_server { server::postgres(&command, &own)? } else { None };
        if let Some(workload) = database {
            return Ok(workload);
        }
        Ok(match LaunchLine::parse(&command, &read_option_file) {
            Some(line) => Workload::java(line?, own).map_err(anyhow::Error::msg)?,
            None if self.off_heap.is_some() => bail!(
                "--off-heap needs a COMMAND that starts with java; --backing sets the backing of the memory of any \
                 other program"
            ),
            None => Workload::other(command, root, own),
        })
    }
}
