/* Memory of several kinds, which is to be converted: prints `NAME START END` of each, then `ready`. At the
   end of its input it says whether all of it still holds what was written. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define HUGE (2ul << 20)
#define PAGE 4096ul

struct part { const char *name; char *start; size_t bytes; size_t step; };

static char *aligned(size_t bytes, int flags, int fd)
{
    char *all = mmap(0, bytes + 2 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) exit(3);
    char *start = (char *)(((uintptr_t)all + HUGE - 1) & ~(HUGE - 1));
    if (mmap(start, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) == MAP_FAILED) exit(3);
    return start;
}

static void hold(char *page, int *pipe_ends)
{
    struct iovec one = { page, PAGE };
    if (vmsplice(pipe_ends[1], &one, 1, 0) != (ssize_t)PAGE) exit(4);
}

/* In the kernel, in state D, until a byte of input comes: the parent of vfork waits for its child. */
static void stall(int signal)
{
    (void)signal;
    if (vfork() == 0) {
        char byte;
        _exit(read(0, &byte, 1) < 0);
    }
}

int main(int count, char **arguments)
{
    size_t large = (count > 1 ? strtoul(arguments[1], 0, 10) : 32) << 20;
    int anonymous = MAP_PRIVATE | MAP_ANONYMOUS, ends[2];
    int shared = memfd_create("shared", 0);
    if (shared < 0 || ftruncate(shared, 4 * HUGE) || pipe(ends)) exit(2);
    struct part parts[] = {
        { "malloc", malloc(large), large, PAGE },
        { "held", aligned(4 * HUGE, anonymous, -1), 4 * HUGE, PAGE },
        { "advised", aligned(4 * HUGE, anonymous, -1), 4 * HUGE, PAGE },
        { "sparse", aligned(4 * HUGE, anonymous, -1), 4 * HUGE, 4 * PAGE },
        { "shared", aligned(4 * HUGE, MAP_SHARED, shared), 4 * HUGE, PAGE },
    };
    int kinds = sizeof parts / sizeof *parts;
    if (madvise(parts[2].start, parts[2].bytes, MADV_NOHUGEPAGE)) exit(2);
    for (int n = 0; n < kinds; n++) {
        for (size_t at = 0; at < parts[n].bytes; at += parts[n].step)
            *(uint32_t *)(parts[n].start + at) = at / PAGE + n;
        printf("%s %lu %lu\n", parts[n].name, (uintptr_t)parts[n].start,
               (uintptr_t)parts[n].start + parts[n].bytes);
    }
    hold(parts[1].start + HUGE, ends);
    hold(parts[1].start + 3 * HUGE - PAGE, ends);
    struct sigaction action = { .sa_handler = stall, .sa_flags = SA_RESTART };
    if (sigaction(SIGUSR1, &action, 0)) exit(2);
    puts("ready");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) continue;
    for (int n = 0; n < kinds; n++)
        for (size_t at = 0; at < parts[n].bytes; at += parts[n].step)
            if (*(volatile uint32_t *)(parts[n].start + at) != (uint32_t)(at / PAGE + n)) {
                puts("wrong");
                return 1;
            }
    puts("right");
    return 0;
}
