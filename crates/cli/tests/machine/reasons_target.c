// Memory with one known reason for its base pages, or a neighbour without it: reasons_target MIB KIND [FILE].
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define HUGE (2ul << 20)

static char *map(size_t bytes, int flags, int fd) {
    // An aligned start, with a gap on both sides.
    char *at = mmap(0, bytes + 4 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *start = (char *)(((unsigned long)at + 2 * HUGE) & ~(HUGE - 1));
    char *memory = mmap(start, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return memory;
}

static size_t bytes;

static void *thread(void *nothing) {
    char *stack = alloca(bytes);
    memset(stack, 1, bytes);
    unsigned long at = (unsigned long)stack;
    printf("memory %lu %lu\nready\n", at, at + bytes);
    fflush(stdout);
    pause();
    return nothing;
}

int main(int count, char **words) {
    if (count < 3) return 2;
    bytes = strtoul(words[1], 0, 10) << 20;
    const char *kind = words[2];
    if (!strcmp(kind, "stack")) {
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, bytes + (1 << 20));
        pthread_t id;
        if (pthread_create(&id, &attributes, thread, 0)) return 1;
        pause();
    }
    char *memory;
    if (!strcmp(kind, "file")) {
        int fd = open(words[3], O_RDWR | O_CREAT, 0600);
        if (fd < 0 || ftruncate(fd, bytes)) return 1;
        memory = map(bytes, MAP_SHARED, fd);
        madvise(memory, bytes, MADV_HUGEPAGE);
    } else {
        memory = map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    }
    if (!strcmp(kind, "prctl") && prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)) return 1;
    // PR_THP_DISABLE_EXCEPT_ADVISED
    if (!strcmp(kind, "except") && prctl(PR_SET_THP_DISABLE, 1, 2, 0, 0)) {
        printf("unknown\nready\n");
        fflush(stdout);
        pause();
    }
    if (!strcmp(kind, "refused")) madvise(memory, bytes, MADV_NOHUGEPAGE);
    if (!strcmp(kind, "late")) memset(memory, 1, bytes);
    if (!strcmp(kind, "holes") || !strcmp(kind, "late") || !strcmp(kind, "prctl")) madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 1, bytes);
    for (size_t at = 0; !strcmp(kind, "holes") && at < bytes; at += HUGE) madvise(memory + at, HUGE / 2, MADV_DONTNEED);
    printf("memory %lu %lu\nready\n", (unsigned long)memory, (unsigned long)memory + bytes);
    fflush(stdout);
    pause();
}
