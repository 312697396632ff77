/* Fragments the memory of the whole machine so that no huge page can be made of it: prints `ready`, and
   holds it until the end of its input. Compaction would mend plain holes; here each block of a huge page's
   size holds a page that cannot be moved. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define HUGE (2ul << 20)
#define PAGE 4096ul
#define KEEP 4              /* one page in so many stays */
#define SPARE (1200ul << 20) /* as much is left to others */
#define SLOTS 256           /* pages that a pipe holds */

static unsigned long meminfo(const char *key)
{
    char line[256];
    unsigned long kib = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, key, strlen(key))) kib = strtoul(line + strlen(key), 0, 10);
    if (file) fclose(file);
    return kib << 10;
}

/* Free blocks that a huge page could be taken from. */
static unsigned long blocks(void)
{
    char line[512];
    unsigned long sum = 0;
    FILE *file = fopen("/proc/buddyinfo", "r");
    while (file && fgets(line, sizeof line, file)) {
        char *at = strstr(line, "zone"), *word = at ? strtok(at, " \n") : 0;
        int order = -2;
        if (strstr(line, "DMA ")) continue;
        for (; word; word = strtok(0, " \n"), order++)
            if (order >= 9) sum += strtoul(word, 0, 10) << (order - 9);
    }
    if (file) fclose(file);
    return sum;
}

static void pin(char *page)
{
    static int ends[2], used = SLOTS;
    if (used == SLOTS) {
        if (pipe(ends) || fcntl(ends[1], F_SETPIPE_SZ, SLOTS * PAGE) < 0) exit(4);
        used = 0;
    }
    struct iovec one = { page, PAGE };
    if (vmsplice(ends[1], &one, 1, 0) != (ssize_t)PAGE) exit(4);
    used++;
}

/* Pins, of the pages that stay, the highest one of each block of the machine's memory. */
static void pin_all(char *start, size_t bytes)
{
    unsigned long total = meminfo("MemTotal:") * 2 / HUGE + (8ul << 30) / HUGE;
    unsigned long *best = calloc(total, sizeof *best), *frames = malloc(HUGE / PAGE * sizeof *frames);
    char **pages = calloc(total, sizeof *pages);
    int pagemap = open("/proc/self/pagemap", O_RDONLY);
    if (!best || !frames || !pages || pagemap < 0) exit(5);
    for (size_t at = 0; at < bytes; at += HUGE) {
        off_t place = ((uintptr_t)start + at) / PAGE * sizeof *frames;
        if (pread(pagemap, frames, HUGE / PAGE * sizeof *frames, place) <= 0) exit(5);
        for (size_t n = 0; n < HUGE / PAGE; n += KEEP) {
            unsigned long frame = frames[n] & ((1ul << 55) - 1), block = frame / (HUGE / PAGE);
            if (frame && block < total && frame > best[block]) {
                best[block] = frame;
                pages[block] = start + at + n * PAGE;
            }
        }
    }
    for (unsigned long block = 0; block < total; block++)
        if (pages[block]) pin(pages[block]);
    close(pagemap);
}

int main(void)
{
    FILE *adjust = fopen("/proc/self/oom_score_adj", "w");
    if (!adjust || fputs("1000", adjust) < 0 || fclose(adjust)) exit(2);
    size_t bytes = (meminfo("MemAvailable:") - SPARE) & ~(HUGE - 1);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *start = mmap(0, bytes + HUGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (start == MAP_FAILED) exit(3);
    start = (char *)(((uintptr_t)start + HUGE - 1) & ~(HUGE - 1));
    if (madvise(start, bytes, MADV_NOHUGEPAGE)) exit(3);
    for (size_t at = 0; at < bytes; at += PAGE) {
        start[at] = 1;
        if (at % (HUGE * 128) == 0 && meminfo("MemAvailable:") < SPARE) bytes = at & ~(HUGE - 1);
    }
    pin_all(start, bytes);
    for (size_t at = 0; at < bytes; at += KEEP * PAGE)
        if (madvise(start + at + PAGE, (KEEP - 1) * PAGE, MADV_DONTNEED)) exit(6);
    /* What is left in one piece becomes huge pages of our own. */
    for (int n = 0; n < 4096 && blocks() > 2; n++) {
        char *one = mmap(0, 2 * HUGE, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (one == MAP_FAILED) break;
        one = (char *)(((uintptr_t)one + HUGE - 1) & ~(HUGE - 1));
        madvise(one, HUGE, MADV_HUGEPAGE);
        *one = 1;
    }
    printf("ready: %lu free blocks are left, %lu MiB are free\n", blocks(), meminfo("MemFree:") >> 20);
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) continue;
    return 0;
}
