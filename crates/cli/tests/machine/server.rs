//! `hugewise compare --server`: a server on each backing, with a driver.

use std::{error::Error, fs, path::Path};

use hugewise_measure::comparison::Comparison;

use crate::{
    TestResult, Trial,
    compiling::compile,
    compiling::compiled,
    needs::{
        Need::{Compiler, Java, Root, Thp},
        jdks,
    },
    start::{
        INCONCLUSIVE, Running, covered, hugewise, left_running, rounds, run, run_command, says, wait_until,
    },
    trial,
};

/// An HTTP server that reads from a heap of objects, and its driver: `serve PORT`, and `drive PORT REQUESTS`.
pub const SERVICE: &str = r#"
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.net.URI;

public class Service {
    static final byte[][] DATA = new byte[128][1 << 20];

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[1]);
        if (arguments[0].equals("serve")) {
            for (byte[] part : DATA) {
                java.util.Arrays.fill(part, (byte) 1);
            }
            HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
            server.createContext("/", exchange -> {
                int sum = 0;
                for (int i = 0; i < 100_000; i++) {
                    sum += DATA[i * 31 & 127][i * 7919 & (1 << 20) - 1];
                }
                byte[] text = Integer.toString(sum).getBytes();
                exchange.sendResponseHeaders(200, text.length);
                exchange.getResponseBody().write(text);
                exchange.close();
            });
            server.start();
            System.out.println("listens on " + port);
        } else {
            int done = 0;
            for (; done < Integer.parseInt(arguments[2]); done++) {
                String answer;
                try (java.io.InputStream body = URI.create("http://127.0.0.1:" + port + "/").toURL().openStream()) {
                    answer = new java.util.Scanner(body).next();
                }
                if (!answer.equals("100000")) {
                    throw new IllegalStateException(answer);
                }
            }
            System.out.println("requests: " + done);
        }
    }
}
"#;

/// Else each answer takes 40 ms on JDK 17 (JDK-7068416).
pub const NODELAY: &str = "-Dsun.net.httpserver.nodelay=true";

pub fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = ["{port}", "listens on [0-9]+"]
        .into_iter()
        .map(|ready| {
            let name = format!("server: its heap gets its pages while the driver runs, --ready '{ready}'");
            let test = move || gets_its_pages(ready);
            trial(&name, &[Root, Thp, Java], test).representing(ready == "{port}")
        })
        .collect();
    trials.extend([
        trial("server: one that is not ready in time is ended, and its output shown", &[], not_ready),
        trial("server: one that ends too early is a failure, with its output", &[], ends_early),
        trial("server: processes that ignore SIGTERM are ended", &[], ignores_sigterm),
        trial("server: nothing of it is left if hugewise is killed", &[], killed),
        trial("server: the port of another program is refused", &[], port_in_use),
        trial("server: a failing driver is a failure, and ends the server", &[], driver_fails),
        trial("server: a driver without an operation is refused", &[], no_operation),
        trial("server: commands run before each start and after each end", &[], prepared_and_cleaned_up),
        trial("server: a command before the start that fails is a failure", &[], prepare_fails),
        trial("server: starts as another user", &[Root], as_another_user),
        trial(
            "servers: two by name run on all combinations of their backings, each with its pages",
            &[Root, Thp, Compiler],
            two_by_name,
        ),
        trial("servers: all are ended in reverse order if one of them fails", &[], one_of_two_fails),
    ]);
    trials
}

fn gets_its_pages(ready: &str) -> TestResult {
    let folder = compiled("Service", SERVICE)?;
    let classes = folder.path().to_str().ok_or("not UTF-8")?;
    let java = jdks().first().ok_or("no JDK")?.java.display().to_string();
    let server =
        format!("'{java}' -Xms256m -Xmx256m -XX:+UseSerialGC {NODELAY} -cp {classes} Service serve {{port}}");
    let driver = [&java, "-cp", classes, "Service", "drive", "{port}", "100"];
    let make = || {
        let mut command =
            hugewise(&["compare", "--json", "--rounds", "1", "-b", "base,thp", "--server", &server]);
        command.args(["--ready", ready, "--operations", "requests: ([0-9]+)", "--"]).args(driver);
        command
    };
    let comparison = run_command(&make)?.ended_with(INCONCLUSIVE)?.comparison()?;
    covered(&comparison, "thp", 0.8)?;
    has_figures(&comparison)
}

