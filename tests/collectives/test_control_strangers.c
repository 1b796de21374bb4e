/*
 * Strangers at the ROUTER's door: whatever they send, the ranks' rounds go on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "collectives/control.h"
#include "collectives/control_message.h"
#include "collectives/message.h"
#include "control_rig.h"

/* The stranger is a process of its own: it is told when rounds go on, and has done when it ends. */
struct visit {
    pid_t process;
    int go; /* a byte written here lets it begin */
    long peak_before_kb;
    long peak_after_kb;
    int how; /* it ended */
};

static struct visit visit;

/* The most memory that this process ever had, in kB; 0 where it is not told. */
static long peak_kb(void)
{
    char line[256];
    long peak = 0;
    FILE *file = fopen("/proc/self/status", "r");

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "VmHWM:", 6) == 0) {
            peak = strtol(line + 6, NULL, 10);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return peak;
}

/* Lets the stranger begin after some rounds; says 1 when it has ended. */
static double guide_stranger(uint64_t number)
{
    if (number == 20) {
        visit.peak_before_kb = peak_kb();
        return write(visit.go, "g", 1) == 1 ? 0.0 : 1.0;
    }
    if (number > 20 && waitpid(visit.process, &visit.how, WNOHANG) == visit.process) {
        visit.peak_after_kb = peak_kb();
        return 1.0;
    }
    return 0.0;
}

static enum status run_rounds_beside_a_stranger(struct rig_rank *self)
{
    static const struct control_key keys[] = {{.name = "done", .op = CONTROL_ONCE}};
    double done = 0.0;

    for (uint64_t number = 1; done == 0.0; number++) {
        const struct control_value value = {
            .key = 0, .number = self->rank == 0 ? guide_stranger(number) : 0.0};
        const struct control_round round = {.name = "STEP",
                                            .number = number,
                                            .keys = keys,
                                            .key_count = 1,
                                            .values = &value,
                                            .value_count = self->rank == 0 ? 1 : 0,
                                            .note = ""};
        struct control_answer answer = {.numbers = &done};

        TRY(control_reduce(self->control, &round, &answer, rig_deadline()));
        TRY(rig_expect(answer.stop_signal == 0, "nobody stops the job"));
    }
    return STATUS_OK;
}

struct stranger {
    void *context;
    void *socket;
};

static void stranger_open(struct stranger *stranger, const char *directory, int kind,
                          const char *name)
{
    char endpoint[128];
    int linger = 2000;

    (void)snprintf(endpoint, sizeof(endpoint), "ipc://%s/control", directory);
    stranger->context = zmq_ctx_new();
    stranger->socket = zmq_socket(stranger->context, kind);
    (void)zmq_setsockopt(stranger->socket, ZMQ_LINGER, &linger, sizeof(linger));
    if (name != NULL) {
        (void)zmq_setsockopt(stranger->socket, ZMQ_ROUTING_ID, name, strlen(name));
    }
    (void)zmq_connect(stranger->socket, endpoint);
}

static void stranger_close(struct stranger *stranger)
{
    (void)zmq_close(stranger->socket);
    (void)zmq_ctx_term(stranger->context);
}

static void send_bytes(struct stranger *stranger, const char *bytes, size_t size)
{
    (void)zmq_send(stranger->socket, bytes, size, 0);
}

#define SEND(stranger, bytes) send_bytes((stranger), (bytes), sizeof(bytes) - 1)

static void send_counts_that_lie(const char *directory)
{
    struct stranger stranger;

    stranger_open(&stranger, directory, ZMQ_DEALER, NULL);
    SEND(&stranger, "\xdd\xff\x00\x00\x00");
    SEND(&stranger, "\xdf\xff\xff\xff\xff");
    SEND(&stranger, "\xc6\xff\xff\xff\xf0"
                    "0123456789");
    SEND(&stranger, "\xdb\x7f\xff\xff\xff");
    for (int i = 0; i < 10000; i++) {
        SEND(&stranger, "");
    }
    stranger_close(&stranger);
}

static void send_a_giant(const char *directory)
{
    struct stranger stranger;
    size_t size = (size_t)100 << 20;
    char *giant = calloc(1, size);
    int linger = 200;

    stranger_open(&stranger, directory, ZMQ_DEALER, NULL);
    /* It will never be taken, so do not wait for that. */
    (void)zmq_setsockopt(stranger.socket, ZMQ_LINGER, &linger, sizeof(linger));
    if (giant != NULL) {
        send_bytes(&stranger, giant, size);
    }
    stranger_close(&stranger);
    free(giant);
}

static void send_parts(const char *directory)
{
    struct stranger stranger;

    stranger_open(&stranger, directory, ZMQ_DEALER, NULL);
    for (int i = 0; i < 20; i++) {
        (void)zmq_send(stranger.socket, "part", 4, ZMQ_SNDMORE);
    }
    (void)zmq_send(stranger.socket, "last", 4, 0);
    stranger_close(&stranger);
    stranger_open(&stranger, directory, ZMQ_REQ, NULL);
    (void)zmq_send(stranger.socket, "a question", 10, 0);
    stranger_close(&stranger);
}

