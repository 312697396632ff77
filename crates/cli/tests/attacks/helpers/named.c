/* named NAME [zombie]: a process of this name, or with a child of this name that has ended. Prints `ready PID`, the
   child's if there is one. */
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int count, char **words)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (count < 2) return 2;
    prctl(PR_SET_NAME, words[1], 0, 0, 0);
    pid_t pid = getpid();
    if (count > 2 && !(pid = fork())) _exit(0);
    printf("ready %d\n", pid);
    fflush(stdout);
    for (;;) pause();
}
