use std::{error::Error, fs, io, path::Path};

use super::*;

/// A process of `machine` with a heap of ZGC; `resident` and `huge` are in KiB.
fn jvm(machine: &Path, pid: u32, children: &str, resident: u64, huge: u64) -> io::Result<()> {
    let process = machine.join(format!("proc/{pid}"));
    fs::create_dir_all(process.join(format!("task/{pid}")))?;
    fs::write(process.join(format!("task/{pid}/children")), children)?;
    fs::write(
        process.join("smaps"),
        format!(
            "40000000000-40040000000 rw-s 00000000 00:01 9  /memfd:java_heap (deleted)\n\
             Size: 1048576 kB\nRss: {resident} kB\nShmemPmdMapped: {huge} kB\n"
        ),
    )
}

fn observer(machine: &Path) -> Result<Observer, Box<dyn Error>> {
    let region = RegionOfInterest::JavaHeap(machine.join("no.log"));
    Ok(Observer::new(&Root::at(machine), region, Some("2m".parse()?)))
}

/// ZGC maps its heap before it touches it; a sample may be taken before or during the touching.
#[test]
fn sampling_stays_frequent_until_the_heap_is_populated() -> Result<(), Box<dyn Error>> {
    let machine = tempfile::tempdir()?;
    let mut observer = observer(machine.path())?;
    let mut sample = |resident, huge| -> io::Result<(Option<f64>, Duration)> {
        jvm(machine.path(), 10, "", resident, huge)?;
        // An expensive sample lengthens the interval, unless the region is unsettled.
        observer.interval = MAX_INTERVAL;
        observer.sample(10);
        Ok((observer.coverage.as_ref().and_then(Coverage::share), observer.interval))
    };
    assert_eq!(sample(0, 0)?, (None, MAX_INTERVAL_GROWING));
    assert_eq!(sample(4096, 4096)?, (Some(1.0), MAX_INTERVAL_GROWING));
    assert_eq!(sample(8192, 4096)?, (Some(0.5), MAX_INTERVAL_GROWING));
    let (share, interval) = sample(8704, 4352)?;
    assert!(share == Some(0.5) && interval >= MAX_INTERVAL, "{share:?}, {interval:?}");
    Ok(())
}

#[test]
fn one_dear_reading_does_not_end_the_readings() {
    let of = Duration::from_micros;
    assert_eq!(next_cost(of(150), of(4_100)), of(300));
    assert_eq!(next_cost(of(300), of(150)), of(150));
    assert_eq!(next_cost(Duration::ZERO, of(900)), of(900));
}

/// Growth leads to a sample, at once if it is large, and otherwise when it ends.
#[test]
fn memory_that_grows_is_sampled_before_the_interval_is_over() -> Result<(), Box<dyn Error>> {
    let machine = tempfile::tempdir()?;
    let mut observer = observer(machine.path())?;
    let mut read = |resident: u64| -> Result<Option<Bytes>, Box<dyn Error>> {
        jvm(machine.path(), 10, "", resident, 0)?;
        fs::write(machine.path().join("proc/10/status"), format!("VmRSS: {resident} kB\n"))?;
        observer.interval = Duration::from_secs(1000);
        observer.sample_if_due(10);
        Ok(observer.coverage.as_ref().map(|seen| Bytes(seen.resident.0 >> 10)))
    };
    assert_eq!(read(1000)?, Some(Bytes(1000)));
    assert_eq!(read(1100)?, Some(Bytes(1000)));
    assert_eq!(read(1300)?, Some(Bytes(1000)));
    assert_eq!(read(1310)?, Some(Bytes(1310)));
    assert_eq!(read(2000)?, Some(Bytes(2000)));
    Ok(())
}

/// A buffer that is mapped at once and touched little by little, and address space that is only reserved.
#[test]
fn what_is_mapped_counts_before_it_is_touched() -> Result<(), Box<dyn Error>> {
    let machine = tempfile::tempdir()?;
    let process = machine.path().join("proc/10");
    fs::create_dir_all(process.join("task/10"))?;
    fs::write(process.join("task/10/children"), "")?;
    let text = "7000000000-7040000000 rw-p 00000000 00:00 0 \nRss: 4096 kB\n\
                8000000000-8080000000 ---p 00000000 00:00 0 \nRss: 0 kB\n\
                9000000000-9000200000 rw-s 00000000 00:01 7 /dev/shm/x\nRss: 2048 kB\n";
    fs::write(process.join("smaps"), text)?;
    let mut observer = Observer::new(&Root::at(machine.path()), RegionOfInterest::Anonymous, None);
    observer.sample(10);
    assert_eq!(observer.largest_mapped, Bytes(1 << 30));
    Ok(())
}

/// JMH's own JVM is on huge pages; the forked JVM, which runs the benchmark, is not.
#[test]
fn of_several_jvms_the_one_with_the_fullest_heap_counts() -> Result<(), Box<dyn Error>> {
    let machine = tempfile::tempdir()?;
    jvm(machine.path(), 10, "11 ", 4096, 4096)?;
    jvm(machine.path(), 11, "", 8192, 0)?;
    let mut observer = observer(machine.path())?;
    observer.sample(10);
    let seen = observer.coverage.ok_or("nothing was seen")?;
    assert_eq!(seen.resident, Bytes(8192 << 10));
    assert!(seen.huge.is_empty() || seen.huge.values().all(|bytes| *bytes == Bytes::ZERO));
    Ok(())
}

/// Two processes of a server with the same shared memory, of which the second has touched more.
#[test]
fn the_shared_memory_of_a_server_counts_once() -> Result<(), Box<dyn Error>> {
    let machine = tempfile::tempdir()?;
    for (pid, children, shared) in [(10, "11 ", 6144), (11, "", 8192)] {
        let process = machine.path().join(format!("proc/{pid}"));
        fs::create_dir_all(process.join(format!("task/{pid}")))?;
        fs::write(process.join(format!("task/{pid}/children")), children)?;
        fs::write(
            process.join("smaps"),
            format!(
                "1000-2000 r-xp 00000000 00:01 9 /usr/lib/postgresql/15/bin/postgres\n\
                 7000000000-7010000000 rw-s 00000000 00:0f 7 /anon_hugepage (deleted)\n\
                 KernelPageSize: 2048 kB\nRss: 0 kB\nShared_Hugetlb: {shared} kB\nVmFlags: rd wr sh ht\n"
            ),
        )?;
        let status = format!("VmRSS: 1500 kB\nRssShmem: 500 kB\nHugetlbPages: {shared} kB\n");
        fs::write(process.join("status"), status)?;
    }
    let root = Root::at(machine.path());
    let mut observer = Observer::new(&root, RegionOfInterest::PostgresSharedMemory, Some("2m".parse()?));
    observer.sample(10);
    let seen = observer.coverage.as_ref().ok_or("nothing was seen")?;
    assert_eq!((seen.resident, seen.share()), (Bytes::from_kib(8192), Some(1.0)));
    assert_eq!(observer.peak_memory, Bytes::from_kib(2 * 1000 + 500 + 8192));
    let mut observer = Observer::new(&root, RegionOfInterest::Anonymous, None);
    observer.sample(10);
    assert_eq!(observer.peak_memory, Bytes::from_kib(2 * 1500 + 6144 + 8192));
    Ok(())
}
