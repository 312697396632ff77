/* mappings COUNT FOLDER: a process with COUNT mappings, of which each second one is a file of FOLDER, which it makes, with
   a path of almost 4 KiB. Prints `ready PID`. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

int main(int count, char **words)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (count < 3 || chdir(words[2])) return 2;
    long mappings = atol(words[1]);
    char name[200];
    memset(name, '\n', sizeof name);
    name[sizeof name - 1] = 0;
    for (int depth = 0; depth < 4; depth++) {
        if (mkdir(name, 0755) || chdir(name)) fail("mkdir");
    }
    int file = open("libjvm.so", O_RDWR | O_CREAT, 0755);
    if (file < 0 || ftruncate(file, 1 << 20)) fail("file");
    char *area = mmap(NULL, (mappings + 1) * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED) fail("mmap");
    for (long at = 0; at < mappings; at += 2) {
        if (mmap(area + at * 4096, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) == MAP_FAILED) break;
    }
    printf("ready %d\n", getpid());
    fflush(stdout);
    for (;;) pause();
}
