#include "tests/base/capture.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void capture_begin(struct capture *capture)
{
    capture->kept = dup(STDERR_FILENO);
    capture->file = memfd_create("capture", MFD_CLOEXEC);
    /* Appended: of threads that write at the same place of such a file one would lose its line. */
    if (capture->kept < 0 || capture->file < 0 || fcntl(capture->file, F_SETFL, O_APPEND) < 0 ||
        dup2(capture->file, STDERR_FILENO) < 0) {
        abort();
    }
}

void capture_end(struct capture *capture, char *text, size_t text_bytes)
{
    ssize_t got = pread(capture->file, text, text_bytes - 1, 0);

    text[got > 0 ? got : 0] = '\0';
    (void)dup2(capture->kept, STDERR_FILENO);
    (void)close(capture->kept);
    (void)close(capture->file);
}
