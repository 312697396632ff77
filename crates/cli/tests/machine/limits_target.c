// A process that does not answer, in the state that its first argument names. It looks like a JVM: it has mapped a file
// libjvm.so, in the folder of the second argument, and catches SIGQUIT. Prints `ready PID` of the process in that state,
// and runs until its process group is killed.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *state, *folder;

static void fail(const char *what) { perror(what); exit(1); }
static int is(const char *name) { return !strcmp(state, name); }
static void ready(pid_t pid) { printf("ready %d\n", pid); fflush(stdout); }
static void rest(void) { for (;;) pause(); }
static void caught(int number) { (void)number; }

// 32 MiB of memory that can be on huge pages, and a library.
static void look_like_a_jvm(void) {
    char path[500];
    snprintf(path, sizeof path, "%s/libjvm.so", folder);
    int file = open(path, O_RDWR | O_CREAT, 0755);
    if (file < 0 || ftruncate(file, 65536)) fail(path);
    if (pwrite(file, "\177ELF", 4, 0) != 4) fail(path);
    if (mmap(0, 65536, PROT_READ, MAP_PRIVATE, file, 0) == MAP_FAILED) fail("mmap");
    size_t size = 32 << 20;
    char *area = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED) fail("mmap");
    for (size_t at = 0; at < size; at += 4096) memcpy(area + at, &at, sizeof at);
    signal(SIGQUIT, caught);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_NAME, "Signal Dispatch");
}

static struct sockaddr_un address(void) {
    struct sockaddr_un of = {.sun_family = AF_UNIX};
    snprintf(of.sun_path, sizeof of.sun_path, "/tmp/.java_pid%d", getpid());
    return of;
}

static int bound(int type) {
    struct sockaddr_un of = address();
    int socket_ = socket(AF_UNIX, type, 0);
    if (bind(socket_, (void *)&of, sizeof of)) fail("bind");
    return socket_;
}

static void *drip(void *connection) {
    int to = (int)(intptr_t)connection;
    if (write(to, "0\n", 2) == 2)
        while (write(to, "x", 1) == 1) sleep(1);
    return 0;
}

static void serve(void) {
    if (is("datagrams")) { bound(SOCK_DGRAM); ready(getpid()); rest(); }
    int listener = bound(SOCK_STREAM);
    listen(listener, is("full") ? 0 : 50);
    if (is("full")) {
        struct sockaddr_un of = address();
        while (!connect(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), (void *)&of, sizeof of));
    }
    ready(getpid());
    if (is("full")) rest();
    for (;;) {
        int connection = accept(listener, 0, 0);
        pthread_t thread;
        if (is("drip")) pthread_create(&thread, 0, drip, (void *)(intptr_t)connection);
    }
}

// A file system in which the look-up of every name but libjvm.so, and every read of that, waits for ever. Where `held`,
// reads are answered and writes are not.
static int device;
static void reply(uint64_t unique, int error, const void *data, size_t size) {
    static char bytes[1 << 17];
    struct fuse_out_header *head = (void *)bytes;
    head->len = sizeof *head + size; head->error = error; head->unique = unique;
    memcpy(bytes + sizeof *head, data, size);
    if (write(device, bytes, head->len) < 0 && errno != ENOENT) perror("reply");
}

static void serve_files(void) {
    static char question[1 << 20], zeros[1 << 16];
    int opened = 0;
    struct fuse_attr root = {.ino = 1, .mode = S_IFDIR | 0755, .nlink = 2, .blksize = 4096};
    struct fuse_attr library = {.ino = 2, .mode = S_IFREG | 0755, .nlink = 1, .size = 65536, .blksize = 4096};
    for (;;) {
        ssize_t got = read(device, question, sizeof question);
        if (got < 0) { if (errno == EINTR || errno == ENOENT) continue; exit(0); }
        struct fuse_in_header *head = (void *)question;
        char *name = question + sizeof *head;
        switch (head->opcode) {
        case FUSE_INIT: {
            struct fuse_init_out out = {.major = 7, .minor = 31, .max_readahead = 4096, .max_write = 4096};
            reply(head->unique, 0, &out, sizeof out); break; }
        case FUSE_GETATTR: {
            struct fuse_attr_out out = {.attr_valid = 1000, .attr = head->nodeid == 2 ? library : root};
            reply(head->unique, 0, &out, sizeof out); break; }
        case FUSE_LOOKUP:
            if (!strcmp(name, "libjvm.so")) {
                struct fuse_entry_out out = {.nodeid = 2, .entry_valid = 1000, .attr_valid = 1000, .attr = library};
                reply(head->unique, 0, &out, sizeof out);
            }
            break;
        case FUSE_OPEN: case FUSE_OPENDIR: {
            struct fuse_open_out out = {.open_flags = opened++ ? FOPEN_DIRECT_IO : 0};
            reply(head->unique, 0, &out, sizeof out); break; }
        case FUSE_READ:
            if (is("held")) reply(head->unique, 0, zeros, ((struct fuse_read_in *)name)->size);
            break;
        case FUSE_STATFS: {
            struct fuse_statfs_out out = {.st = {.namelen = 255, .bsize = 4096}};
            reply(head->unique, 0, &out, sizeof out); break; }
        case FUSE_READDIR: case FUSE_READDIRPLUS: case FUSE_FLUSH: case FUSE_WRITE:
        case FUSE_FORGET: case FUSE_BATCH_FORGET: case FUSE_INTERRUPT: break;
        default: reply(head->unique, -ENOSYS, 0, 0);
        }
    }
}

