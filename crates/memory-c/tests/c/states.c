/* The library in each state that a program may get into after its start. Each state is entered by a child process,
 * before it reserves memory on each backing or after it; then the child populates, measures, decommits and releases it.
 *
 * With the argument "all" each system call of the kernel is denied, one after another, with each of two errors;
 * otherwise those that the library makes, with one of them. */
#define _GNU_SOURCE

#include "expect.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEN (2 * MIB)
#define MOST_SYSTEM_CALLS 480
#define SECONDS 600
#define SKIPPED 77

/* What a state may stop. */
enum { NOTHING = 0, RESERVE = 1, THP = 2, DECOMMIT = 4, RELEASE = 8 };

/* The state of a child: entered before memory is reserved, or after it. */
struct state {
    const char *name;
    void (*enter)(void);
    int stops;
};

static const char *const BACKINGS[] = {"base", "thp", "hugetlb", "hugetlb:2MiB", "shm", "hugetlb,shm,thp,base"};
#define COUNT(array) (sizeof(array) / sizeof *(array))

static int denied, denied_errno;

/* Ends a child that cannot enter a state. */
static void needs(int condition)
{
    if (!condition)
        _exit(SKIPPED);
}

static void limited(int resource, rlim_t value)
{
    struct rlimit limit = {value, value};
    needs(setrlimit(resource, &limit) == 0);
}

static void changed_user(void)
{
    needs(setgid(65534) == 0 && setuid(65534) == 0);
}

static void undumpable_user(void)
{
    needs(prctl(PR_SET_DUMPABLE, 0) == 0);
    if (geteuid() == 0)
        changed_user();
}

static void empty_root(void)
{
    char folder[] = "/tmp/hugewise-empty-XXXXXX";
    needs(mkdtemp(folder) != NULL);
    needs(chdir(folder) == 0 && rmdir(folder) == 0 && chroot(".") == 0);
}

static void no_descriptors(void)
{
    limited(RLIMIT_NOFILE, 0);
}

static void no_standard_descriptors(void)
{
    close(0), close(1), close(2);
}

static void no_threads(void)
{
    limited(RLIMIT_NPROC, 0);
    if (geteuid() == 0)
        changed_user();
}

static void read_only_root(void)
{
    needs(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    needs(mount("/", "/", NULL, MS_BIND, NULL) == 0);
    needs(mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) == 0);
}

static void no_locked_memory(void)
{
    limited(RLIMIT_MEMLOCK, 0);
    if (geteuid() == 0)
        changed_user();
    needs(mlockall(MCL_FUTURE | MCL_ONFAULT) == 0 || errno == EPERM);
}

static void locked_memory(void)
{
    needs(mlockall(MCL_FUTURE) == 0);
}

static void on_tick(int signal)
{
    (void)signal;
}

static void many_signals(void)
{
    struct sigaction action = {.sa_handler = on_tick};
    struct itimerval every = {{0, 200}, {0, 200}};
    EXPECT(sigaction(SIGPROF, &action, NULL) == 0 && sigaction(SIGALRM, &action, NULL) == 0);
    EXPECT(setitimer(ITIMER_REAL, &every, NULL) == 0);
}

/* No more address space than there is. */
static void full_address_space(void)
{
    limited(RLIMIT_AS, 1);
}

static void full_data(void)
{
    limited(RLIMIT_DATA, 1);
}