/* The job's number is no secret: whoever says HELLO is told it with the refusal. 0: not learned. */
static uint64_t learn_job(const char *directory)
{
    struct control_hello hello = {.world = 3, .config_hash = 0x1234, .variant = "plain"};
    struct control_head head = {.job = 0};
    struct message_pack *pack = NULL;
    struct message_view *view = NULL;
    struct stranger stranger;
    char answer[2048];
    const void *bytes = NULL;
    size_t size = 0;
    int patience_ms = 10000;

    if (message_pack_create(&pack) != STATUS_OK || message_view_create(&view) != STATUS_OK) {
        return 0;
    }
    stranger_open(&stranger, directory, ZMQ_DEALER, NULL);
    (void)zmq_setsockopt(stranger.socket, ZMQ_RCVTIMEO, &patience_ms, sizeof(patience_ms));
    control_place_here(&hello.place);
    control_head_put(pack, CONTROL_KIND_HELLO, 0, 1);
    control_hello_put(pack, &hello);
    if (message_pack_end(pack, &bytes, &size) == STATUS_OK) {
        (void)zmq_send(stranger.socket, bytes, size, 0);
        int received = zmq_recv(stranger.socket, answer, sizeof(answer), 0);

        if (received > 0 && received <= (int)sizeof(answer) &&
            message_view_open(view, answer, (size_t)received, "rank 0") == STATUS_OK) {
            (void)control_head_get(view, &head);
        }
    }
    stranger_close(&stranger);
    message_pack_destroy(&pack);
    message_view_destroy(&view);
    return head.job;
}

/* Well-formed words of a rank, from somebody who is none; `name` may be that of a rank's socket. */
static void send_false_words(const char *directory, const char *name, uint64_t job)
{
    static const enum control_kind kinds[] = {
        CONTROL_KIND_HEARTBEAT, CONTROL_KIND_ROUND,   CONTROL_KIND_STOP, CONTROL_KIND_ABORT,
        CONTROL_KIND_BYE,       CONTROL_KIND_WELCOME, CONTROL_KIND_HELLO};
    const struct control_cause cause = {.status = STATUS_ERR_PEER, .rank = 1, .text = "a lie"};
    struct message_pack *pack = NULL;
    struct stranger stranger;

    if (message_pack_create(&pack) != STATUS_OK) {
        return;
    }
    stranger_open(&stranger, directory, ZMQ_DEALER, name);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        const void *bytes = NULL;
        size_t size = 0;

        control_head_put(pack, kinds[i], job, 1);
        control_cause_put(pack, &cause);
        message_put_int(pack, "signal", 15);
        if (message_pack_end(pack, &bytes, &size) == STATUS_OK) {
            (void)zmq_send(stranger.socket, bytes, size, 0);
        }
    }
    stranger_close(&stranger);
    message_pack_destroy(&pack);
}

/* A rank of another job that comes too late: refused alone. */
static enum status join_late(const char *directory, char *text, size_t text_bytes)
{
    struct cancel cancel = {0};
    struct control *control = NULL;
    const struct control_config config = {.job_directory = directory,
                                          .rank = 1,
                                          .world = 3,
                                          .config_hash = 0x1234,
                                          .variant = "plain",
                                          .device = "cpu",
                                          .heartbeat_s = 0.05,
                                          .dead_after_s = 10.0,
                                          .stall_after_s = -1.0,
                                          .start_timeout_s = 20.0,
                                          .cancel = &cancel};
    enum status status = control_open(&config, &control);

    (void)snprintf(text, text_bytes, "%s", status_last()->message);
    return status;
}

/* What the stranger does; its exit status is 0 where all went as it should. */
static int be_a_stranger(const char *directory, int go, pid_t job)
{
    char byte = 0;
    char name[32];
    char text[STATUS_MESSAGE_BYTES];

    if (read(go, &byte, 1) != 1) {
        return 1;
    }
    (void)snprintf(name, sizeof(name), "r1.%ld", (long)job);
    send_counts_that_lie(directory);
    send_a_giant(directory);
    send_parts(directory);
    uint64_t job_number = learn_job(directory);

    if (job_number == 0) {
        return 4;
    }
    send_false_words(directory, NULL, 99);
    send_false_words(directory, NULL, job_number);
    send_false_words(directory, name, job_number);
    if (join_late(directory, text, sizeof(text)) != STATUS_ERR_REFUSED) {
        return 2;
    }
    return strstr(text, "is rank 1 already") != NULL ? 0 : 3;
}

static void test_rounds_go_on_whatever_strangers_send(void **state)
{
    struct control_rig rig;
    int go[2];

    (void)state;
    rig_init(&rig, 3);
    assert_int_equal(pipe(go), 0);
    visit.process = fork();
    assert_true(visit.process >= 0);
    if (visit.process == 0) {
        _exit(be_a_stranger(rig.directory, go[0], getppid()));
    }
    visit.go = go[1];
    rig_run(&rig, run_rounds_beside_a_stranger);
    for (int32_t rank = 0; rank < 3; rank++) {
        assert_int_equal(rig.ranks[rank].opened, STATUS_OK);
        assert_string_equal(rig.ranks[rank].ended_text, "");
        assert_string_equal(rig.ranks[rank].cause, "");
        assert_int_equal(rig.ranks[rank].ended, STATUS_OK);
        assert_int_equal(rig.ranks[rank].closed, STATUS_OK);
    }
    assert_int_equal(visit.how, 0);
#if !defined(__SANITIZE_ADDRESS__)
    assert_in_range(visit.peak_after_kb - visit.peak_before_kb, 0, 16 * 1024);
#endif
    (void)close(go[0]);
    (void)close(go[1]);
    rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds_go_on_whatever_strangers_send),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
