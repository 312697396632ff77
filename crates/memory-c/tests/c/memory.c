/* Memory is reserved, used, measured and released, as a program does it. */
#define _DEFAULT_SOURCE

#include "expect.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t resident(const hugewise_page_bytes *pages, size_t count)
{
    uint64_t sum = 0;
    size_t i;
    for (i = 0; i < count; i++)
        sum += pages[i].bytes;
    return sum;
}

/* The coverage of a region, or without one of len bytes from memory on; returns the number of items. */
static size_t coverage(const hugewise_region *region, const void *memory, size_t len, hugewise_page_bytes *pages)
{
    size_t count = 99;
    if (region)
        EXPECT(hugewise_region_coverage(region, pages, 8, &count) == HUGEWISE_OK);
    else
        EXPECT(hugewise_coverage(memory, len, pages, 8, &count) == HUGEWISE_OK);
    return count;
}

/* Waits until least to most bytes are resident: pages under migration (compaction) are not present. */
static void expect_present(int line, const hugewise_region *region, const void *memory, size_t len, uint64_t least,
                           uint64_t most)
{
    hugewise_page_bytes pages[8];
    uint64_t present = 0;
    int tries;
    for (tries = 0; tries < 120000; tries++) {
        present = resident(pages, coverage(region, memory, len, pages));
        if (least <= present && present <= most)
            return;
        usleep(1000);
    }
    fprintf(stderr, "line %d: %lu bytes are present, not %lu\n", line, (unsigned long)present, (unsigned long)least);
    exit(1);
}

#define EXPECT_PRESENT(region, bytes) expect_present(__LINE__, region, NULL, 0, bytes, bytes)

static void a_region_is_what_was_asked_for(const char *backings, size_t len)
{
    hugewise_page_bytes pages[8];
    size_t count = 99, page_size, i;
    hugewise_region *region = NULL;
    unsigned char *memory;

    EXPECT(hugewise_reserve(len, backings, &region) == HUGEWISE_OK);
    EXPECT(region != NULL);
    EXPECT(hugewise_region_len(region) == len);
    page_size = hugewise_region_page_size(region);
    memory = hugewise_region_address(region);
    EXPECT(memory != NULL && (uintptr_t)memory % page_size == 0);
    EXPECT(strstr(backings, hugewise_region_backing(region)) != NULL);

    EXPECT(hugewise_region_coverage(region, pages, 8, &count) == HUGEWISE_OK);
    EXPECT(count == 1 && pages[0].bytes == 0);
    for (i = 0; i < len; i++)
        EXPECT(memory[i] == 0);
    memset(memory, 7, len);
    EXPECT(memory[0] == 7 && memory[len - 1] == 7);
    expect_present(__LINE__, region, NULL, 0, len, len + page_size - 1);
    count = coverage(region, NULL, 0, pages);
    for (i = 1; i < count; i++)
        EXPECT(pages[i - 1].page_size < pages[i].page_size && pages[i].bytes > 0);
    if (strcmp(hugewise_region_backing(region), "base") == 0)
        EXPECT(count == 1 && pages[0].page_size == page_size);

    printf("%lu bytes on %s:", (unsigned long)len, hugewise_region_backing(region));
    for (i = 0; i < count; i++)
        printf(" %lu on %lu", (unsigned long)pages[i].bytes, (unsigned long)pages[i].page_size);
    printf("\n");
    EXPECT(hugewise_region_release(region) == HUGEWISE_OK);
}

static int stop_half_way(void *context, uint64_t done, uint64_t wanted)
{
    hugewise_region *region = *(hugewise_region **)context;
    /* The callback may call the library. */
    EXPECT(hugewise_region_len(region) == 64 * MIB);
    return done * 2 >= wanted;
}

static void memory_is_made_present_and_given_back(const char *backings)
{
    hugewise_pretouched touched = {.struct_size = sizeof touched};
    hugewise_pretouch_options options = {.struct_size = sizeof options, .threads = 2, .chunk = MIB};
    hugewise_region *region = NULL;
    uint64_t given_back = 99;
    size_t i, page_size;
    unsigned char *memory;
    int status;

    EXPECT(hugewise_reserve(64 * MIB, backings, &region) == HUGEWISE_OK);
    memory = hugewise_region_address(region);
    page_size = hugewise_region_page_size(region);

    options.progress = stop_half_way;
    options.context = &region;
    status = hugewise_region_pretouch(region, 0, 64 * MIB, &options, &touched);
    EXPECT(touched.done >= 32 * MIB && touched.wanted == 64 * MIB);
    /* The threads may have finished the rest before they saw the request. */
    EXPECT(status == (touched.done < touched.wanted ? HUGEWISE_FAILED : HUGEWISE_OK));
    if (status != HUGEWISE_OK)
        EXPECT_ERROR(ECANCELED, "of 64MiB done: cancelled by the progress callback");

    memset(memory, 7, page_size);
    options.progress = NULL;
    EXPECT(hugewise_region_pretouch(region, 0, 64 * MIB, &options, &touched) == HUGEWISE_OK);
    EXPECT(touched.struct_size == sizeof touched && touched.done == 64 * MIB && touched.elapsed_ns > 0);
    EXPECT(touched.threads == 2 && touched.way != HUGEWISE_WAY_ANY);
    EXPECT(touched.chunk >= MIB && touched.page_size == page_size);
    for (i = 0; i < page_size; i++)
        EXPECT(memory[i] == 7);
    EXPECT_PRESENT(region, 64 * MIB);
    expect_present(__LINE__, NULL, memory, 64 * MIB, 64 * MIB, 64 * MIB);

    /* Only whole pages are released: not the first, one byte of which is outside of the range. */
    EXPECT(hugewise_region_decommit(region, 1, 32 * MIB - 1, &given_back) == HUGEWISE_OK);
    EXPECT(given_back == 32 * MIB - page_size);
    EXPECT(memory[0] == 7 && memory[page_size - 1] == 7 && memory[page_size] == 0);
    EXPECT(hugewise_region_decommit(region, 0, 64 * MIB, NULL) == HUGEWISE_OK);
    EXPECT_PRESENT(region, 0);

    /* Populate a part again. */
    EXPECT(hugewise_region_pretouch(region, page_size, 1, NULL, NULL) == HUGEWISE_OK);
    EXPECT_PRESENT(region, page_size);
    EXPECT(memory[page_size] == 0);
    EXPECT(hugewise_region_release(region) == HUGEWISE_OK);
}

