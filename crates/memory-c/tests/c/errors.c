/* Wrong arguments are errors that say what is wrong, never a crash. */
#include "expect.h"

#include <errno.h>

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
    FAILS(hugewise_reserve((size_t)1 << 60, "thp,base", &region), ENOMEM, "could not be reserved");
    FAILS(hugewise_reserve((size_t)-1, "base", &region), ENOMEM, "ever address");
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

int main(void)
{
    hugewise_region *region = NULL;
    reserving();
    handles(NULL, "region is NULL");
    handles((hugewise_region *)&region, "not a region");
    handles((hugewise_region *)(uintptr_t)1, "not a region");
    EXPECT(hugewise_reserve(MIB, "base", &region) == HUGEWISE_OK);
    coverage(region);
    EXPECT(hugewise_region_release(region) == HUGEWISE_OK);
    handles(region, "it was released");
    return 0;
}
