use std::error::Error;

use super::{simulated_pools::PoolSimulator, *};
use crate::sys::ptrace::{CallAction, Supervisor, SystemCall};

type TestResult = Result<(), Box<dyn Error>>;

const MIB: u64 = 1 << 20;
const ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
const HUGE: i32 = ANONYMOUS | libc::MAP_HUGETLB;

fn sizes() -> Result<PageSizes, Box<dyn Error>> {
    let size: PageSize = "2m".parse()?;
    Ok(PageSizes { base: "4k".parse()?, thp: None, hugetlb: vec![size], default_hugetlb: Some(size) })
}

fn call(number: libc::c_long, arguments: [u64; 6]) -> SystemCall {
    SystemCall { thread: std::process::id(), number, arguments }
}

/// Maps memory as a kernel would that uses each hint; returns the address.
fn map(simulator: &mut PoolSimulator, mib: u64) -> u64 {
    let mut call = call(libc::SYS_mmap, [0, mib * MIB, 3, HUGE as u64, u64::MAX, 0]);
    assert_eq!(simulator.on_entry(&mut call), CallAction::MakeAndReport);
    simulator.on_return(&call, call.arguments[0] as i64);
    call.arguments[0]
}

fn unmap(simulator: &mut PoolSimulator, address: u64, mib: u64) {
    let mut call = call(libc::SYS_munmap, [address, mib * MIB, 0, 0, 0, 0]);
    assert_eq!(simulator.on_entry(&mut call), CallAction::Make);
}

fn conditions<'a>(
    sizes: &'a PageSizes,
    pools: &'a SimulatedPools,
    placement: Placement,
    ending: Ending,
) -> Conditions<'a> {
    Conditions { sizes, pools, placement, ending, timeout: Duration::from_secs(20) }
}

#[test]
fn downwards_each_mapping_is_directly_below_the_others() -> TestResult {
    let (sizes, pools) = (sizes()?, SimulatedPools::new());
    let starts = |offset: u64| {
        let placement = Placement::Downwards { offset: Bytes(offset * MIB) };
        let mut simulator = PoolSimulator::new(&conditions(&sizes, &pools, placement, Ending::Exit), -1);
        let first = map(&mut simulator, 16);
        let second = map(&mut simulator, 8);
        assert_eq!(second + 8 * MIB, first);
        // A mapping that replaces the last one ends where it ended.
        unmap(&mut simulator, second, 8);
        let third = map(&mut simulator, 12);
        assert_eq!(third + 12 * MIB, first);
        let requests = simulator.into_requests();
        let held: Vec<u64> = requests.iter().map(|request| request.held.0 / MIB).collect();
        assert_eq!(held, [16, 0, 12]);
        first
    };
    assert_eq!(starts(0) % (8 * MIB), 0);
    assert_eq!(starts(6), starts(0) + 6 * MIB);
    Ok(())
}

#[test]
fn no_memory_is_populated() -> TestResult {
    let (sizes, pools) = (sizes()?, SimulatedPools::new());
    let conditions = conditions(&sizes, &pools, Placement::Upwards, Ending::Exit);
    for flags in [ANONYMOUS, HUGE] {
        let mut simulator = PoolSimulator::new(&conditions, -1);
        let asked = (flags | libc::MAP_POPULATE) as u64;
        let mut call = call(libc::SYS_mmap, [0, 16 * MIB, 3, asked, u64::MAX, 0]);
        simulator.on_entry(&mut call);
        assert_eq!(call.arguments[3] & (libc::MAP_POPULATE | libc::MAP_HUGETLB) as u64, 0);
    }
    Ok(())
}

#[test]
fn a_program_is_killed_when_it_reads_its_standard_input() -> TestResult {
    let (sizes, pools) = (sizes()?, SimulatedPools::new());
    for (program, ending, is_stopped) in
        [("cat", Ending::FirstRead, true), ("cat", Ending::Exit, false), ("true", Ending::FirstRead, false)]
    {
        let conditions = conditions(&sizes, &pools, Placement::Upwards, ending);
        let rehearsal = rehearse(Program::new(program), &conditions)?;
        assert_eq!(
            (rehearsal.is_stopped, rehearsal.status.success()),
            (is_stopped, !is_stopped),
            "{program}"
        );
    }
    Ok(())
}
