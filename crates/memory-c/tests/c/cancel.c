/* Threads are cancelled before, during and after calls: each call finishes, and the thread ends where the program
 * permits it. */
#define _GNU_SOURCE

#include "expect.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#define LEN (4 * MIB)
#define ROUNDS 200

static hugewise_region *shared;

static int cancel_the_caller(void *context, uint64_t done, uint64_t wanted)
{
    (void)done, (void)wanted;
    pthread_cancel(*(pthread_t *)context);
    /* No cancellation point, even here: the call must return to the library. */
    pthread_testcancel();
    usleep(1);
    return 0;
}

/* Calls each function once, and expects that it succeeds. */
static void call_all(void)
{
    hugewise_pretouch_options options = {.struct_size = sizeof options, .chunk = MIB};
    hugewise_reserve_options place = {.struct_size = sizeof place, .name = "cancelled"};
    hugewise_pretouched touched = {.struct_size = sizeof touched};
    hugewise_page_bytes pages[8];
    hugewise_region *region = NULL;
    uint64_t given_back;
    size_t count;
    void *memory;

    EXPECT(hugewise_abi_version() == HUGEWISE_ABI_VERSION && hugewise_version() != NULL);
    EXPECT(hugewise_reserve(LEN, "hugetlb:1GiB,thp,base", &region) == HUGEWISE_OK);
    EXPECT(hugewise_region_release(region) == HUGEWISE_OK);
    EXPECT(hugewise_reserve_at(LEN, "base", &place, &region) == HUGEWISE_OK);
    memory = hugewise_region_address(region);
    EXPECT(memory != NULL && hugewise_region_len(region) == LEN && hugewise_region_page_size(region) > 0);
    EXPECT(hugewise_region_backing(region) != NULL && hugewise_region_fallbacks(region) == 0);
    EXPECT(hugewise_region_fallback_backing(region, 0) == NULL && hugewise_region_fallback_cause(region, 0) == NULL);
    EXPECT(hugewise_region_pretouch(region, 0, LEN, &options, &touched) == HUGEWISE_OK && touched.done == LEN);
    EXPECT(hugewise_pretouch(memory, LEN, &options, &touched) == HUGEWISE_OK);
    EXPECT(hugewise_region_coverage(region, pages, 8, &count) == HUGEWISE_OK);
    EXPECT(hugewise_coverage(memory, LEN, pages, 8, &count) == HUGEWISE_OK);
    EXPECT(hugewise_region_decommit(region, 0, LEN, &given_back) == HUGEWISE_OK && given_back == LEN);
    EXPECT(hugewise_region_release(region) == HUGEWISE_OK);
    EXPECT(hugewise_reserve(LEN, "nonsense", &region) == HUGEWISE_FAILED);
    EXPECT_ERROR(EINVAL, "nonsense");
}

/* The cancellation is pending before the calls. */
static void *cancelled_before(void *context)
{
    int state;
    (void)context;
    EXPECT(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state) == 0);
    EXPECT(pthread_cancel(pthread_self()) == 0);
    EXPECT(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL) == 0);
    call_all();
    EXPECT(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) == 0 && state == PTHREAD_CANCEL_ENABLE);
    pthread_testcancel();
    return NULL;
}

/* The cancellation arrives inside of a call. */
static void *cancelled_during(void *is_asynchronous)
{
    pthread_t own = pthread_self();
    hugewise_pretouch_options options = {.struct_size = sizeof options, .chunk = MIB};
    hugewise_pretouched touched = {.struct_size = sizeof touched};
    options.progress = cancel_the_caller;
    options.context = &own;
    if (is_asynchronous)
        EXPECT(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL) == 0);
    EXPECT(hugewise_region_pretouch(shared, 0, LEN, &options, &touched) == HUGEWISE_OK && touched.done == LEN);
    /* A thread that may be cancelled at any moment ends at the return of the call. */
    EXPECT(!is_asynchronous);
    pthread_testcancel();
    return NULL;
}

static void *cancelled_at_any_time(void *context)
{
    hugewise_page_bytes pages[8];
    size_t count;
    (void)context;
    for (;;) {
        EXPECT(hugewise_region_coverage(shared, pages, 8, &count) == HUGEWISE_OK);
        EXPECT(hugewise_region_pretouch(shared, 0, LEN, NULL, NULL) == HUGEWISE_OK);
        EXPECT(hugewise_region_address(shared) != NULL);
        pthread_testcancel();
    }
}

static void ends_cancelled(void *(*work)(void *), void *context, int delay)
{
    pthread_t thread;
    void *result = NULL;
    EXPECT(pthread_create(&thread, NULL, work, context) == 0);
    if (delay >= 0) {
        usleep(delay);
        pthread_cancel(thread);
    }
    EXPECT(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    /* The library works as before. */
    EXPECT(hugewise_region_len(shared) == LEN);
}

int main(void)
{
    int round;
    EXPECT(hugewise_reserve(LEN, "base", &shared) == HUGEWISE_OK);
    ends_cancelled(cancelled_before, NULL, -1);
    ends_cancelled(cancelled_during, NULL, -1);
    ends_cancelled(cancelled_during, &shared, -1);
    for (round = 0; round < ROUNDS; round++)
        ends_cancelled(cancelled_at_any_time, NULL, round * 10);
    call_all();
    EXPECT(hugewise_region_release(shared) == HUGEWISE_OK);
    return 0;
}