/// The server's CPU time for each operation decides, and that of the driver, which starts a JVM, is not in it.
fn has_figures(comparison: &Comparison) -> TestResult {
    let case = comparison.cases.first().ok_or("no case")?;
    assert_eq!(case.figures.first().map(|figure| figure.name.as_str()), Some("cpu_per_operation"));
    assert_eq!(case.driver.last().map(String::as_str), Some("100"), "{case:#?}");
    for round in rounds(comparison, "base")? {
        let of =
            |name: &str| round.figures.get(name).copied().ok_or_else(|| format!("no {name}: {round:#?}"));
        let (each, cpu) = (of("cpu_per_operation")?, of("cpu")?);
        assert!(cpu > 0.0 && (each - cpu / 100.0).abs() < 1e-9, "{round:#?}");
        assert!(round.coverage.is_some_and(|share| share <= 0.05), "{round:#?}");
        assert!(of("peak_memory")? >= f64::from(128 << 20), "of the server: {round:#?}");
    }
    Ok(())
}

/// Compares a shell script as a server, on base alone; the driver is `true` unless it is given.
fn refused(script: &str, options: &[&str], driver: &[&str]) -> Result<String, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("server.sh");
    fs::write(&file, script)?;
    let server = format!("sh {}", path(&file)?);
    let make = || {
        let mut command = hugewise(&["compare", "--rounds", "1", "-b", "base", "--server", &server]);
        command.args(options).arg("--").args(driver);
        command
    };
    let ended = run_command(&make)?.ended_with(2)?;
    let left = left_running();
    assert!(left.is_empty(), "{left:?}");
    Ok(ended.stderr)
}

fn path(path: &Path) -> Result<&str, Box<dyn Error>> {
    Ok(path.to_str().ok_or("not UTF-8")?)
}

fn not_ready() -> TestResult {
    let said =
        refused("echo warming up; sleep 1000", &["--ready", "{port}", "--ready-timeout", "1"], &["true"])?;
    says(&said, &["not ready after 1 s", "--ready-timeout", "warming up"])
}

fn ends_early() -> TestResult {
    let said = refused("echo no configuration >&2; exit 3", &["--ready", "listens"], &["true"])?;
    says(&said, &["ended before it was ready", "no configuration"])
}

/// A script that starts the server as its child, and both go on after SIGTERM.
fn ignores_sigterm() -> TestResult {
    let script =
        "trap '' TERM; sh -c 'trap \"\" TERM; echo child; while :; do sleep 1; done' & wait; sleep 1000";
    let said = refused(script, &["--ready", "child", "--stop-timeout", "1"], &["false"])?;
    says(&said, &["the driver ended with exit status: 1"])
}

/// A server with a child that leaves its session, and with files.
fn killed() -> TestResult {
    let folder = tempfile::tempdir()?;
    let (script, up) = (folder.path().join("server.sh"), folder.path().join("up"));
    fs::write(&script, format!("setsid sh -c 'sleep 1; echo > {}; sleep 1000' & sleep 1000", path(&up)?))?;
    let server = format!("sh {}", path(&script)?);
    let files = folder.path().join("files");
    let (prepare, cleanup) = (format!("mkdir {}", path(&files)?), format!("rm -r {}", path(&files)?));
    let arguments = ["compare", "--rounds", "1", "-b", "base", "--server", &server, "--ready", path(&up)?];
    let around = ["--prepare", &prepare, "--cleanup", &cleanup, "--", "sleep", "1000"];
    let mut running = Running::start(hugewise(&arguments).args(around))?;
    wait_until("the server is ready", || Ok(up.exists()))?;
    assert!(files.exists());
    running.child.kill()?;
    running.wait()?;
    let left = left_running();
    run(&["restore"])?.ended_with(0)?;
    assert!(left.is_empty() && !files.exists(), "{left:?}");
    Ok(())
}

fn port_in_use() -> TestResult {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port().to_string();
    let said = refused("sleep 1000", &["--ready", &port], &["true"])?;
    says(&said, &["another program accepts connections", &port])
}

fn driver_fails() -> TestResult {
    let driver = ["sh", "-c", "echo lost 3 requests; exit 5"];
    let said = refused("echo ready; sleep 1000", &["--ready", "ready"], &driver)?;
    says(&said, &["the driver ended with exit status: 5", "lost 3 requests"])
}

