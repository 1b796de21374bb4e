#include "stages/config_schema.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "stages/config.h"
#include "stages/model/slices.h"

/* A layer count, a head count and the like: above any model, and products of three still fit. */
#define MANY  ((int64_t)1 << 20)
#define STEPS CONFIG_STEPS_MOST
#define WIDE  1e300
/* Loss scales: round numbers that the scaler takes (GRAD_SCALER_SMALLEST and _LARGEST). */
#define SCALE_LEAST 1e-18
#define SCALE_MOST  1e18
#define NO_CHOICE \
    {             \
        NULL, 0   \
    }

static const struct config_choice schedules[] = {{"gpipe", SCHEDULE_GPIPE},
                                                 {"1f1b", SCHEDULE_1F1B},
                                                 {"interleaved_1f1b", SCHEDULE_INTERLEAVED_1F1B},
                                                 {"bfs", SCHEDULE_BFS},
                                                 {"zb_h1", SCHEDULE_ZB_H1},
                                                 {"zb_h2", SCHEDULE_ZB_H2},
                                                 {"izb", SCHEDULE_IZB},
                                                 {"zb_v", SCHEDULE_ZB_V},
                                                 {"v_half", SCHEDULE_V_HALF},
                                                 {"v_min", SCHEDULE_V_MIN},
                                                 {"seq1f1b", SCHEDULE_SEQ1F1B},
                                                 {"auto", SCHEDULE_AUTO},
                                                 NO_CHOICE};
static const struct config_choice autos[] = {
    {"auto", CONFIG_AUTO}, {"true", CONFIG_TRUE}, {"false", CONFIG_FALSE}, NO_CHOICE};
static const struct config_choice embedding_syncs[] = {{"auto", EMBEDDING_SYNC_AUTO},
                                                       {"zmq", EMBEDDING_SYNC_ZMQ},
                                                       {"data_plane", EMBEDDING_SYNC_DATA_PLANE},
                                                       NO_CHOICE};
static const struct config_choice devices[] = {{"auto", CONFIG_DEVICE_AUTO},
                                               {"cpu", CONFIG_DEVICE_CPU},
                                               {"cuda", CONFIG_DEVICE_CUDA},
                                               NO_CHOICE};
static const struct config_choice recomputes[] = {{"none", RECOMPUTE_NONE},
                                                  {"selective", RECOMPUTE_SELECTIVE},
                                                  {"full", RECOMPUTE_FULL},
                                                  NO_CHOICE};
static const struct config_choice optimizers[] = {
    {"adam", OPTIMIZER_ADAM}, {"sgd", OPTIMIZER_SGD}, NO_CHOICE};
static const struct config_choice wd_schedules[] = {
    {"constant", WD_CONSTANT}, {"linear", WD_LINEAR}, {"cosine", WD_COSINE}, NO_CHOICE};
static const struct config_choice lr_schedules[] = {{"constant", LR_CONSTANT},
                                                    {"linear", LR_LINEAR},
                                                    {"cosine", LR_COSINE},
                                                    {"wsd", LR_WSD},
                                                    {"inverse_sqrt", LR_INVERSE_SQRT},
                                                    NO_CHOICE};
static const struct config_choice dtypes[] = {
    {"fp32", DTYPE_FP32}, {"bf16", DTYPE_BF16}, {"fp16", DTYPE_FP16}, NO_CHOICE};
static const struct config_choice formats[] = {{"auto", FORMAT_AUTO},
                                               {"text", FORMAT_TEXT},
                                               {"samples", FORMAT_SAMPLES},
                                               {"megatron", CONFIG_LATER},
                                               {"llmc", CONFIG_LATER},
                                               {"uint16", CONFIG_LATER},
                                               NO_CHOICE};
static const struct config_choice tokenizers[] = {{"byte", 0}, {"gpt2", CONFIG_LATER}, NO_CHOICE};
static const struct config_choice resumes[] = {
    {"auto", RESUME_AUTO}, {"never", RESUME_NEVER}, {"must", RESUME_MUST}, NO_CHOICE};
