/* threads COUNT: COUNT threads start threads without pause, each of which ends after some milliseconds. Prints
   `ready PID`. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static void *short_life(void *none)
{
    usleep(2000);
    return none;
}

static void *start_threads(void *none)
{
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 14);
    pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
    for (pthread_t thread;; usleep(200)) pthread_create(&thread, &small, short_life, NULL);
    return none;
}

int main(int count, char **words)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pthread_t thread;
    for (int left = count > 1 ? atoi(words[1]) : 1; left; left--) pthread_create(&thread, NULL, start_threads, NULL);
    printf("ready %d\n", getpid());
    fflush(stdout);
    for (;;) pause();
}
