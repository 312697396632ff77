/* overlay DEVICE FOLDER PLACE NAME: in a user and a mount namespace of its own, mounts an overlay over a file system in
   user space (DEVICE is /dev/fuse) on PLACE. A lookup there of a name that begins with NAME is not answered. FOLDER is
   an empty folder that belongs to the caller. The process has mapped a file libjvm.so. Prints `ready PID`. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <signal.h>
#include <unistd.h>

static int device;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void write_file(const char *path, const char *text)
{
    int file = open(path, O_WRONLY);
    if (file < 0 || write(file, text, strlen(text)) < 0) fail(path);
    close(file);
}

static void become_root_of_own_namespaces(void)
{
    char map[64];
    unsigned user = getuid(), group = getgid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS)) fail("unshare");
    write_file("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "0 %u 1", user);
    write_file("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "0 %u 1", group);
    write_file("/proc/self/gid_map", map);
}

static void reply(const struct fuse_in_header *to, int error, const void *data, size_t bytes)
{
    struct { struct fuse_out_header head; char data[4096]; } out = {
        .head = {.len = sizeof out.head + bytes, .error = error, .unique = to->unique},
    };
    memcpy(out.data, data, bytes);
    if (write(device, &out, out.head.len) < 0 && errno != ENOENT) perror("reply");
}

/* Answers all requests but lookups of `name`. */
static void serve(const char *name)
{
    static char request[1 << 18] __attribute__((aligned(8)));
    for (;;) {
        ssize_t got = read(device, request, sizeof request);
        if (got < 0 && errno == ENODEV) exit(0);
        if (got < 0) continue;
        struct fuse_in_header *head = (void *)request;
        const char *looked_up = request + sizeof *head;
        struct fuse_init_out init = {.major = 7, .minor = 31, .max_write = 4096, .max_readahead = 4096};
        struct fuse_attr_out root = {
            .attr_valid = 1000, .attr = {.ino = FUSE_ROOT_ID, .mode = S_IFDIR | 0755, .nlink = 2, .blksize = 4096},
        };
        struct fuse_statfs_out space = {.st = {.bsize = 4096, .namelen = 255}};
        switch (head->opcode) {
        case FUSE_INIT: reply(head, 0, &init, sizeof init); break;
        case FUSE_GETATTR: reply(head, 0, &root, sizeof root); break;
        case FUSE_STATFS: reply(head, 0, &space, sizeof space); break;
        case FUSE_FORGET: case FUSE_BATCH_FORGET: case FUSE_INTERRUPT: break;
        case FUSE_LOOKUP:
            if (strncmp(looked_up, name, strlen(name))) reply(head, -ENOENT, NULL, 0);
            break;
        default: reply(head, -ENOSYS, NULL, 0);
        }
    }
}

static void hold(const char *folder, const char *place)
{
    char text[8192];
    snprintf(text, sizeof text, "%s/upper/libjvm.so", folder);
    int library = open(text, O_RDWR | O_CREAT, 0755);
    if (library < 0 || ftruncate(library, 8192)) fail(text);
    mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, library, 0);
    snprintf(text, sizeof text, "lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work,userxattr", folder, folder, folder);
    if (mount("overlay", place, "overlay", 0, text)) fail("overlay");
    printf("ready %d\n", getpid());
    fflush(stdout);
    for (;;) pause();
}

int main(int count, char **words)
{
    if (count < 5) return 2;
    const char *folder = words[2];
    char text[4096];
    become_root_of_own_namespaces();
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* cleared by the new user namespace */
    device = open(words[1], O_RDWR | O_CLOEXEC);
    if (device < 0) fail(words[1]);
    if (mount("hostile", folder, "tmpfs", 0, NULL)) fail("tmpfs");
    static const char *parts[] = {"lower", "upper", "work"};
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "%s/%s", folder, parts[i]);
        if (mkdir(text, 0755)) fail(text);
    }
    snprintf(text, sizeof text, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    char lower[4096];
    snprintf(lower, sizeof lower, "%s/lower", folder);
    if (mount("hostile", lower, "fuse", MS_NOSUID | MS_NODEV, text)) fail("fuse");
    pid_t holder = fork();
    if (!holder) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        hold(folder, words[3]);
    }
    serve(words[4]);
}
