/* A process that lets others wait for ever.
 *
 * hanging overlay FOLDER    in a mount namespace of its own, /run is an overlay over a file system that this process
 *                           serves: a lookup of `hugewise` there is never answered
 * hanging environ FOLDER    a thread maps a file of it, and waits with the lock of the address space held: reading
 *                           /proc/PID/environ hangs
 *
 * Prints a line when it is ready, and stays until it is killed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
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
    static char bytes[sizeof(struct fuse_out_header) + SIZE];
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
        case FUSE_STATFS: {
            struct fuse_statfs_out out = {.st = {.namelen = 255, .bsize = 4096}};
            reply(head->unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_OPEN: {
            static int opened;
            struct fuse_open_out out = {.fh = 1, .open_flags = opened++ ? FOPEN_DIRECT_IO : 0};
            reply(head->unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_READ: {
            static char zeros[SIZE];
            reply(head->unique, 0, zeros, ((struct fuse_read_in *)name)->size);
            break;
        }
        case FUSE_WRITE: case FUSE_FLUSH: case FUSE_FORGET: case FUSE_BATCH_FORGET: case FUSE_INTERRUPT: break;
        default: reply(head->unique, -ENOSYS, 0, 0);
        }
    }
}

/* Mounts the file system at `place`, in a mount namespace of its own. */
static void mount_at(const char *place) {
    if (unshare(CLONE_NEWNS) || mount(0, "/", 0, MS_REC | MS_PRIVATE, 0)) fail("unshare");
    if (mount("none", place, "tmpfs", 0, 0) || chdir(place)) fail("tmpfs");
    mkdir("fuse", 0755);
    mkdir("upper", 0755);
    mkdir("work", 0755);
    if (mknod("device", S_IFCHR | 0600, makedev(10, 229))) fail("mknod");
    device = open("device", O_RDWR);
    if (device < 0) fail("the device of FUSE");
    char text[4096];
    sprintf(text, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    if (mount("fuse", "fuse", "fuse", MS_NOSUID | MS_NODEV, text)) fail("fuse");
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve();
    }
    close(device);
}

/* Waits until the pages of the other mapping are written, which never happens. */
static void *map_again(void *file) {
    mmap(0, SIZE, PROT_READ, MAP_PRIVATE, (intptr_t)file, 0);
    return 0;
}

static void hang_environ(void) {
    int file = open("fuse/file", O_RDWR), direct = open("fuse/file", O_RDONLY);
    char *memory = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || direct < 0 || memory == MAP_FAILED) fail("the file");
    memory[0] = 1;
    pthread_t thread;
    pthread_create(&thread, 0, map_again, (void *)(intptr_t)direct);
    usleep(200000);
}

static void hang_run(const char *folder) {
    char text[4096];
    sprintf(text, "lowerdir=%s/fuse,upperdir=%s/upper,workdir=%s/work", folder, folder, folder);
    if (mount("none", "/run", "overlay", 0, text)) fail("overlay");
}

int main(int count, char **arguments) {
    if (count != 3) fail("usage: hanging MODE FOLDER");
    mount_at(arguments[2]);
    if (!strcmp(arguments[1], "overlay")) hang_run(arguments[2]);
    else hang_environ();
    /* Not by stdio, which may need memory. */
    if (write(1, "ready\n", 6) != 6) return 1;
    for (;;) pause();
}
