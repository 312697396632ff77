/* Wrong arguments cause errors that name the argument, never a crash. */
#define _DEFAULT_SOURCE

#include "expect.h"

#include <errno.h>
#include <sys/mman.h>

#define FAILS(call, code, text)                                                                            \
    do {                                                                                                   \
        EXPECT((call) == HUGEWISE_FAILED);                                                                 \
        EXPECT_ERROR(code, text);                                                                          \
    } while (0)

static void reserving(void)
{
    static const char not_utf8[] = {(char)0xff, 0};
    hugewise_region *region = (hugewise_region *)&region;
    FAILS(hugewise_reserve(0, "base", &region), EINVAL, "len is 0");
    EXPECT(region == NULL);
    FAILS(hugewise_reserve(MIB, NULL, &region), EINVAL, "backings is NULL");
    FAILS(hugewise_reserve(MIB, "base", NULL), EINVAL, "region is NULL");
    FAILS(hugewise_reserve(MIB, "base", (hugewise_region **)((char *)&region + 1)), EINVAL, "not aligned");
    FAILS(hugewise_reserve(MIB, "", &region), EINVAL, "use base, thp, hugetlb");
    FAILS(hugewise_reserve(MIB, "base,", &region), EINVAL, "use base, thp, hugetlb");
    FAILS(hugewise_reserve(MIB, "thp:2MiB", &region), EINVAL, "only hugetlb and shm take a page size");
    FAILS(hugewise_reserve(MIB, "hugetlb:3MiB", &region), EINVAL, "power of two");
    FAILS(hugewise_reserve(MIB, not_utf8, &region), EINVAL, "not UTF-8");
    FAILS(hugewise_reserve(MIB, "hugetlb:1TiB", &region), ENOMEM, "no pool of 1TiB");
    FAILS(hugewise_reserve_at(MIB, "base", &(hugewise_reserve_options){0}, &region), EINVAL, "options->struct_size");
    FAILS(hugewise_reserve_at(
              MIB, "base", &(hugewise_reserve_options){.struct_size = sizeof(hugewise_reserve_options), .bind = 2},
              &region),
          EINVAL, "options->bind is 2");
    FAILS(hugewise_reserve_at(
              MIB, "base",
              &(hugewise_reserve_options){
                  .struct_size = sizeof(hugewise_reserve_options), .bind = 1, .node = 1000},
              &region),
          ENOMEM, "could not be bound to node 1000");
    FAILS(hugewise_reserve((size_t)1 << 60, "thp,base", &region), ENOMEM, "could not be reserved");
    FAILS(hugewise_reserve((size_t)-1, "base", &region), ENOMEM, "exceeds the address space");
    EXPECT(region == NULL);
}

static void handles(hugewise_region *wrong, const char *text)
{
    hugewise_page_bytes pages[8];
    size_t count;
    EXPECT(hugewise_region_address(wrong) == NULL);
    EXPECT_ERROR(EINVAL, text);
    EXPECT(hugewise_region_len(wrong) == 0);
    EXPECT(hugewise_region_page_size(wrong) == 0);
    EXPECT(hugewise_region_backing(wrong) == NULL);
    EXPECT(hugewise_region_fallbacks(wrong) == 0);
    EXPECT(hugewise_region_fallback_backing(wrong, 0) == NULL);
    EXPECT(hugewise_region_fallback_cause(wrong, 0) == NULL);
    FAILS(hugewise_region_coverage(wrong, pages, 8, &count), EINVAL, text);
    FAILS(hugewise_region_pretouch(wrong, 0, 1, NULL, NULL), EINVAL, text);
    FAILS(hugewise_region_decommit(wrong, 0, 1, NULL), EINVAL, text);
    FAILS(hugewise_region_release(wrong), EINVAL, text);
}

static void coverage(hugewise_region *region)
{
    hugewise_page_bytes pages[8];
    size_t count = 99;
    FAILS(hugewise_region_coverage(region, pages, 8, NULL), EINVAL, "count is NULL");
    FAILS(hugewise_region_coverage(region, NULL, 8, &count), EINVAL, "pages is NULL");
    FAILS(hugewise_region_coverage(region, pages, (size_t)-1, &count), EINVAL, "pages cannot have");
    FAILS(hugewise_region_coverage(region, NULL, 0, &count), ERANGE, "capacity is 0");
    EXPECT(count == 1);
}