static void memory_of_others_is_made_present(void)
{
    hugewise_pretouched touched = {.struct_size = sizeof touched};
    hugewise_pretouch_options options = {.struct_size = sizeof options, .way = HUGEWISE_WAY_TOUCH};
    unsigned char *memory = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(memory != MAP_FAILED);
    memory[5] = 7;
    EXPECT(hugewise_pretouch(memory + 3, 8 * MIB - 3, &options, &touched) == HUGEWISE_OK);
    EXPECT(touched.done == 8 * MIB && touched.way == HUGEWISE_WAY_TOUCH);
    expect_present(__LINE__, NULL, memory, 8 * MIB, 8 * MIB, 8 * MIB);
    EXPECT(memory[5] == 7 && memory[8 * MIB - 1] == 0);
    EXPECT(munmap(memory, 8 * MIB) == 0);
}

static void a_fallback_carries_its_cause(void)
{
    hugewise_region *region = NULL;
    EXPECT(hugewise_reserve(MIB, " hugetlb:1TiB, base", &region) == HUGEWISE_OK);
    EXPECT(strcmp(hugewise_region_backing(region), "base") == 0);
    EXPECT(hugewise_region_fallbacks(region) == 1);
    EXPECT(strcmp(hugewise_region_fallback_backing(region, 0), "hugetlb:1TiB") == 0);
    EXPECT(strstr(hugewise_region_fallback_cause(region, 0), "no pool of 1TiB") != NULL);
    EXPECT(hugewise_region_fallback_cause(region, 1) == NULL);
    EXPECT_ERROR(EINVAL, "fallback 1 does not exist");
    EXPECT(hugewise_region_release(region) == HUGEWISE_OK);
}

/* True if a line of the maps contains this name. */
static int is_mapped(const char *name)
{
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    EXPECT(maps != NULL);
    while (fgets(line, sizeof line, maps))
        found |= strstr(line, name) != NULL;
    EXPECT(fclose(maps) == 0);
    return found;
}

static void a_region_has_its_name_and_its_node(void)
{
    hugewise_reserve_options options = {.struct_size = sizeof options, .name = "rows", .bind = 1, .node = 0};
    hugewise_region *region = NULL;
    if (hugewise_reserve_at(MIB, "base", &options, &region) != HUGEWISE_OK) {
        /* A kernel without NUMA, or a container without the permission. */
        EXPECT_ERROR(ENOMEM, "could not be bound to node 0");
        options.bind = 0;
        EXPECT(hugewise_reserve_at(MIB, "base", &options, &region) == HUGEWISE_OK);
    }
    EXPECT(hugewise_region_pretouch(region, 0, MIB, NULL, NULL) == HUGEWISE_OK);
    if (is_mapped("[anon:"))
        EXPECT(is_mapped("[anon:hugewise rows]"));
    EXPECT(hugewise_region_release(region) == HUGEWISE_OK);
    EXPECT(!is_mapped("[anon:hugewise rows]"));
}

/* Without /proc the coverage is unknown, not zero. */
static void unknown_is_an_answer_of_its_own(void)
{
    hugewise_page_bytes pages[8];
    size_t count = 99;
    int status = 0;
    hugewise_region *region = NULL;
    pid_t child;
    if (geteuid() != 0) {
        fprintf(stderr, "skipped: unknown coverage (needs root)\n");
        return;
    }
    EXPECT(hugewise_reserve(MIB, "base", &region) == HUGEWISE_OK);
    child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        EXPECT(chroot("/sys/kernel") == 0 && chdir("/") == 0);
        EXPECT(hugewise_region_coverage(region, pages, 8, &count) == HUGEWISE_UNKNOWN);
        EXPECT(count == 99);
        EXPECT_ERROR(ENODATA, "/proc/self");
        _exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    EXPECT(hugewise_region_release(region) == HUGEWISE_OK);
}

int main(void)
{
    EXPECT(hugewise_abi_version() == HUGEWISE_ABI_VERSION);
    EXPECT(strchr(hugewise_version(), '.') != NULL);
    EXPECT(strcmp(hugewise_last_error(), "") == 0 && hugewise_last_error_code() == 0);
    unknown_is_an_answer_of_its_own();
    a_region_is_what_was_asked_for("base", 5 * MIB + 1);
    a_region_is_what_was_asked_for("thp,base", 8 * MIB);
    a_region_is_what_was_asked_for("hugetlb,shm,thp,base", 8 * MIB);
    memory_is_made_present_and_given_back("base");
    memory_is_made_present_and_given_back("thp,base");
    memory_is_made_present_and_given_back("hugetlb,thp,base");
    memory_is_made_present_and_given_back("shm,thp,base");
    memory_of_others_is_made_present();
    a_fallback_carries_its_cause();
    a_region_has_its_name_and_its_node();
    return 0;
}
