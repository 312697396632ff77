/* memory MIB: holds memory on base pages that can become huge, and reads it. Prints `ready PID`. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int count, char **words)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    size_t bytes = (size_t)atoi(count > 1 ? words[1] : "64") << 20, huge = 2 << 20;
    char *all = mmap(NULL, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    volatile char *memory = (char *)(((uintptr_t)all + huge - 1) & ~(huge - 1));
    memset((char *)memory, 7, bytes);
    printf("ready %d\n", getpid());
    fflush(stdout);
    for (;; usleep(20000)) for (size_t at = 0; at < bytes; at += 4096) (void)memory[at];
}
