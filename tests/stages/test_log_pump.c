/* log_pump and sink: lines on their way from a child to the console and to its log. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stages/agent/log_pump.h"
#include "stages/agent/log_tail.h"
#include "stages/agent/sink.h"

#define TEXT_BYTES (4 * LOG_PUMP_LINE_BYTES)

/* A child's stream that the test writes, with a file for its log and one for the console. */
struct stream {
    int child; /* where the child would write */
    int log;
    int console;
    struct sink sink;
    struct log_tail tail;
    struct log_pump pump;
    char text[TEXT_BYTES];
};

static int open_nameless_file(void)
{
    FILE *file = tmpfile();
    int fd = -1;

    assert_non_null(file);
    fd = dup(fileno(file));
    assert_true(fd >= 0);
    (void)fclose(file);
    return fd;
}

static struct stream *open_stream(const char *prefix)
{
    struct stream *stream = calloc(1, sizeof(*stream));
    int ends[2];

    assert_non_null(stream);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    /* So that a test may write a long line before the pump reads. */
    assert_true(fcntl(ends[1], F_SETPIPE_SZ, (int)TEXT_BYTES) >= (int)TEXT_BYTES);
    stream->child = ends[1];
    stream->log = open_nameless_file();
    stream->console = open_nameless_file();
    stream->sink.fd = stream->console;
    log_pump_open(&(struct log_pump_config){.in = ends[0],
                                            .file = stream->log,
                                            .sink = &stream->sink,
                                            .prefix = prefix,
                                            .tail = &stream->tail},
                  &stream->pump);
    return stream;
}

static void close_stream(struct stream *stream)
{
    log_pump_close(&stream->pump);
    (void)close(stream->child);
    (void)close(stream->log);
    (void)close(stream->console);
    free(stream);
}

static void say(const struct stream *stream, const char *text)
{
    assert_int_equal(write(stream->child, text, strlen(text)), strlen(text));
}

/* All that a file holds, as text; lends until the next call. */
static const char *content(struct stream *stream, int file)
{
    ssize_t got = pread(file, stream->text, TEXT_BYTES - 1, 0);

    assert_true(got >= 0);
    stream->text[got] = '\0';
    return stream->text;
}

static void a_line_that_comes_in_parts_goes_out_whole(void **state)
{
    struct stream *stream = open_stream("[rank 3] ");

    (void)state;
    say(stream, "first\nsec");
    log_pump_read(&stream->pump);
    assert_string_equal(content(stream, stream->console), "[rank 3] first\n");
    say(stream, "ond\n\n");
    log_pump_read(&stream->pump);
    assert_string_equal(content(stream, stream->console),
                        "[rank 3] first\n[rank 3] second\n[rank 3] \n");
    assert_string_equal(content(stream, stream->log), "first\nsecond\n\n");
    close_stream(stream);
}

static void a_line_that_names_its_rank_is_not_named_again(void **state)
{
    struct stream *stream = open_stream("[rank 3] ");

    (void)state;
    say(stream, "[rank 3] step 1\n[rank 4] step 1\n");
    log_pump_read(&stream->pump);
    assert_string_equal(content(stream, stream->console),
                        "[rank 3] step 1\n[rank 3] [rank 4] step 1\n");
    assert_string_equal(content(stream, stream->log), "[rank 3] step 1\n[rank 4] step 1\n");
    assert_string_equal(log_tail_line(&stream->tail, 0), "step 1");
    close_stream(stream);
}

static void a_line_without_end_goes_out_in_pieces(void **state)
{
    struct stream *stream = open_stream("> ");
    char *line = malloc(2 * LOG_PUMP_LINE_BYTES + 11);
    const char *text = NULL;

    (void)state;
    assert_non_null(line);
    memset(line, 'x', 2 * LOG_PUMP_LINE_BYTES + 10);
    line[2 * LOG_PUMP_LINE_BYTES + 10] = '\0';
    say(stream, line);
    log_pump_finish(&stream->pump);
    text = content(stream, stream->log);
    assert_int_equal(strlen(text), 2 * LOG_PUMP_LINE_BYTES + 10 + 3);
    assert_int_equal(strcspn(text, "\n"), LOG_PUMP_LINE_BYTES);
    text = content(stream, stream->console);
    assert_int_equal(strlen(text), 2 * LOG_PUMP_LINE_BYTES + 10 + 3 * strlen("> \n"));
    assert_int_equal(strcspn(text, "\n"), 2 + LOG_PUMP_LINE_BYTES);
    free(line);
    close_stream(stream);
}

static void the_end_of_the_stream_ends_the_last_line(void **state)
{
    struct stream *stream = open_stream("> ");

    (void)state;
    say(stream, "no newline");
    log_pump_read(&stream->pump);
    assert_string_equal(content(stream, stream->console), "");
    (void)close(stream->child);
    stream->child = -1;
    log_pump_read(&stream->pump);
    assert_string_equal(content(stream, stream->console), "> no newline\n");
    assert_int_equal(stream->pump.in, -1);
    close_stream(stream);
}

static void the_end_of_the_child_is_enough_though_others_hold_its_stream(void **state)
{
    struct stream *stream = open_stream("");

    (void)state;
    say(stream, "whole\npart");
    log_pump_finish(&stream->pump);
    assert_string_equal(content(stream, stream->console), "whole\npart\n");
    assert_int_equal(stream->pump.in, -1);
    close_stream(stream);
}