static const struct config_choice binds[] = {{"local", 0}, {"all", CONFIG_LATER}, NO_CHOICE};

/* One line a key: what all kinds share, then what this kind needs. */
#define KEY(s, n, kind, text, about, ...)                                                  \
    {                                                                                      \
        .section = #s, .name = #n, .type = (kind), .offset = offsetof(struct config, s.n), \
        .fallback = (text), .help = (about), __VA_ARGS__                                   \
    }
/* A key of which the build knows nothing but its default. */
#define LATER(s, n, kind, text, about, ...)                                                       \
    {                                                                                             \
        .section = #s, .name = #n, .type = (kind), .offset = CONFIG_NO_FIELD, .fallback = (text), \
        .help = (about), .later = true, __VA_ARGS__                                               \
    }
#define BETWEEN(a, b)  .least = (a), .most = (b)
#define REALS(a, b)    .low = (a), .high = (b)
#define WORD(text, at) .word = (text), .word_value = (at)
#define ONE_OF(list)   .choices = (list)
#define OR_FILE(value, at) \
    .prefix = "file:", .prefix_value = (value), .rest = "PATH", .rest_offset = (at)
#define PLAIN    .word = NULL
#define REQUIRED .required = true
#define ASKED    .change = CHANGE_ASKED
#define FIXED    .change = CHANGE_REFUSED
#define LAYOUT   .change = CHANGE_LAYOUT

