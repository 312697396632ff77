/* terminal COMMAND [ARGUMENT...]: runs a command on a terminal of its own, copies what it prints there to standard output,
   and ends with its status. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pty.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words)
{
    int terminal, status;
    if (count < 2) return 2;
    pid_t pid = forkpty(&terminal, NULL, NULL, NULL);
    if (pid < 0) return 2;
    if (!pid) {
        execvp(words[1], words + 1);
        _exit(127);
    }
    char text[65536];
    for (ssize_t got; (got = read(terminal, text, sizeof text)) > 0;) {
        if (write(STDOUT_FILENO, text, got) != got) return 2;
    }
    if (waitpid(pid, &status, 0) != pid) return 2;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
