/*
 * perfetto_reader -- a binary trace of Perfetto, read back by what its published schema says.
 *
 * It shares nothing with the writer: field numbers are those of protos/perfetto/trace, written as plain
 * numbers. Whatever is malformed fails the test.
 */
#ifndef TESTS_SCHEDULER_PERFETTO_READER_H
#define TESTS_SCHEDULER_PERFETTO_READER_H

#include <stddef.h>
#include <stdint.h>

struct perfetto_slice {
    char track[64];
    char name[64];
    char category[64];
    char process[64];
    uint64_t begin;
    uint64_t end;
    int64_t step; /* arguments; -1 where there is none */
    int64_t microbatch;
    int64_t peer;
    int64_t bytes; /* 0 where there is none */
    uint64_t flow; /* 0 where there is none */
    int flow_ends; /* whether it ends here */
};

struct perfetto_value {
    char track[64];
    uint64_t ns;
    int64_t value;
};

struct perfetto_trace {
    struct perfetto_slice *slices; /* owns; in the order of their begins in the file */
    size_t slice_count;
    struct perfetto_value *values; /* owns */
    size_t value_count;
    uint64_t clock; /* that packets count by */
};

void perfetto_read(const unsigned char *bytes, size_t count, struct perfetto_trace *trace_out);
void perfetto_release(struct perfetto_trace *trace);

#endif /* TESTS_SCHEDULER_PERFETTO_READER_H */
