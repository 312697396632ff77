/* typing TEXT REPORT: a server that types TEXT into its terminal, in each way that it finds: its controlling terminal,
   and each descriptor that it has inherited. Adds a line to the file REPORT for each terminal, then prints `ready`. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

static FILE *report;

static void type(const char *name, int terminal, const char *text)
{
    int typed = 0;
    for (; *text; text++) typed += !ioctl(terminal, TIOCSTI, text);
    fprintf(report, "%s: typed %d characters\n", name, typed);
}

int main(int count, char **words)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (count < 3) return 2;
    report = fopen(words[2], "a");
    if (!report) return 1;
    int terminal = open("/dev/tty", O_RDWR | O_NOCTTY);
    if (terminal >= 0) type("controlling terminal", terminal, words[1]);
    else fprintf(report, "no controlling terminal: %s\n", strerror(errno));
    for (int inherited = 0; inherited < 1024; inherited++) {
        if (!isatty(inherited) || inherited == terminal) continue;
        char name[64];
        snprintf(name, sizeof name, "descriptor %d", inherited);
        type(name, inherited, words[1]);
        setsid();
        if (!ioctl(inherited, TIOCSCTTY, 0)) fprintf(report, "descriptor %d: became the controlling terminal\n", inherited);
    }
    fclose(report);
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
