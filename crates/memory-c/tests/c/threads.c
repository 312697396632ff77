/* Several threads with a region each, and one shared region. */
#define _POSIX_C_SOURCE 200809L

#include "expect.h"

#include <errno.h>
#include <pthread.h>

#define THREADS 4
#define ROUNDS 50

static hugewise_region *shared;
static pthread_barrier_t all_there;

static void errors_are_the_threads_own(int number)
{
    hugewise_region *region = NULL;
    char wrong[32];
    sprintf(wrong, "nonsense-%d", number);
    EXPECT(hugewise_reserve(MIB, wrong, &region) == HUGEWISE_FAILED);
    pthread_barrier_wait(&all_there);
    EXPECT_ERROR(EINVAL, wrong);
}

static void *work(void *context)
{
    int number = *(int *)context, round;
    hugewise_page_bytes pages[8];
    hugewise_pretouch_options touch = {.struct_size = sizeof touch, .way = HUGEWISE_WAY_TOUCH};
    size_t count, i;
    EXPECT(strcmp(hugewise_last_error(), "") == 0);
    errors_are_the_threads_own(number);
    for (round = 0; round < ROUNDS; round++) {
        hugewise_region *own = NULL;
        unsigned char *memory;
        EXPECT(hugewise_reserve(MIB, "base", &own) == HUGEWISE_OK);
        memory = hugewise_region_address(own);
        memset(memory, number, MIB);
        EXPECT(hugewise_region_coverage(own, pages, 8, &count) == HUGEWISE_OK);
        for (i = 0; i < MIB; i++)
            EXPECT(memory[i] == number);
        EXPECT(hugewise_region_release(own) == HUGEWISE_OK);
        /* All threads populate the same memory while each writes to its part. */
        memory = (unsigned char *)hugewise_region_address(shared) + number * MIB;
        memset(memory, round, MIB);
        EXPECT(hugewise_region_pretouch(shared, 0, THREADS * MIB, round % 2 ? &touch : NULL, NULL) == HUGEWISE_OK);
        for (i = 0; i < MIB; i++)
            EXPECT(memory[i] == round);
        EXPECT(hugewise_region_coverage(shared, pages, 8, &count) == HUGEWISE_OK);
    }
    pthread_barrier_wait(&all_there);
    /* The first release succeeds, the others fail. */
    if (hugewise_region_release(shared) == HUGEWISE_OK)
        return &shared;
    EXPECT_ERROR(EINVAL, "it was released");
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    int numbers[THREADS], i, released = 0;
    EXPECT(pthread_barrier_init(&all_there, NULL, THREADS) == 0);
    EXPECT(hugewise_reserve(THREADS * MIB, "thp,base", &shared) == HUGEWISE_OK);
    for (i = 0; i < THREADS; i++) {
        numbers[i] = i;
        EXPECT(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
    }
    for (i = 0; i < THREADS; i++) {
        void *result = NULL;
        EXPECT(pthread_join(threads[i], &result) == 0);
        released += result != NULL;
    }
    EXPECT(released == 1);
    return 0;
}
