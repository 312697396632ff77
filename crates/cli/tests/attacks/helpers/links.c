/* links ONE OTHER: exchanges the two files without pause. Prints `ready PID`. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int count, char **words)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (count < 3) return 2;
    printf("ready %d\n", getpid());
    fflush(stdout);
    for (;;) renameat2(AT_FDCWD, words[1], AT_FDCWD, words[2], RENAME_EXCHANGE);
}