static const struct config_key keys[] = {
    KEY(model, num_layers, CONFIG_INT, NULL, "transformer layers in the whole model",
        BETWEEN(1, MANY), FIXED, REQUIRED),
    KEY(model, hidden_size, CONFIG_INT, NULL,
        "width C of the residual stream; a multiple of num_heads", BETWEEN(1, MANY), FIXED,
        REQUIRED),
    KEY(model, num_heads, CONFIG_INT, NULL, "attention heads a layer; divides hidden_size",
        BETWEEN(1, MANY), FIXED, REQUIRED),
    KEY(model, ffn_hidden_size, CONFIG_INT, "4h", "inner width of the MLP; 4h is 4 x hidden_size",
        BETWEEN(1, 4 * MANY), WORD("4h", CONFIG_DERIVE), FIXED),
    KEY(model, seq_len, CONFIG_INT, NULL, "tokens T in a sequence; at most max_positions",
        BETWEEN(1, MANY), FIXED, REQUIRED),
    KEY(model, max_positions, CONFIG_INT, "seq_len", "rows of the position table", BETWEEN(1, MANY),
        WORD("seq_len", CONFIG_DERIVE), FIXED),
    KEY(model, vocab_size, CONFIG_INT, NULL,
        "rows of the word embedding; 256 where text is read by the byte tokenizer",
        BETWEEN(1, 16 * MANY), FIXED),
    KEY(model, num_tokentypes, CONFIG_INT, "0",
        "rows of the table of token types; samples files then have a tensor tokentypes",
        BETWEEN(0, MANY), FIXED),
    KEY(model, tied_embeddings, CONFIG_BOOL, "true", "the head uses the word embedding's weights",
        PLAIN, FIXED),
    KEY(model, dropout, CONFIG_REAL, "0.0", "share of activations dropped in training",
        REALS(0.0, 1.0), .below_high = true, ASKED),
    KEY(model, init_std, CONFIG_REAL, "0.02",
        "standard deviation of the starting weights; residual projections have it over sqrt(2 L)",
        REALS(0.0, 1e3)),
    KEY(model, layer_norm_eps, CONFIG_REAL, "1.0e-5", "added to the variance in layer norms",
        REALS(0.0, 1.0), .above_low = true, FIXED),

    KEY(parallel, pp, CONFIG_INT, "1", "pipeline ranks: stage processes in a row",
        BETWEEN(1, CONFIG_STAGES_MOST), LAYOUT),
    KEY(parallel, tp, CONFIG_INT, "1",
        "tensor-parallel shards of a layer; divides num_heads and ffn_hidden_size",
        BETWEEN(1, CONFIG_GROUP_MOST), LAYOUT),
    KEY(parallel, dp, CONFIG_INT, "1",
        "replicas of the pipeline; pp x tp x dp is the number of ranks",
        BETWEEN(1, CONFIG_GROUP_MOST), LAYOUT),
    KEY(parallel, virtual_stages, CONFIG_INT, "1",
        "chunks of layers on each pipeline rank: any number with interleaved_1f1b, bfs, izb and "
        "file:PATH, 2 with zb_v, v_half and v_min, else 1",
        BETWEEN(1, CONFIG_STAGES_MOST), LAYOUT),
    KEY(parallel, schedule, CONFIG_CHOICE, "1f1b",
        "order of forwards and backwards, or a file with a line of actions for each pipeline rank: "
        "gpipe all F, then all B; 1f1b in turn, fewest activations; interleaved_1f1b the same over "
        "several chunks, less bubble and more messages; bfs chunk after chunk; zb_h1 and izb put "
        "weight gradients off into the bubble; zb_h2 too, with twice the activations; zb_v on a V "
        "of two chunks, which v_half and v_min run with a half and a third of the activations; "
        "auto "
        "is the shortest that a search finds inside train.memory_limit, for costs by FLOPs; `weir "
        "plan` draws it",
        ONE_OF(schedules), OR_FILE(SCHEDULE_FILE, offsetof(struct config, parallel.schedule_file))),
    KEY(parallel, early_send, CONFIG_CHOICE, "auto",
        "send the input's gradient before the weights' gradient is computed; auto is true",
        ONE_OF(autos)),
    KEY(parallel, extra_in_flight, CONFIG_INT, "0",
        "1f1b: micro-batches that a stage begins beyond what the schedule asks for, against slow "
        "messages; pp - 1 are as many as help, each takes memory",
        BETWEEN(0, MANY)),
    KEY(parallel, sequence_slices, CONFIG_INT, "1",
        "slices of a sequence that the pipeline takes in turn, with seq1f1b",
        BETWEEN(1, SLICES_MOST)),
    KEY(parallel, lane_depth, CONFIG_INT, "auto",
        "landing buffers beyond what the plan holds anyway; auto is 2", BETWEEN(1, 1024),
        WORD("auto", CONFIG_DERIVE)),
    KEY(parallel, layers_per_stage, CONFIG_COUNTS, "auto",
        "layers of each virtual stage in model order; auto makes the FLOPs of ranks even, "
        "embedding "
        "and head counted, the last ones fewer layers",
        BETWEEN(0, MANY), WORD("auto", CONFIG_DERIVE), LAYOUT),
    KEY(parallel, sequence_parallel, CONFIG_BOOL, "false",
        "each tensor-parallel shard has 1/tp of the rows outside the products: layer norms, "
        "dropout, "
        "residual stream, messages; nothing where tp is 1",
        PLAIN),
    KEY(parallel, zero_stage, CONFIG_INT, "0",
        "what replicas share out: 1 main params and optimizer state; 2 gradients of layers too, "
        "where a step has one micro-batch; 3 the weights of layers too, gathered layer by layer",
        BETWEEN(0, 3), LAYOUT),
    KEY(parallel, overlap_grad_reduce, CONFIG_CHOICE, "auto",
        "with zero_stage, sum gradients of layers over the replicas on a thread of its own while "
        "the rest of the backward runs; auto where train.threads leaves each rank of the host a "
        "core",
        ONE_OF(autos)),
    KEY(parallel, embedding_sync, CONFIG_CHOICE, "auto",
        "who carries the tied embedding between last and first stage; auto: zmq up to 64 MiB a "
        "step",
        ONE_OF(embedding_syncs)),
    KEY(parallel, device, CONFIG_CHOICE, "auto",
        "what the stages compute on: cuda is a GPU for each process of a host, in turns; auto: "
        "cuda where "
        "this build has it and the host a GPU of compute capability 8.0 or more",
        ONE_OF(devices)),

    KEY(train, steps, CONFIG_INT, NULL, "steps of the whole run", BETWEEN(0, STEPS), REQUIRED),
    KEY(train, micro_batch_size, CONFIG_INT, NULL,
        "sequences in a micro-batch; give any two of the three batch keys", BETWEEN(1, MANY),
        WORD("auto", CONFIG_DERIVE)),
    KEY(train, num_microbatches, CONFIG_INT, NULL,
        "micro-batches a step and replica; more of them make the bubble smaller", BETWEEN(1, MANY),
        WORD("auto", CONFIG_DERIVE)),
    KEY(train, global_batch_size, CONFIG_INT, NULL,
        "sequences a step: micro_batch_size x num_microbatches x dp", BETWEEN(1, STEPS),
        WORD("auto", CONFIG_DERIVE), ASKED),
    KEY(train, seed, CONFIG_INT, "1234", "of starting weights and data order",
        BETWEEN(0, INT64_MAX), ASKED),
    KEY(train, recompute, CONFIG_CHOICES, "none",
        "activations that the backward computes again instead of keeping them: selective is "
        "attention, layer norms and GELU, full is all but a chunk's input",
        ONE_OF(recomputes)),
    KEY(train, threads, CONFIG_INT, "auto",
        "threads of one stage process; auto shares the machine's cores out at start",
        BETWEEN(1, 1024), WORD("auto", 0)),
    KEY(train, memory_limit, CONFIG_BYTES, "none",
        "bytes that a rank may plan for; a run that does not fit is refused with its table",
        BETWEEN(1, INT64_MAX), WORD("none", 0)),
    KEY(train, deterministic, CONFIG_BOOL, "false",
        "the same bits in every run on one GPU model; CPUs always give them", PLAIN),
    KEY(train, eval_every, CONFIG_INT, "0", "steps between evaluations; 0 is never",
        BETWEEN(0, STEPS)),
    KEY(train, eval_steps, CONFIG_INT, "0",
        "global batches in an evaluation; 0 is the whole set once", BETWEEN(0, STEPS)),
    KEY(train, log_every, CONFIG_INT, "1", "steps between lines on the console", BETWEEN(1, STEPS)),
    KEY(train, log_num_zeros, CONFIG_BOOL, "false", "count the gradient's zeros in each step",
        PLAIN),
    KEY(train, log_params_norm, CONFIG_BOOL, "false", "the norm of all weights in each step",
        PLAIN),
    KEY(train, run_dir, CONFIG_TEXT, NULL,
        "where the run's files go; runs/ and the configuration's name unless given", PLAIN),

    KEY(optimizer, name, CONFIG_CHOICE, "adam",
        "adam is AdamW, with decoupled weight decay; sgd has momentum", ONE_OF(optimizers), FIXED),
    KEY(optimizer, lr, CONFIG_REAL, NULL, "the largest learning rate", REALS(0.0, 1e6), REQUIRED),
    KEY(optimizer, min_lr, CONFIG_REAL, "0", "the learning rate at decay_steps and after",
        REALS(0.0, 1e6)),
    KEY(optimizer, warmup_steps, CONFIG_INT, "0",
        "updates over which the learning rate rises; below decay_steps", BETWEEN(0, STEPS)),
    KEY(optimizer, decay_steps, CONFIG_INT, "steps", "update at which min_lr is reached",
        BETWEEN(1, STEPS), WORD("steps", CONFIG_DERIVE)),
    KEY(optimizer, wsd_decay_steps, CONFIG_INT, "decay_steps/10",
        "wsd: the last updates before decay_steps, over which the rate falls", BETWEEN(1, STEPS),
        WORD("decay_steps/10", CONFIG_DERIVE)),
    KEY(optimizer, lr_schedule, CONFIG_CHOICE, "cosine", "the learning rate after the warm-up",
        ONE_OF(lr_schedules)),
    KEY(optimizer, weight_decay, CONFIG_REAL, "0.1", "on tensors of two and more dimensions",
        REALS(0.0, 1e3), ASKED),
    KEY(optimizer, weight_decay_schedule, CONFIG_CHOICE, "constant",
        "the way from weight_decay to end_weight_decay", ONE_OF(wd_schedules), ASKED),
    KEY(optimizer, end_weight_decay, CONFIG_REAL, "weight_decay",
        "linear, cosine: weight decay at weight_decay_steps and after", REALS(0.0, 1e3),
        WORD("weight_decay", CONFIG_DERIVE), ASKED),
    KEY(optimizer, weight_decay_steps, CONFIG_INT, "decay_steps",
        "update at which end_weight_decay is reached", BETWEEN(1, STEPS),
        WORD("decay_steps", CONFIG_DERIVE), ASKED),
    KEY(optimizer, beta1, CONFIG_REAL, "0.9", "decay of the first moment", REALS(0.0, 1.0),
        .below_high = true, ASKED),
    KEY(optimizer, beta2, CONFIG_REAL, "0.95", "decay of the second moment", REALS(0.0, 1.0),
        .below_high = true, ASKED),
    KEY(optimizer, eps, CONFIG_REAL, "1.0e-8", "added to the root of the second moment",
        REALS(0.0, 1.0), .above_low = true, ASKED),
    KEY(optimizer, momentum, CONFIG_REAL, "0.9", "of sgd", REALS(0.0, 1.0), .below_high = true,
        ASKED),
    KEY(optimizer, grad_clip, CONFIG_REAL, "1.0", "largest gradient norm; 0 is off",
        REALS(0.0, WIDE), ASKED),

    KEY(precision, dtype, CONFIG_CHOICE, "fp32",
        "of weights, activations and messages; layer norms, gradients and the optimizer's state "
        "are fp32 always",
        ONE_OF(dtypes), ASKED),
    KEY(precision, tf32, CONFIG_BOOL, "false",
        "products of fp32 on GPUs from factors of 10 bits behind the point, several times as fast",
        PLAIN, ASKED),
    KEY(precision, loss_scale, CONFIG_REAL, "auto",
        "factor on the loss, which gradients lose again; auto is dynamic for fp16 and 1 otherwise",
        REALS(SCALE_LEAST, SCALE_MOST), WORD("auto", CONFIG_DERIVE)),
    KEY(precision, initial_scale, CONFIG_REAL, "65536", "first dynamic loss scale",
        REALS(SCALE_LEAST, SCALE_MOST)),
    KEY(precision, growth_interval, CONFIG_INT, "1000",
        "good steps in a row before the dynamic scale grows", BETWEEN(1, STEPS)),
    KEY(precision, growth_factor, CONFIG_REAL, "2", "by which the dynamic scale grows",
        REALS(1.0, 1e6), .above_low = true),
    KEY(precision, backoff_factor, CONFIG_REAL, "0.5", "by which the dynamic scale shrinks",
        REALS(0.0, 1.0), .above_low = true, .below_high = true),
    KEY(precision, hysteresis, CONFIG_INT, "2",
        "bad steps before the dynamic scale shrinks; growth alone fills them up again",
        BETWEEN(1, STEPS)),
    KEY(precision, min_scale, CONFIG_REAL, "1", "smallest dynamic loss scale",
        REALS(SCALE_LEAST, SCALE_MOST)),
    KEY(precision, max_skipped_in_a_row, CONFIG_INT, "50",
        "skipped steps in a row after which the run ends with its cause", BETWEEN(1, STEPS)),

    KEY(data, train, CONFIG_TEXT, NULL, "the training file", REQUIRED, ASKED),
    KEY(data, valid, CONFIG_TEXT, NULL,
        "the evaluation file; cut from a text by split unless given", PLAIN, ASKED),
    KEY(data, test, CONFIG_TEXT, NULL, "the file of the last evaluation", PLAIN),
    KEY(data, split, CONFIG_SHARES, "[0.95, 0.05, 0]",
        "shares of a training text for training, evaluation and test; their sum is 1",
        REALS(0.0, 1.0), ASKED),
    KEY(data, format, CONFIG_CHOICE, "auto",
        "of the files; auto is samples for names that end in .safetensors, else text",
        ONE_OF(formats), ASKED),
    LATER(data, tokenizer, CONFIG_CHOICE, "byte", "of texts; byte has a vocabulary of 256",
          ONE_OF(tokenizers), ASKED),
    KEY(data, shuffle, CONFIG_BOOL, "true", "a new order in each epoch", PLAIN, ASKED),

    KEY(checkpoint, dir, CONFIG_TEXT, NULL,
        "where checkpoints go; the run directory's checkpoints/ unless given", PLAIN),
    KEY(checkpoint, every, CONFIG_INT, "0", "steps between checkpoints; 0 is never",
        BETWEEN(0, STEPS)),
    KEY(checkpoint, keep, CONFIG_INT, "2", "checkpoints that stay, the newest", BETWEEN(1, STEPS)),
    KEY(checkpoint, resume, CONFIG_CHOICE, "auto",
        "whether a run goes on from its last checkpoint: auto where there is one", ONE_OF(resumes)),
    KEY(checkpoint, allow_change, CONFIG_NAMES, "[]",
        "keys that may differ from the checkpoint's: seed, global_batch_size, data.shuffle; "
        "data and optimizer are all of their section",
        PLAIN),
    KEY(checkpoint, import, CONFIG_TEXT, NULL, "a safetensors file with starting weights", PLAIN),
    KEY(checkpoint, import_prefix, CONFIG_TEXT, "", "before each name in that file", PLAIN),

    KEY(trace, enabled, CONFIG_BOOL, "false", "write what each rank did and when", PLAIN),
    KEY(trace, first_step, CONFIG_INT, "1", "first step of the trace", BETWEEN(1, STEPS)),
    KEY(trace, last_step, CONFIG_INT, "all", "last step of the trace", BETWEEN(1, STEPS),
        WORD("all", INT64_MAX)),
    KEY(trace, max_mb, CONFIG_INT, "64", "megabytes of trace a rank", BETWEEN(1, MANY)),
    KEY(trace, nvtx, CONFIG_BOOL, "false", "ranges for NVIDIA's profilers, on GPUs", PLAIN),

    LATER(control, bind, CONFIG_CHOICE, "local", "who may reach the control plane", ONE_OF(binds)),
    LATER(control, port, CONFIG_INT, "0", "of the control plane; 0 is a socket of this host",
          BETWEEN(0, 65535)),
    LATER(control, secret_file, CONFIG_TEXT, NULL, "the job's secret, for several hosts", PLAIN),
    KEY(control, heartbeat_s, CONFIG_REAL, "2", "seconds between signs of life", REALS(0.0, 3600.0),
        .above_low = true),
    KEY(control, dead_after_s, CONFIG_REAL, "10", "seconds of silence after which a rank is dead",
        REALS(0.0, 86400.0), .above_low = true),
    KEY(control, stall_after_s, CONFIG_REAL, "auto",
        "seconds without progress after which a job ends; auto is 60, or 20 of its longest action",
        REALS(0.0, 1e6), .above_low = true, WORD("auto", CONFIG_DERIVE)),
    KEY(control, start_timeout_s, CONFIG_REAL, "600", "seconds in which all ranks have to be there",
        REALS(0.0, 1e6), .above_low = true)};

