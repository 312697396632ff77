/* A file system that never answers, served by this process.
 *
 * hanging overlay FOLDER    in a mount namespace of its own, /run is an overlay over it: a lookup of `hugewise` there hangs
 * hanging environ FOLDER    the environment of this process lies in a file of it: reading /proc/PID/environ hangs
 *
 * Prints a line when it is ready, and stays until it is killed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define SIZE 65536

static int device;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void reply(uint64_t unique, int error, const void *data, size_t size) {
    char bytes[4096];
    struct fuse_out_header head = {.len = sizeof head + size, .error = error, .unique = unique};
    memcpy(bytes, &head, sizeof head);
    if (size) memcpy(bytes + sizeof head, data, size);
    if (write(device, bytes, head.len) < 0 && errno != ENOENT) perror("reply");
}

static struct fuse_attr attributes(uint64_t node) {
    struct fuse_attr folder = {.ino = 1, .mode = S_IFDIR | 0755, .nlink = 2, .blksize = 4096};
    struct fuse_attr file = {.ino = 2, .mode = S_IFREG | 0644, .nlink = 1, .blksize = 4096, .size = SIZE};
    return node == 1 ? folder : file;
}

static void serve(void) {
    static char bytes[1 << 18];
    for (;;) {
        ssize_t got = read(device, bytes, sizeof bytes);
        if (got < 0) {
            if (errno == EINTR || errno == ENOENT || errno == EAGAIN) continue;
            exit(0);
        }
        struct fuse_in_header *head = (void *)bytes;
        const char *name = bytes + sizeof *head;
        switch (head->opcode) {
        case FUSE_INIT: {
            struct fuse_init_out out = {.major = 7, .minor = 31, .max_readahead = 4096, .max_write = 4096};
            reply(head->unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_GETATTR: {
            struct fuse_attr_out out = {.attr_valid = 1000, .attr = attributes(head->nodeid)};
            reply(head->unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_LOOKUP: {
            if (!strcmp(name, "hugewise")) break; /* Never answered. */
            struct fuse_entry_out out = {.nodeid = 2, .entry_valid = 1000, .attr_valid = 1000, .attr = attributes(2)};
            if (!strcmp(name, "file")) reply(head->unique, 0, &out, sizeof out);
            else reply(head->unique, -ENOENT, 0, 0);
            break;
        }
        case FUSE_OPEN: {
            struct fuse_open_out out = {.fh = 1};
            reply(head->unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_STATFS: {
            struct fuse_statfs_out out = {.st = {.namelen = 255, .bsize = 4096}};
            reply(head->unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_READ: case FUSE_FORGET: case FUSE_BATCH_FORGET: case FUSE_INTERRUPT: case FUSE_RELEASE: break;
        default: reply(head->unique, -ENOSYS, 0, 0);
        }
    }
}

int main(int count, char **arguments) {
    if (count != 3 || chdir(arguments[2])) fail("usage: hanging MODE FOLDER");
    if (unshare(CLONE_NEWNS) || mount(0, "/", 0, MS_REC | MS_PRIVATE, 0)) fail("unshare");
    if (mount("none", ".", "tmpfs", 0, 0) || chdir(arguments[2])) fail("tmpfs");
    mkdir("fuse", 0755);
    mkdir("upper", 0755);
    mkdir("work", 0755);
    if (mknod("device", S_IFCHR | 0600, makedev(10, 229))) fail("mknod");
    device = open("device", O_RDWR);
    if (device < 0) fail("the device of FUSE");
    char text[4096];
    sprintf(text, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    if (mount("fuse", "fuse", "fuse", MS_NOSUID | MS_NODEV, text)) fail("fuse");
    pid_t server = fork();
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve();
    }
    close(device);
    if (!strcmp(arguments[1], "overlay")) {
        sprintf(text, "lowerdir=%s/fuse,upperdir=%s/upper,workdir=%s/work", arguments[2], arguments[2], arguments[2]);
        if (mount("none", "/run", "overlay", 0, text)) fail("overlay");
    } else {
        int file = open("fuse/file", O_RDONLY);
        char *memory = mmap(0, SIZE, PROT_READ, MAP_PRIVATE, file, 0);
        if (file < 0 || memory == MAP_FAILED) fail("the file");
        if (prctl(PR_SET_MM, PR_SET_MM_ENV_START, memory, 0, 0)
            || prctl(PR_SET_MM, PR_SET_MM_ENV_END, memory + SIZE, 0, 0)) fail("PR_SET_MM");
    }
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
