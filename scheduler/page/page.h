/*
 * page -- the page that shows a run, as bytes of the program; the build makes them of the files here.
 *
 * {{title}}, {{summary}} and {{data}} mark what is filled in, and come nowhere else.
 */
#ifndef SCHEDULER_PAGE_PAGE_H
#define SCHEDULER_PAGE_PAGE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const char *const page_text;  /* ends with a zero */
extern const size_t page_text_bytes; /* without it */

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_PAGE_PAGE_H */