fn no_operation() -> TestResult {
    let options = ["--ready", "ready", "--operations", "requests: ([0-9]+)"];
    let said = refused("echo ready; sleep 1000", &options, &["echo", "requests: 0"])?;
    says(&said, &["reports 0 operations", "--operations"])
}

/// The server starts only on what was prepared, and the driver sees the same port.
fn prepared_and_cleaned_up() -> TestResult {
    let folder = tempfile::tempdir()?;
    let (script, log) = (folder.path().join("server.sh"), folder.path().join("log"));
    fs::write(&script, "cat $1/port && echo ready && sleep 1000")?;
    let make_files = "mkdir $0 && echo $1 > $0/port && echo made >> $2";
    fs::write(folder.path().join("make.sh"), make_files.replace("$2", path(&log)?))?;
    let files = folder.path().join("files-{port}");
    let (files, at) = (path(&files)?, path(folder.path())?);
    let server = format!("sh {} {files}", path(&script)?);
    let prepare = format!("sh -c '. {at}/make.sh' {files} {{port}}");
    let cleanup = format!("rm -r {files}");
    let driver = ["grep", "-x", "{port}", &format!("{files}/port")].map(str::to_owned);
    let make = || {
        let mut command =
            hugewise(&["compare", "--json", "--rounds", "2", "-b", "base", "--server", &server]);
        command.args(["--ready", "ready", "--prepare", &prepare, "--cleanup", &cleanup, "--"]).args(&driver);
        command
    };
    run_command(&make)?.ended_with(0)?;
    let runs = fs::read_to_string(&log)?.lines().count();
    assert_eq!(runs, 3, "a warm-up and two rounds");
    let left: Vec<_> = fs::read_dir(folder.path())?.flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
    Ok(())
}

fn prepare_fails() -> TestResult {
    let folder = tempfile::tempdir()?;
    let cleaned = folder.path().join("cleaned");
    let cleanup = format!("touch {}", path(&cleaned)?);
    let options =
        ["--ready", "ready", "--prepare", "sh -c 'echo no template; exit 3'", "--cleanup", &cleanup];
    let said = refused("echo ready; sleep 1000", &options, &["true"])?;
    says(&said, &["--prepare ended with exit status: 3", "no template"])?;
    assert!(cleaned.exists());
    Ok(())
}

fn as_another_user() -> TestResult {
    let make = || {
        let server = "sh -c 'id -un; id -gn; echo $HOME; echo ready; sleep 1000'";
        let mut command = hugewise(&["compare", "--rounds", "1", "-b", "base", "--server", server]);
        command.args(["--user", "nobody", "--ready", "never", "--ready-timeout", "1", "--", "true"]);
        command
    };
    says(&run_command(&make)?.ended_with(2)?.stderr, &["nobody\n      nogroup\n      /nonexistent"])?;
    let unknown = ["compare", "--server", "true", "--user", "no-such", "--ready", "x", "--", "true"];
    says(&run(&unknown)?.ended_with(2)?.stderr, &["no-such", "/etc/passwd"])
}

/// A server that reads from 64 MiB of malloc'd memory as often as its clients connect, on the port of its first
/// argument. It connects to the port of its second argument first, if there is one: that server must be ready.
const READER: &str = r#"
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
static struct sockaddr_in at(const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}
int main(int count, char **arguments) {
    struct sockaddr_in own = at(arguments[1]);
    if (count > 2) {
        struct sockaddr_in other = at(arguments[2]);
        if (connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&other, sizeof other)) return 1;
    }
    size_t size = 64 << 20;
    unsigned char *memory = malloc(size);
    memset(memory, 1, size);
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listening, (struct sockaddr *)&own, sizeof own) || listen(listening, 8)) return 2;
    for (unsigned long sum = 0, at = 1;;) {
        int client = accept(listening, 0, 0);
        for (int i = 0; i < 400000; i++) sum += memory[at = (at * 6364136223846793005UL + 1) % size];
        if (write(client, &sum, 1) < 0) return 3;
        close(client);
    }
}
"#;

/// Connects to each port of its arguments 20 times, and waits for the answers.
const CLIENT: &str = r#"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
int main(int count, char **arguments) {
    int done = 0;
    char answer;
    for (int server = 1; server < count; server++) {
        for (int i = 0; i < 20; i++, done++) {
            struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(arguments[server]))};
            address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            int server_socket = socket(AF_INET, SOCK_STREAM, 0);
            if (connect(server_socket, (struct sockaddr *)&address, sizeof address)) return 1;
            if (read(server_socket, &answer, 1) != 1) return 2;
            close(server_socket);
        }
    }
    printf("requests: %d\n", done);
}
"#;