static void the_first_error_is_noticed_with_and_without_a_name(void **state)
{
    static const char *const lines[] = {"error: x\n", "[rank 0] error: x\n"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct stream *stream = open_stream("[rank 0] ");
        int64_t first = 0;

        say(stream, "warning: no error: yet\n");
        log_pump_read(&stream->pump);
        assert_true(stream->pump.first_error_ns == INT64_MAX);
        say(stream, lines[i]);
        log_pump_read(&stream->pump);
        first = stream->pump.first_error_ns;
        assert_true(first < INT64_MAX);
        say(stream, lines[i]);
        log_pump_read(&stream->pump);
        assert_true(stream->pump.first_error_ns == first);
        close_stream(stream);
    }
}

static void a_log_that_cannot_be_written_leaves_the_console(void **state)
{
    struct stream *stream = open_stream("> ");
    int full = open("/dev/full", O_WRONLY);

    (void)state;
    assert_true(full >= 0);
    stream->pump.file = full;
    say(stream, "one\ntwo\n");
    log_pump_read(&stream->pump);
    assert_string_equal(content(stream, stream->console), "> one\n> two\n");
    assert_int_equal(stream->pump.file, -1);
    (void)close(full);
    close_stream(stream);
}

/* A console that holds one page until somebody reads. */
static void open_small_console(struct sink *sink, int *reader)
{
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    assert_int_equal(fcntl(ends[1], F_SETPIPE_SZ, 4096), 4096);
    *sink = (struct sink){.fd = ends[1]};
    *reader = ends[0];
}

static void read_text(int reader, char *text, size_t text_bytes)
{
    ssize_t got = read(reader, text, text_bytes - 1);

    assert_true(got >= 0);
    text[got] = '\0';
}

static void lines_that_find_no_room_are_counted_and_said(void **state)
{
    struct sink sink;
    int reader = -1;
    char text[8192];

    (void)state;
    open_small_console(&sink, &reader);
    sink_write(&sink, "> ", "first", 5);
    for (int i = 0; i < 3; i++) {
        sink_write(&sink, "> ", "left out", 8);
    }
    assert_int_equal(sink.left_out, 3);
    read_text(reader, text, sizeof(text));
    assert_string_equal(text, "> first\n");
    sink_write(&sink, "> ", "last", 4);
    assert_int_equal(sink.left_out, 1);
    read_text(reader, text, sizeof(text));
    assert_string_equal(text, "(3 lines left out here; the logs have them)\n");
    (void)close(reader);
    (void)close(sink.fd);
}

static void a_line_that_was_cut_off_is_ended_before_the_next(void **state)
{
    static const char *const expected[] = {"\n", "(2 lines left out here; the logs have them)\n"};
    struct sink sink;
    int reader = -1;
    char line[6000];
    char text[8192];

    (void)state;
    memset(line, 'x', sizeof(line));
    open_small_console(&sink, &reader);
    sink_write(&sink, "", line, sizeof(line));
    assert_int_equal(sink.left_out, 1);
    read_text(reader, text, sizeof(text));
    assert_int_equal(strspn(text, "x"), 4096);
    /* The end of the line takes the one page, so that the next line is left out as well. */
    for (size_t i = 0; i < 2; i++) {
        sink_write(&sink, "> ", "next", 4);
        read_text(reader, text, sizeof(text));
        assert_string_equal(text, expected[i]);
    }
    (void)close(reader);
    (void)close(sink.fd);
}

static void without_a_reader_lines_are_dropped(void **state)
{
    struct sink sink;
    int reader = -1;

    (void)state;
    open_small_console(&sink, &reader);
    (void)close(reader);
    sink_write(&sink, "> ", "nobody reads", 12);
    assert_int_equal(sink.left_out, 0);
    (void)close(sink.fd);
}

static void on_a_shared_line_every_line_wipes_it_first(void **state)
{
    struct sink sink;
    int reader = -1;
    char text[256];

    (void)state;
    open_small_console(&sink, &reader);
    sink.shares_line = true;
    sink_write(&sink, "> ", "talk", 4);
    read_text(reader, text, sizeof(text));
    assert_string_equal(text, "\r\033[K> talk\n");
    (void)close(reader);
    (void)close(sink.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_that_comes_in_parts_goes_out_whole),
        cmocka_unit_test(a_line_that_names_its_rank_is_not_named_again),
        cmocka_unit_test(a_line_without_end_goes_out_in_pieces),
        cmocka_unit_test(the_end_of_the_stream_ends_the_last_line),
        cmocka_unit_test(the_end_of_the_child_is_enough_though_others_hold_its_stream),
        cmocka_unit_test(the_first_error_is_noticed_with_and_without_a_name),
        cmocka_unit_test(a_log_that_cannot_be_written_leaves_the_console),
        cmocka_unit_test(lines_that_find_no_room_are_counted_and_said),
        cmocka_unit_test(a_line_that_was_cut_off_is_ended_before_the_next),
        cmocka_unit_test(without_a_reader_lines_are_dropped),
        cmocka_unit_test(on_a_shared_line_every_line_wipes_it_first),
    };

    /* As the crew does. */
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
