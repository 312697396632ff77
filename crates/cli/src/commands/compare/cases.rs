//! The workloads of a comparison.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::bail;
use hugewise_jvm::{launch::LaunchLine, script_launch::ScriptLaunch};
use hugewise_linux::root::Root;
use hugewise_measure::{
    comparison::parameters::substitute,
    experiment::CaseToRun,
    workload::{OwnFigures, Workload},
};

use super::{
    Compare,
    embedded::{self, Java},
    parameter_lists, server,
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
        let server = self.server.command()?;
        let words: Vec<String> = server.iter().flatten().chain(&self.command).cloned().collect();
        let combinations = parameter_lists::combinations(&self.parameter_list, &words)?;
        let case = |parameters: BTreeMap<String, String>| {
            let (given, service) = match &server {
                Some(server) => (server, self.server.service(substitute(&self.command, &parameters))?),
                None => (&self.command, None),
            };
            let command = substitute(given, &parameters);
            let own = OwnFigures {
                metrics: self.metric.clone(),
                operations: self.server.operations()?,
                jmh: self.jmh.clone(),
            };
            let database = service.as_ref().map(|_| server::postgres(&command, &own)).transpose()?.flatten();
            if let Some(workload) = database {
                return Ok(CaseToRun {
                    workload,
                    service,
                    embedded: false,
                    command: given.clone(),
                    parameters,
                });
            }
            let workload = match LaunchLine::parse(&command, &|file| fs::read_to_string(file)) {
                Some(line) => Workload::java(line?, own).map_err(anyhow::Error::msg)?,
                None if self.off_heap.is_some() => bail!(
                    "--off-heap needs a COMMAND that starts with java; --backing sets the backing of the memory of any \
                     other program"
                ),
                None => match ScriptLaunch::of(&command, root) {
                    Some(script) => Workload::script(script, own),
                    None => Workload::other(command, own),
                },
            };
            Ok(CaseToRun { workload, service, embedded: false, command: given.clone(), parameters })
        };
        combinations.into_iter().map(case).collect()
    }
}