fn two_by_name() -> TestResult {
    let folder = tempfile::tempdir()?;
    let reader = compile(folder.path(), "reader", READER)?;
    let client = compile(folder.path(), "client", CLIENT)?;
    let (db, app) = (format!("db={reader} {{port}}"), format!("app={reader} {{port}} {{port:db}}"));
    let make = || {
        let mut command = hugewise(&["compare", "--json", "--rounds", "1", "-b", "base,thp"]);
        command.args(["--server", &db, "--server", &app, "--ready", "{port}"]);
        command.args(["--operations", "requests: ([0-9]+)", "--", &client, "{port:app}", "{port:db}"]);
        command
    };
    let ended = run_command(&make)?;
    // The verdicts depend on the machine.
    let status = ended.status.code();
    assert!([Some(0), Some(1), Some(INCONCLUSIVE)].contains(&status), "{ended:#?}");
    let comparison = ended.comparison()?;
    let arms: Vec<String> = comparison.design.arms.iter().map(ToString::to_string).collect();
    assert_eq!(arms, ["db=base app=base", "db=base app=thp", "db=thp app=base", "db=thp app=thp"]);
    let effects: Vec<String> =
        comparison.effects.iter().map(|effect| format!("{}={}", effect.server, effect.backing)).collect();
    assert_eq!(effects, ["db=thp", "app=thp"]);
    let names: Vec<&str> =
        comparison.cases[0].figures.iter().take(3).map(|figure| figure.name.as_str()).collect();
    assert_eq!(names, ["cpu_per_operation", "db_cpu_per_operation", "app_cpu_per_operation"]);
    assert_eq!(comparison.rounds.iter().filter(|round| round.block.is_some()).count(), 4);
    for round in &comparison.rounds {
        let backings = comparison.design.arms[round.arm].servers();
        // Without a fallback each server has the pages of its own backing, whatever the other has.
        if round.fell_back.is_some() {
            continue;
        }
        for ((name, backing), covered) in backings.iter().zip(&round.server_coverage) {
            assert_eq!(*name, covered.server);
            let share = covered.coverage.ok_or("unknown coverage")?;
            let is_huge = backing.to_string() == "thp";
            assert!(if is_huge { share >= 0.8 } else { share <= 0.05 }, "{name} on {backing}: {round:#?}");
        }
        let of =
            |name: &str| round.figures.get(name).copied().ok_or_else(|| format!("no {name}: {round:#?}"));
        let (all, db, app) =
            (of("cpu_per_operation")?, of("db_cpu_per_operation")?, of("app_cpu_per_operation")?);
        assert!(db > 0.0 && app > 0.0 && (all - db - app).abs() < 1e-9, "{round:#?}");
    }
    let counts = comparison.rounds.iter().filter(|round| round.fell_back.is_none()).count();
    assert!(counts > 0, "every round fell back: {comparison:#?}");
    let left = left_running();
    assert!(left.is_empty(), "{left:?}");
    Ok(())
}

/// The second server exits before it is ready: the first is ended, and both are cleaned up after, the second first.
fn one_of_two_fails() -> TestResult {
    let folder = tempfile::tempdir()?;
    let (script, log) = (folder.path().join("log.sh"), folder.path().join("log"));
    fs::write(&script, format!("echo $1 >> {}", path(&log)?))?;
    let script = path(&script)?;
    let (of_db, of_app) = (format!("db=sh {script} x-db"), format!("app=sh {script} x-app"));
    let make = || {
        let mut command = hugewise(&["compare", "--rounds", "1", "-b", "base"]);
        command.args(["--server", "db=sh -c 'echo up; sleep 1000'"]);
        command.args(["--server", "app=sh -c 'echo no database; exit 4'", "--ready", "up"]);
        command.args(["--cleanup", &of_db, "--cleanup", &of_app, "--", "true"]);
        command
    };
    let ended = run_command(&make)?.ended_with(2)?;
    says(&ended.stderr, &["the server app ended before it was ready", "no database"])?;
    assert_eq!(fs::read_to_string(&log)?, "x-app\nx-db\n");
    let left = left_running();
    assert!(left.is_empty(), "{left:?}");
    Ok(())
}
