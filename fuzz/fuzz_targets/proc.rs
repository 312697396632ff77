//! Files of /proc that a recording reads, with arbitrary program names: no panic.

#![no_main]

use hugewise_linux::proc::{pressure, smaps, task_stat::TaskStat, vmstat::VmStat};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = pressure::parse(text);
    let _ = pressure::parse(&format!("some avg10=0.00 total={text}"));
    let _ = VmStat::parse(text).stalls();
    let _ = smaps::parse(&format!("5581-7ffc ---p 00000000 00:00 0 [rollup]\n{text}"));
    let _ = TaskStat::parse(text);
    let line = format!("814 ({text}) S 1 814 814 0 -1 4194304 77 0 5 0 300 200 0 0 20 0 9 0 4711 0 0");
    let reported = TaskStat::parse(&line).expect("a name may hold what it wants");
    assert_eq!((reported.name, reported.started_ticks), (text, 4711));
});
