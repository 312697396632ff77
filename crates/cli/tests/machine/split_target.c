/* Memory of several kinds on huge pages, to be split: prints `NAME START END` of each, then `ready`. `data` has
   zero-filled base pages: one in four. At the end of its input it says whether all of it holds what it held. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#define HUGE (2ul << 20)
#define PAGE 4096ul
#define COLLAPSE 25

struct part { const char *name; char *start; size_t bytes; size_t zeros; };

static char *aligned(size_t bytes, int flags, int fd)
{
    char *all = mmap(0, bytes + 2 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) exit(3);
    char *start = (char *)(((uintptr_t)all + HUGE - 1) & ~(HUGE - 1));
    if (mmap(start, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) == MAP_FAILED) exit(3);
    return start;
}

/* Of `zeros` pages, the last is zero-filled; 0: none is. */
static uint32_t content(size_t at, int n, size_t zeros)
{
    return zeros && at / PAGE % zeros == zeros - 1 ? 0 : (uint32_t)(at / PAGE * 8 + n + 1);
}

/* EAGAIN: the kernel uses a page at that moment, for example migrates it; madvise(2) tells to try again. */
static void collapse(char *start, size_t bytes)
{
    for (int tries = 0; madvise(start, bytes, COLLAPSE); tries++) {
        if (errno != EAGAIN || tries == 1000) exit(5);
        usleep(1000);
    }
}

int main(int count, char **arguments)
{
    size_t large = (count > 1 ? strtoul(arguments[1], 0, 10) : 32) << 20;
    int anonymous = MAP_PRIVATE | MAP_ANONYMOUS, ends[2];
    int shared = memfd_create("shared", 0);
    if (shared < 0 || ftruncate(shared, 4 * HUGE) || pipe(ends)) exit(2);
    struct part parts[] = {
        { "data", aligned(large, anonymous, -1), large, 4 },
        { "held", aligned(4 * HUGE, anonymous, -1), 4 * HUGE, 0 },
        { "locked", aligned(2 * HUGE, anonymous, -1), 2 * HUGE, 0 },
        { "forked", aligned(2 * HUGE, anonymous, -1), 2 * HUGE, 0 },
        { "shared", aligned(4 * HUGE, MAP_SHARED, shared), 4 * HUGE, 0 },
    };
    int kinds = sizeof parts / sizeof *parts;
    for (int n = 0; n < kinds; n++) {
        /* The last word of a page, so that the first bytes do not show whether it is zero-filled. */
        for (size_t at = 0; at < parts[n].bytes; at += PAGE)
            *(volatile uint32_t *)(parts[n].start + at + PAGE - 4) = content(at, n, parts[n].zeros);
        collapse(parts[n].start, parts[n].bytes);
        if (n != 3 && madvise(parts[n].start, parts[n].bytes, MADV_DONTFORK)) exit(6);
        printf("%s %lu %lu\n", parts[n].name, (uintptr_t)parts[n].start,
               (uintptr_t)parts[n].start + parts[n].bytes);
    }
    struct iovec one = { parts[1].start + HUGE + 9 * PAGE, PAGE };
    if (vmsplice(ends[1], &one, 1, 0) != (ssize_t)PAGE) exit(4);
    if (mlock(parts[2].start, parts[2].bytes)) exit(7);
    fflush(stdout);
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause();
    }
    puts("ready");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) continue;
    for (int n = 0; n < kinds; n++)
        for (size_t at = 0; at < parts[n].bytes; at += 4) {
            uint32_t expected = at % PAGE == PAGE - 4 ? content(at / PAGE * PAGE, n, parts[n].zeros) : 0;
            if (*(volatile uint32_t *)(parts[n].start + at) != expected) {
                puts("wrong");
                return 1;
            }
        }
    puts("right");
    return 0;
}