size_t config_schema_count(void)
{
    return sizeof(keys) / sizeof(keys[0]);
}

const struct config_key *config_schema_at(size_t index)
{
    return &keys[index];
}

size_t config_schema_index(const struct config_key *key)
{
    return (size_t)(key - keys);
}

const struct config_key *config_schema_find(const char *section, const char *name)
{
    for (size_t i = 0; i < config_schema_count(); i++) {
        if (strcmp(keys[i].section, section) == 0 && strcmp(keys[i].name, name) == 0) {
            return &keys[i];
        }
    }
    return NULL;
}

bool config_schema_has_section(const char *section)
{
    for (size_t i = 0; i < config_schema_count(); i++) {
        if (strcmp(keys[i].section, section) == 0) {
            return true;
        }
    }
    return false;
}

/* The end of a bounded text, for snprintf() to go on from. */
struct tail {
    char *text;
    size_t bytes;
};

static void append(struct tail *tail, const char *text)
{
    size_t used = strlen(tail->text);

    (void)snprintf(tail->text + used, tail->bytes - used, "%s", text);
}

/* The choices, with those of this build only, or those that come later only. */
static void append_choices(struct tail *tail, const struct config_choice *choices, bool later)
{
    const char *between = "";

    for (const struct config_choice *choice = choices; choice->text != NULL; choice++) {
        if ((choice->value == CONFIG_LATER) == later) {
            append(tail, between);
            append(tail, choice->text);
            between = ", ";
        }
    }
}

