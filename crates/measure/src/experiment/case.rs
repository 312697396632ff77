//! A case to run: the program, or the servers and their driver.

use std::collections::BTreeMap;

use crate::{
    comparison::Figure,
    serving::Service,
    workload::{Workload, servers},
};

/// A workload with one set of parameter values.
#[derive(Debug)]
pub struct CaseToRun {
    /// The program, or the servers in the order of their start; never empty.
    pub programs: Vec<Program>,
    /// The driver of servers and its arguments; empty without a server.
    pub driver: Vec<String>,
    pub embedded: bool,
    /// Values from `--parameter-list`, by name.
    pub parameters: BTreeMap<String, String>,
}

/// A program of a case.
#[derive(Debug)]
pub struct Program {
    /// Its name among several servers; empty for one program.
    pub name: String,
    pub workload: Workload,
    /// How it starts and ends if it is a server.
    pub service: Option<Service>,
    /// The command line as given, with parameters by name; empty for the native workload.
    pub command: Vec<String>,
}

impl Program {
    /// A program that ends by itself.
    pub fn alone(workload: Workload, command: Vec<String>) -> Program {
        Program { name: String::new(), workload, service: None, command }
    }
}

impl CaseToRun {
    /// The workload of the program; of several servers, that of the first.
    pub fn workload(&self) -> &Workload {
        &self.programs[0].workload
    }

    /// The programs as text: `java 17.0.15`, `PostgreSQL + java 17.0.15`.
    pub(crate) fn name(&self) -> String {
        let names: Vec<&str> = self.programs.iter().map(|program| program.workload.name.as_str()).collect();
        names.join(" + ")
    }

    /// Several servers with their names; none for one program.
    pub(super) fn servers(&self) -> impl Iterator<Item = &Program> {
        self.programs.iter().filter(|program| !program.name.is_empty())
    }

    pub(super) fn figures(&self) -> Vec<Figure> {
        let each: Vec<_> =
            self.servers().map(|server| (server.name.as_str(), server.workload.figures())).collect();
        if each.is_empty() { self.workload().figures() } else { servers::figures(&each) }
    }
}
