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
    SIZE(hugewise_reserve_options);
    FIELD(hugewise_reserve_options, struct_size);
    FIELD(hugewise_reserve_options, name);
    FIELD(hugewise_reserve_options, bind);
    FIELD(hugewise_reserve_options, node);
    SIZE(hugewise_pretouch_options);
    FIELD(hugewise_pretouch_options, struct_size);
    FIELD(hugewise_pretouch_options, chunk);
    FIELD(hugewise_pretouch_options, threads);
    FIELD(hugewise_pretouch_options, way);
    FIELD(hugewise_pretouch_options, progress);
    FIELD(hugewise_pretouch_options, context);
    SIZE(hugewise_pretouched);
    FIELD(hugewise_pretouched, struct_size);
    FIELD(hugewise_pretouched, wanted);
    FIELD(hugewise_pretouched, done);
    FIELD(hugewise_pretouched, chunk);
    FIELD(hugewise_pretouched, page_size);
    FIELD(hugewise_pretouched, elapsed_ns);
    FIELD(hugewise_pretouched, minor_faults);
    FIELD(hugewise_pretouched, major_faults);
    FIELD(hugewise_pretouched, thp_fallbacks);
    FIELD(hugewise_pretouched, threads);
    FIELD(hugewise_pretouched, way);
    return 0;
}