static void append_integers(struct tail *tail, const struct config_key *key)
{
    char range[96];
    const char *kind = key->type == CONFIG_BYTES ? "a number of bytes (512M, 2G)" : "an integer";

    if (key->most == INT64_MAX) {
        (void)snprintf(range, sizeof(range), "%s, at least %lld", kind, (long long)key->least);
    } else {
        (void)snprintf(range, sizeof(range), "%s from %lld to %lld", kind, (long long)key->least,
                       (long long)key->most);
    }
    append(tail, range);
}

static void append_reals(struct tail *tail, const struct config_key *key)
{
    char range[96];

    (void)snprintf(range, sizeof(range), "a number %s %g", key->above_low ? "above" : "from",
                   key->low);
    append(tail, range);
    if (key->high < WIDE) {
        (void)snprintf(range, sizeof(range), "%s %g", key->below_high ? ", below" : " to",
                       key->high);
        append(tail, range);
    }
}

void config_schema_legal(const struct config_key *key, char *legal, size_t legal_bytes)
{
    struct tail tail = {.text = legal, .bytes = legal_bytes};

    legal[0] = '\0';
    switch (key->type) {
    case CONFIG_INT:
    case CONFIG_BYTES:
        append_integers(&tail, key);
        break;
    case CONFIG_REAL:
        append_reals(&tail, key);
        break;
    case CONFIG_BOOL:
        append(&tail, "true or false");
        break;
    case CONFIG_CHOICE:
        append(&tail, "one of ");
        append_choices(&tail, key->choices, false);
        if (key->prefix != NULL) {
            append(&tail, ", ");
            append(&tail, key->prefix);
            append(&tail, key->rest);
        }
        break;
    case CONFIG_CHOICES:
        append(&tail, "one of ");
        append_choices(&tail, key->choices, false);
        append(&tail, ", or a list of them, one a virtual stage");
        break;
    case CONFIG_TEXT:
        append(&tail, "a text of less than 512 bytes without control characters");
        break;
    case CONFIG_COUNTS:
        append(&tail, "a list of integers [3, 3, 2]");
        break;
    case CONFIG_SHARES:
        append(&tail, "a list of three shares [0.95, 0.05, 0] with the sum 1");
        break;
    case CONFIG_NAMES:
        append(&tail, "a list of keys that a resumed run is asked for");
        break;
    }
    if (key->word != NULL) {
        append(&tail, ", or ");
        append(&tail, key->word);
    }
}

void config_schema_later(const struct config_key *key, char *later, size_t later_bytes)
{
    struct tail tail = {.text = later, .bytes = later_bytes};

    later[0] = '\0';
    if (key->choices != NULL) {
        append_choices(&tail, key->choices, true);
    }
}