// Waits until the pages of the other mapping are written, and holds the lock of the address space.
static void *map_again(void *file) {
    mmap(0, 65536, PROT_READ, MAP_PRIVATE, (int)(intptr_t)file, 0);
    return 0;
}

// Mounts the file system at `place`, in a namespace of its own.
static void hang(const char *place) {
    char options[200];
    if (unshare(CLONE_NEWNS) || mount("none", "/", 0, MS_REC | MS_PRIVATE, 0)) fail("unshare");
    device = open("/dev/fuse", O_RDWR);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
    if (device < 0 || mount("hung", place, "fuse", 0, options)) fail("fuse");
    pid_t parent = getpid();
    if (!fork()) {
        close(device);
        ready(getpid());
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) exit(1);
        rest();
    }
    serve_files();
}

static void hang_below(void) {
    char place[500], path[600];
    snprintf(place, sizeof place, "%s/hung", folder);
    mkdir(place, 0755);
    if (unshare(CLONE_NEWNS) || mount("none", "/", 0, MS_REC | MS_PRIVATE, 0)) fail("unshare");
    device = open("/dev/fuse", O_RDWR);
    char options[200];
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
    if (device < 0 || mount("hung", place, "fuse", 0, options)) fail("fuse");
    pid_t parent = getpid();
    if (fork()) serve_files();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) exit(1);
    close(device);
    snprintf(path, sizeof path, "%s/libjvm.so", place);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) fail(path);
    if (is("held by exec")) {
        // Closing the file waits for ever, and its address space cannot be opened until the program begins.
        char *program[] = {"/proc/self/exe", "runs", (char *)folder, 0};
        ready(getpid());
        execv(program[0], program);
        fail("exec");
    }
    int is_held = is("held");
    char *at = mmap(0, 65536, PROT_READ | (is_held ? PROT_WRITE : 0), is_held ? MAP_SHARED : MAP_PRIVATE, file, 0);
    if (at == MAP_FAILED) fail("mmap");
    if (is_held) {
        int direct = open(path, O_RDONLY);
        at[0] = 1;
        pthread_t thread;
        char line[50];
        int length = sprintf(line, "ready %d\n", getpid());
        pthread_create(&thread, 0, map_again, (void *)(intptr_t)direct);
        usleep(200000);
        // Not by stdio, which may need memory, and so the lock.
        if (write(1, line, length) != length) exit(1);
        for (;;) pause();
    }
    ready(getpid());
    rest();
}

static void *none(void *unused) { usleep(2000); return unused; }

static void storm(void) {
    ready(getpid());
    for (;;) {
        pthread_t thread; pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, 16384);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        pthread_create(&thread, &attributes, none, 0);
        usleep(200);
    }
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    state = arguments[1]; folder = arguments[2];
    // A program that reads the command lines of all processes would wait with it: its end is certain.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(120);
    if (is("executes") && count > 3) { usleep(20000); execv(arguments[0], arguments); }
    int hangs_below = is("hung library") || is("held") || is("held by exec");
    if (!hangs_below) look_like_a_jvm();
    if (is("runs")) { ready(getpid()); rest(); }
    if (is("executes")) {
        char *again[] = {arguments[0], arguments[1], arguments[2], "again", 0};
        ready(getpid()); execv(arguments[0], again); fail("exec");
    }
    if (is("storm")) storm();
    if (is("hung files")) hang("/tmp");
    if (hangs_below) hang_below();
    if (is("zombie")) {
        pid_t child = fork();
        if (!child) _exit(0);
        siginfo_t info;
        waitid(P_PID, child, &info, WEXITED | WNOWAIT);
        ready(child); rest();
    }
    if (is("traced")) {
        pid_t child = fork();
        if (!child) rest();
        int status;
        if (ptrace(PTRACE_SEIZE, child, 0, 0) || ptrace(PTRACE_INTERRUPT, child, 0, 0)) fail("ptrace");
        waitpid(child, &status, __WALL);
        ready(child); rest();
    }
    if (is("vfork")) {
        pid_t child = fork();
        if (!child) { if (!vfork()) for (;;) pause(); rest(); }
        usleep(100000); ready(child); rest();
    }
    serve();
}
