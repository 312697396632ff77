/* Prints the layout of every struct, as C sees it. */
#include <hugewise.h>

#include <stdio.h>

#define FIELD(type, field)                                                                                 \
    printf(#type "." #field " %lu %lu\n", (unsigned long)offsetof(type, field),                            \
           (unsigned long)sizeof(((type *)0)->field))

#define SIZE(type) printf(#type " %lu\n", (unsigned long)sizeof(type))

int main(void)
{
    SIZE(hugewise_page_bytes);
    FIELD(hugewise_page_bytes, page_size);
    FIELD(hugewise_page_bytes, bytes);
    return 0;
}