static void denied_system_call(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, denied, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | denied_errno),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {COUNT(code), code};
    needs(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

static int is_pool(const char *backing)
{
    return strncmp(backing, "hugetlb", 7) == 0 || strncmp(backing, "shm", 3) == 0;
}

/* A failure has a code and a reason. */
static void expect_reason(void)
{
    EXPECT(hugewise_last_error_code() != 0 && strlen(hugewise_last_error()) > 10);
    EXPECT(strstr(hugewise_last_error(), "bug in libhugewise") == NULL);
    EXPECT(hugewise_last_error_code() != ENOTRECOVERABLE);
}

static hugewise_region *reserved(const char *backings, int stops)
{
    hugewise_region *region = NULL;
    int may_fail = stops & RESERVE || strncmp(backings, "shm", 3) == 0 || (stops & THP && strcmp(backings, "thp") == 0);
    int status = hugewise_reserve(LEN, backings, &region);
    if (status == HUGEWISE_OK)
        return region;
    expect_reason();
    if (is_pool(backings) && strchr(backings, ',') == NULL && !may_fail)
        /* The kernel was asked, and the pool is empty. */
        EXPECT_ERROR(ENOMEM, "Cannot allocate memory");
    else
        EXPECT(may_fail);
    return NULL;
}

static void expect_bytes(const unsigned char *memory, int value)
{
    size_t i;
    for (i = 0; i < LEN; i += 4096)
        EXPECT(memory[i] == value);
}

static void used(hugewise_region *region, int stops)
{
    hugewise_pretouched touched = {.struct_size = sizeof touched};
    hugewise_page_bytes pages[8];
    unsigned char *memory = hugewise_region_address(region);
    uint64_t present = 0, given_back = 99;
    size_t count = 0, i;
    int status;

    EXPECT(hugewise_region_pretouch(region, 0, LEN, NULL, &touched) == HUGEWISE_OK);
    EXPECT(touched.done >= LEN);
    for (i = 0; i < LEN; i += 4096)
        memory[i] = 7;
    status = hugewise_region_coverage(region, pages, 8, &count);
    EXPECT(status == HUGEWISE_OK || status == HUGEWISE_UNKNOWN);
    if (status == HUGEWISE_OK) {
        for (i = 0; i < count; i++)
            present += pages[i].bytes;
        EXPECT(present > 0 && present <= touched.wanted);
    } else {
        expect_reason();
    }
    if (hugewise_pretouch(memory, LEN, NULL, &touched) != HUGEWISE_OK) {
        /* Without its mappings and without madvise it is unknown whether touching would end the process. */
        EXPECT(stops & DECOMMIT);
        expect_reason();
    }
    if (hugewise_coverage(memory, LEN, pages, 8, &count) != HUGEWISE_OK)
        expect_reason();
    expect_bytes(memory, 7);
    if (hugewise_region_decommit(region, 0, LEN, &given_back) == HUGEWISE_OK) {
        EXPECT(given_back >= LEN);
        /* Another process may have taken the pages of a pool. */
        if (hugewise_region_pretouch(region, 0, LEN, NULL, NULL) == HUGEWISE_OK)
            expect_bytes(memory, 0);
        else
            EXPECT(is_pool(hugewise_region_backing(region)));
    } else {
        EXPECT(stops & DECOMMIT);
        expect_reason();
    }
    if (stops & RELEASE && strncmp(hugewise_region_backing(region), "shm", 3) != 0) {
        EXPECT(hugewise_region_release(region) == HUGEWISE_FAILED);
        expect_reason();
    } else {
        EXPECT(hugewise_region_release(region) == HUGEWISE_OK);
    }
}

/* Runs all backings in a child that has entered the state; returns whether it was entered. */
static int ends_well(const struct state *state, int is_late)
{
    int status;
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        hugewise_region *regions[COUNT(BACKINGS)];
        size_t i;
        alarm(SECONDS);
        if (!is_late && state->enter)
            state->enter();
        for (i = 0; i < COUNT(BACKINGS); i++)
            regions[i] = reserved(BACKINGS[i], is_late ? NOTHING : state->stops);
        if (is_late && state->enter)
            state->enter();
        for (i = 0; i < COUNT(BACKINGS); i++)
            if (regions[i])
                used(regions[i], state->stops);
        _exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
        if (!denied)
            printf("skipped: %s\n", state->name);
        return 0;
    }
    if (status != 0) {
        fprintf(stderr, "%s, entered %s reserving: status %#x, system call %d answers %d\n", state->name,
                is_late ? "after" : "before", status, denied, denied_errno);
        exit(1);
    }
    return 1;
}

static const struct state STATES[] = {
    {"as it is", NULL, NOTHING},
    {"another user", changed_user, NOTHING},
    {"another user, not dumpable", undumpable_user, NOTHING},
    {"an empty root", empty_root, NOTHING},
    {"no free descriptor", no_descriptors, NOTHING},
    {"no standard descriptors", no_standard_descriptors, NOTHING},
    {"no more threads", no_threads, NOTHING},
    {"a read-only root", read_only_root, NOTHING},
    {"locked memory", locked_memory, DECOMMIT},
    {"no more locked memory", no_locked_memory, RESERVE | DECOMMIT},
    {"many signals", many_signals, NOTHING},
    {"a full address space", full_address_space, RESERVE},
    {"full data", full_data, RESERVE},
};

/* Those that the library makes, itself or through the C library. */
static const int MADE[] = {
    SYS_mmap, SYS_munmap, SYS_madvise, SYS_mprotect, SYS_mbind, SYS_prctl, SYS_get_mempolicy, SYS_mincore,
    SYS_shmget, SYS_shmat, SYS_shmctl, SYS_shmdt, SYS_openat, SYS_read, SYS_close, SYS_ioctl, SYS_fcntl,
    SYS_fstat, SYS_newfstatat, SYS_statx, SYS_getdents64, SYS_lseek, SYS_sched_getaffinity, SYS_sched_setaffinity,
    SYS_sched_yield, SYS_getrusage, SYS_futex, SYS_clone, SYS_clone3, SYS_set_robust_list, SYS_rseq,
    SYS_rt_sigprocmask, SYS_sigaltstack, SYS_gettid, SYS_getpid, SYS_clock_gettime, SYS_getrandom, SYS_prlimit64,
};

static void without(int number, int error)
{
    struct state state = {"a denied system call", denied_system_call, NOTHING};
    /* Without these no thread and no process can end; and malloc of glibc takes the error of brk for an address. */
    if (number == SYS_exit || number == SYS_exit_group || number == SYS_brk)
        return;
    if (number == SYS_mmap)
        state.stops = RESERVE;
    if (number == SYS_madvise)
        state.stops = THP | DECOMMIT;
    if (number == SYS_munmap)
        state.stops = RELEASE;
    denied = number;
    denied_errno = error;
    ends_well(&state, 0);
    ends_well(&state, 1);
    denied = 0;
}

int main(int count, char **arguments)
{
    size_t i;
    int number;
    setvbuf(stdout, NULL, _IONBF, 0);
    /* As in a program that has used malloc and the library before. */
    EXPECT(hugewise_reserve(0, "base", NULL) == HUGEWISE_FAILED);
    for (i = 0; i < COUNT(STATES); i++)
        ends_well(&STATES[i], 0), ends_well(&STATES[i], 1);
    if (count > 1 && strcmp(arguments[1], "all") == 0)
        for (number = 0; number < MOST_SYSTEM_CALLS; number++)
            without(number, EPERM), without(number, ENOSYS);
    else
        for (i = 0; i < COUNT(MADE); i++)
            without(MADE[i], i % 2 ? EPERM : ENOSYS);
    return 0;
}
