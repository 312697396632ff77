/* image WHICH TEXT|BYTES [name]: a process that describes itself as it likes. WHICH is `cmdline` or `environ`: the file of
   this name in /proc/PID is TEXT, or as long as BYTES (a number), all of it zeros. With `hidden` before them the process
   is not dumpable: its files in /proc then belong to root. Prints `ready PID`. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* Field `number` of /proc/self/stat, counted from 1 as in proc(5). */
static uint64_t field(const char *stat, int number)
{
    const char *at = strrchr(stat, ')') + 2;
    for (int i = 3; i < number; i++) at = strchr(at, ' ') + 1;
    return strtoull(at, NULL, 10);
}

int main(int count, char **words)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int hidden = count > 1 && !strcmp(words[1], "hidden");
    if (count < 3 + hidden) return 2;
    const char *which = words[1 + hidden], *content = words[2 + hidden];
    char *end;
    size_t bytes = strtoull(content, &end, 10);
    int is_text = *end || end == content;
    if (is_text) bytes = strlen(content);
    size_t room = (bytes + 8191) & ~(size_t)4095;
    char *area = mmap(NULL, room, is_text ? PROT_READ | PROT_WRITE : PROT_READ,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED) fail("mmap");
    if (is_text) memcpy(area, content, bytes);
    else madvise(area, room, MADV_HUGEPAGE); /* the huge zero page: reading it takes no memory */

    char stat[4096];
    FILE *file = fopen("/proc/self/stat", "r");
    if (!file) fail("stat");
    stat[fread(stat, 1, sizeof stat - 1, file)] = 0;
    fclose(file);
    struct prctl_mm_map map = {
        .start_code = field(stat, 26), .end_code = field(stat, 27), .start_stack = field(stat, 28),
        .start_data = field(stat, 45), .end_data = field(stat, 46), .start_brk = field(stat, 47),
        .brk = (uintptr_t)sbrk(0), .arg_start = field(stat, 48), .arg_end = field(stat, 49),
        .env_start = field(stat, 50), .env_end = field(stat, 51), .exe_fd = (uint32_t)-1,
    };
    uint64_t from = (uintptr_t)area;
    if (!strcmp(which, "cmdline")) map.arg_start = from, map.arg_end = from + bytes, map.env_start = map.env_end = map.arg_end;
    else map.env_start = from, map.env_end = from + bytes;
    if (prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0)) fail("PR_SET_MM_MAP");
    if (hidden) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    printf("ready %d\n", getpid());
    fflush(stdout);
    for (;;) pause();
}
