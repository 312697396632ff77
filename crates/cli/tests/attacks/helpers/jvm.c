/* A process that looks like a JVM: it has mapped a file libjvm.so of $FOLDER, which it makes, and has an attach socket.
   Its arguments are what its command line is to say. $HOW:
     full     the backlog of the socket is full
     silent   takes connections, and does not answer
     slow     answers with one byte each second
     endless  answers without end
     escapes  answers with control sequences of terminals
     closed   has no socket, and ignores SIGQUIT
     tables   as `closed`, and the sections of its library are longer than any memory
   Prints `ready PID`. */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static const char *how;

static int is(const char *name) { return !strcmp(how, name); }

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void write_tables(int file)
{
    uint64_t bytes = 1ull << 40;
    Elf64_Ehdr head = {
        .e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT}, .e_type = ET_DYN, .e_machine = EM_X86_64,
        .e_version = EV_CURRENT, .e_ehsize = sizeof head, .e_shoff = sizeof head, .e_shentsize = sizeof(Elf64_Shdr),
        .e_shnum = 4, .e_shstrndx = 3,
    };
    Elf64_Shdr sections[4] = {{0}};
    for (int i = 1; i < 4; i++) {
        static const int types[] = {SHT_NULL, SHT_SYMTAB, SHT_DYNSYM, SHT_STRTAB};
        sections[i] = (Elf64_Shdr){
            .sh_type = types[i], .sh_offset = 4096, .sh_size = bytes - 4096, .sh_link = 3, .sh_entsize = sizeof(Elf64_Sym),
        };
    }
    if (ftruncate(file, bytes) || pwrite(file, &head, sizeof head, 0) < 0) fail("head");
    if (pwrite(file, sections, sizeof sections, sizeof head) < 0) fail("sections");
}

static void map_library(const char *folder)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/libjvm.so", folder);
    int file = open(path, O_RDWR | O_CREAT, 0755);
    if (file < 0 || ftruncate(file, 65536) || pwrite(file, "\177ELF", 4, 0) != 4) fail(path);
    if (is("tables")) write_tables(file);
    if (mmap(NULL, 65536, PROT_READ, MAP_PRIVATE, file, 0) == MAP_FAILED) fail("mmap");
}

static void send_all(int client, const char *text)
{
    size_t left = strlen(text);
    for (ssize_t sent; left && (sent = write(client, text, left)) > 0; left -= sent) text += sent;
}

static void *answer(void *argument)
{
    int client = (int)(long)argument;
    char question[4096];
    static char line[] = "0\nCard table byte_map: [0x1000,0x2000]\n";
    if (read(client, question, sizeof question) > 0) {
        if (is("escapes")) send_all(client, "7\n\033[31mred\033]0;title\a \302\233 \342\200\256\n");
        while (is("slow") && write(client, "0", 1) == 1) sleep(1);
        while (is("endless") && write(client, line, sizeof line - 1) > 0) {}
        if (is("silent")) pause();
    }
    close(client);
    return NULL;
}

int main(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    how = getenv("HOW");
    if (!how || !getenv("FOLDER")) return 2;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    map_library(getenv("FOLDER"));
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    int is_closed = is("closed") || is("tables");
    if (!is_closed) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        snprintf(address.sun_path, sizeof address.sun_path, "/tmp/.java_pid%d", getpid());
        if (bind(server, (void *)&address, sizeof address)) fail(address.sun_path);
        chmod(address.sun_path, 0600);
        listen(server, is("full") ? 0 : 50);
        int client;
        do client = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        while (is("full") && !connect(client, (void *)&address, sizeof address));
    }
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (is("full") || is_closed) pause();
    for (;;) {
        int client = accept(server, NULL, NULL);
        pthread_t thread;
        if (client >= 0) pthread_create(&thread, NULL, answer, (void *)(long)client);
    }
}
