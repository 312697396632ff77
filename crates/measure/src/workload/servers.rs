//! The figures of several servers: those of all of them together, and some of each.

use std::collections::BTreeMap;

use super::{CPU_PER_OPERATION, PROCESS_FIGURES, figure, java};
use crate::comparison::Figure;

/// Figures of all servers that are the sum of those of each.
const SUMS: [&str; 8] =
    [CPU_PER_OPERATION.0, "cpu", "user", "sys", "cpu_wait", "peak_memory", "minor_faults", "major_faults"];
/// CPU time of a server while the driver ran.
const CPU: (&str, &str) = ("cpu", "s");
const PEAK_MEMORY: (&str, &str) = PROCESS_FIGURES[4];

/// The name of a figure of one server.
pub(crate) fn name_of(server: &str, figure: &str) -> String {
    format!("{server}_{figure}")
}

/// Whether each server has this figure of its own.
fn is_of_each(figure: &str) -> bool {
    [CPU_PER_OPERATION.0, CPU.0, PEAK_MEMORY.0].contains(&figure)
        || java::FIGURES.iter().any(|(name, _)| *name == figure)
}

/// The figures of servers by name, from those of each: the driver's figures, the sums, those of each server.
pub(crate) fn figures(each: &[(&str, Vec<Figure>)]) -> Vec<Figure> {
    let mut all: Vec<Figure> = Vec::new();
    let (_, first) = each.first().map_or(("", &[][..]), |(name, figures)| (*name, figures.as_slice()));
    let of_jvm = |figure: &Figure| java::FIGURES.iter().any(|(name, _)| *name == figure.name);
    all.extend(first.iter().filter(|figure| !of_jvm(figure)).cloned());
    let has_operations = all.iter().any(|figure| figure.name == CPU_PER_OPERATION.0);
    let cpu = if has_operations { CPU_PER_OPERATION } else { CPU };
    let named = |server: &str, of: &Figure| Figure { name: name_of(server, &of.name), ..of.clone() };
    let cpus = each.iter().map(|(server, _)| named(server, &figure(cpu)));
    // The CPU time of each, after the figure that decides the verdict.
    let at = all.len().min(1);
    all.splice(at..at, cpus);
    for (server, figures) in each {
        all.push(named(server, &figure(PEAK_MEMORY)));
        all.extend(figures.iter().filter(|figure| of_jvm(figure)).map(|of| named(server, of)));
    }
    all
}

/// The values of these figures in a round. `printed`: names of the figures that the driver prints.
pub(crate) fn values(each: &[(&str, BTreeMap<String, f64>)], printed: &[String]) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    for (server, values) in each {
        for (name, value) in values {
            if printed.contains(name) {
                all.insert(name.clone(), *value);
                continue;
            }
            if SUMS.contains(&name.as_str()) {
                *all.entry(name.clone()).or_default() += value;
            } else if !is_of_each(name) {
                all.insert(name.clone(), *value);
            }
            if is_of_each(name) {
                all.insert(name_of(server, name), *value);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_summed_and_each_has_its_own() {
        let of = |values: &[(&str, f64)]| -> BTreeMap<String, f64> {
            values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
        };
        let app =
            of(&[("wall", 9.0), ("cpu", 4.0), ("cpu_per_operation", 0.4), ("gc_pauses", 1.0), ("user", 7.0)]);
        let db = of(&[("wall", 9.0), ("cpu", 2.0), ("cpu_per_operation", 0.2), ("user", 7.0)]);
        // The driver prints a figure that is called as one of the process.
        let all = values(&[("app", app), ("db", db)], &["user".to_owned()]);
        let get = |name: &str| all.get(name).copied();
        assert_eq!([get("wall"), get("cpu"), get("user")], [Some(9.0), Some(6.0), Some(7.0)]);
        assert!(get("cpu_per_operation").is_some_and(|sum| (sum - 0.6).abs() < 1e-12));
        assert_eq!([get("app_cpu_per_operation"), get("db_cpu")], [Some(0.4), Some(2.0)]);
        assert_eq!([get("app_gc_pauses"), get("gc_pauses"), get("db_gc_pauses")], [Some(1.0), None, None]);
    }

    #[test]
    fn the_cpu_time_of_each_server_follows_the_deciding_figure() {
        let java: Vec<Figure> =
            [CPU_PER_OPERATION, ("wall", "s")].into_iter().chain(java::FIGURES).map(figure).collect();
        let other: Vec<Figure> = [CPU_PER_OPERATION, ("wall", "s")].map(figure).to_vec();
        let all = figures(&[("db", other), ("app", java)]);
        let names: Vec<&str> = all.iter().map(|figure| figure.name.as_str()).collect();
        assert_eq!(
            names[..4],
            ["cpu_per_operation", "db_cpu_per_operation", "app_cpu_per_operation", "wall"]
        );
        assert!(names.contains(&"app_gc_pauses") && !names.contains(&"gc_pauses"), "{names:?}");
        assert!(!names.contains(&"db_gc_pauses"), "{names:?}");
    }
}