static void parts(hugewise_region *region)
{
    uint64_t given_back = 99;
    FAILS(hugewise_region_pretouch(region, 0, 0, NULL, NULL), EINVAL, "len is 0");
    FAILS(hugewise_region_pretouch(region, 0, MIB + 1, NULL, NULL), EINVAL, "beyond the region, which has 1048576");
    FAILS(hugewise_region_pretouch(region, MIB, 1, NULL, NULL), EINVAL, "beyond the region");
    FAILS(hugewise_region_pretouch(region, (size_t)-1, 2, NULL, NULL), EINVAL, "beyond the region");
    FAILS(hugewise_region_decommit(region, 0, 0, NULL), EINVAL, "len is 0");
    FAILS(hugewise_region_decommit(region, 1, MIB, NULL), EINVAL, "beyond the region");
    FAILS(hugewise_region_decommit(region, 0, 1, (uint64_t *)((char *)&given_back + 1)), EINVAL, "not aligned");
    EXPECT(hugewise_region_decommit(region, 1, 1, &given_back) == HUGEWISE_OK);
    EXPECT(given_back == 0);
}

static void structs(hugewise_region *region)
{
    /* The structs of a later header. */
    struct {
        hugewise_pretouch_options known;
        uint64_t later;
    } options = {.later = 0};
    struct {
        hugewise_pretouched known;
        uint64_t later;
    } touched = {.later = 99};
    hugewise_pretouch_options *how = &options.known;

    FAILS(hugewise_region_pretouch(region, 0, 1, how, NULL), EINVAL, "options->struct_size is 0: set it");
    how->struct_size = sizeof *how - 1;
    FAILS(hugewise_region_pretouch(region, 0, 1, how, NULL), EINVAL, "options->struct_size");
    how->struct_size = UINT64_MAX;
    FAILS(hugewise_region_pretouch(region, 0, 1, how, NULL), EINVAL, "options->struct_size");
    how->struct_size = sizeof *how;
    how->way = 3;
    FAILS(hugewise_region_pretouch(region, 0, 1, how, NULL), EINVAL, "options->way is 3");
    how->way = HUGEWISE_WAY_ANY;
    FAILS(hugewise_region_pretouch(region, 0, 1, how, &touched.known), EINVAL, "pretouched->struct_size is 0");
    touched.known.struct_size = sizeof touched;
    how->struct_size = sizeof options;
    EXPECT(hugewise_region_pretouch(region, 0, 1, how, &touched.known) == HUGEWISE_OK);
    EXPECT(touched.known.done > 0 && touched.later == 0);
    options.later = 1;
    FAILS(hugewise_region_pretouch(region, 0, 1, how, NULL), E2BIG, "does not have");
}

static void memory_of_others(void)
{
    hugewise_page_bytes pages[8];
    size_t count = 99;
    hugewise_pretouch_options touch = {.struct_size = sizeof touch, .way = HUGEWISE_WAY_TOUCH};
    char *memory = mmap(NULL, 3 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(memory != MAP_FAILED);
    FAILS(hugewise_pretouch(NULL, 1, NULL, NULL), EINVAL, "start is NULL");
    FAILS(hugewise_pretouch(memory, 0, NULL, NULL), EINVAL, "len is 0");
    FAILS(hugewise_pretouch(memory, (size_t)-1, NULL, NULL), EINVAL, "exceeds the address space");
    FAILS(hugewise_pretouch((void *)-4096, 4095, &touch, NULL), EINVAL, "nothing is mapped");
    FAILS(hugewise_coverage(NULL, 1, pages, 8, &count), EINVAL, "start is NULL");
    FAILS(hugewise_coverage(memory, 1, pages, 8, NULL), EINVAL, "count is NULL");
    /* Touching either would end the program. */
    EXPECT(munmap(memory + MIB, MIB) == 0);
    FAILS(hugewise_pretouch(memory, 3 * MIB, &touch, NULL), EINVAL, "nothing is mapped at");
    EXPECT(mprotect(memory, MIB, PROT_READ) == 0);
    FAILS(hugewise_pretouch(memory, MIB, &touch, NULL), EINVAL, "is not readable and writable (r--p)");
    EXPECT(hugewise_coverage(memory + MIB, 4096, pages, 8, &count) == HUGEWISE_UNKNOWN);
    EXPECT_ERROR(ENODATA, "nothing is mapped");
}

int main(void)
{
    hugewise_region *region = NULL;
    reserving();
    handles(NULL, "region is NULL");
    handles((hugewise_region *)&region, "not a region");
    handles((hugewise_region *)(uintptr_t)1, "not a region");
    EXPECT(hugewise_reserve(MIB, "base", &region) == HUGEWISE_OK);
    coverage(region);
    parts(region);
    structs(region);
    memory_of_others();
    EXPECT(hugewise_region_release(region) == HUGEWISE_OK);
    handles(region, "it was released");
    return 0;
}
