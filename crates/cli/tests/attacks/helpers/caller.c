/* caller HOW PROGRAM WORDS…: executes the program with SIGINT, SIGTERM and SIGHUP blocked (`blocked`), or with the ends
   of its children unreported (`unreported`). */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int count, char **words)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (count < 3) return 2;
    sigset_t requests;
    sigemptyset(&requests);
    sigaddset(&requests, SIGINT);
    sigaddset(&requests, SIGTERM);
    sigaddset(&requests, SIGHUP);
    if (!strcmp(words[1], "blocked")) sigprocmask(SIG_BLOCK, &requests, NULL);
    else signal(SIGCHLD, SIG_IGN);
    execv(words[2], words + 2);
    perror(words[2]);
    return 2;
}
