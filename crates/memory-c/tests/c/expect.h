/* Checks of the test programs; a failure prints the line and the last error of the thread. */
#ifndef EXPECT_H
#define EXPECT_H

#include <hugewise.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

#define EXPECT(what)                                                                                       \
    do {                                                                                                   \
        if (!(what)) {                                                                                     \
            fprintf(stderr, "%s:%d: failed: %s; last error: %s\n", __FILE__, __LINE__, #what,              \
                    hugewise_last_error());                                                                \
            exit(1);                                                                                       \
        }                                                                                                  \
    } while (0)

/* Checks the last error: its code, and that its message contains the text. */
#define EXPECT_ERROR(code, text)                                                                           \
    do {                                                                                                   \
        EXPECT(hugewise_last_error_code() == (code));                                                      \
        EXPECT(strstr(hugewise_last_error(), (text)) != NULL);                                             \
    } while (0)

#endif
