/* candidates -- the list of stages/tune/candidate.h. */
#include <stdlib.h>
#include <string.h>

#include "stages/tune/candidate.h"

/* Chunks a rank that are tried beside the configuration's own: more of them hide little more, and
 * each has a message. */
#define MOST_CHUNKS 4

#define FIRST_CAPACITY 64

static enum status copy_candidate(const struct tune_candidate *from, struct tune_candidate *to)
{
    size_t stages = (size_t)(from->pp * from->virtual_stages);

    *to = *from;
    to->layers = from->layers != NULL ? calloc(stages, sizeof(*to->layers)) : NULL;
    to->plan_path = from->plan_path != NULL ? strdup(from->plan_path) : NULL;
    if ((from->layers != NULL && to->layers == NULL) ||
        (from->plan_path != NULL && to->plan_path == NULL)) {
        free(to->layers);
        free(to->plan_path);
        return status_fail(STATUS_ERR_NO_MEMORY, "weir tune: a candidate of %zu virtual stages",
                           stages);
    }
    if (from->layers != NULL) {
        memcpy(to->layers, from->layers, stages * sizeof(*to->layers));
    }
    return STATUS_OK;
}

enum status tune_candidates_add(struct tune_candidates *candidates,
                                const struct tune_candidate *candidate)
{
    if (candidates->count == candidates->capacity) {
        size_t capacity = candidates->capacity == 0 ? FIRST_CAPACITY : 2 * candidates->capacity;
        struct tune_candidate *all = realloc(candidates->all, capacity * sizeof(*all));

        if (all == NULL) {
            return status_fail(STATUS_ERR_NO_MEMORY, "weir tune: %zu candidates", capacity);
        }
        candidates->all = all;
        candidates->capacity = capacity;
    }
    TRY(copy_candidate(candidate, &candidates->all[candidates->count]));
    candidates->count++;
    return STATUS_OK;
}

void tune_candidates_cut(struct tune_candidates *candidates, size_t count)
{
    while (candidates->count > count) {
        struct tune_candidate *last = &candidates->all[--candidates->count];

        free(last->layers);
        free(last->plan_path);
    }
}

void tune_candidates_release(struct tune_candidates *candidates)
{
    tune_candidates_cut(candidates, 0);
    free(candidates->all);
    *candidates = (struct tune_candidates){.all = NULL};
}

/* The configuration itself, as a candidate. */
static struct tune_candidate configured(const struct config *config)
{
    return (struct tune_candidate){
        .pp = config->parallel.pp,
        .tp = config->parallel.tp,
        .dp = config->parallel.dp,
        .virtual_stages = config->parallel.virtual_stages,
        .schedule = config->parallel.schedule,
        .micro_batch_size = config->train.micro_batch_size,
        .num_microbatches = config->train.num_microbatches,
        .configured = true,
    };
}

/* What the loops below walk through. */
struct enumeration {
    const struct tune_base *base;
    unsigned keys;
    uint64_t own_hash; /* of the configuration: what resolves to it is in the list already */
    struct tune_candidates *candidates;
};

static bool varies(const struct enumeration *walk, enum tune_key key)
{
    return (walk->keys >> key & 1U) != 0;
}

/* Where the split does not vary, and there is one for as many virtual stages, that one. */
static void keep_layers(const struct enumeration *walk, struct tune_candidate *candidate,
                        int32_t *layers)
{
    const struct config_parallel *own = &walk->base->config->parallel;
    int64_t stages = candidate->pp * candidate->virtual_stages;

    candidate->layers = NULL;
    if (varies(walk, TUNE_KEY_LAYERS) || stages != own->pp * own->virtual_stages) {
        return;
    }
    for (int64_t s = 0; s < stages; s++) {
        layers[s] = (int32_t)own->layers_per_stage[s];
    }
    candidate->layers = layers;
}

/* Adds it where the configuration's own checks take it. */
static enum status add_legal(const struct enumeration *walk, struct tune_candidate *candidate)
{
    int32_t layers[CONFIG_STAGES_MOST];
    struct config *config = NULL;
    enum status status = STATUS_OK;
    bool known = false;

    keep_layers(walk, candidate, layers);
    candidate->sets_recompute = varies(walk, TUNE_KEY_RECOMPUTE);
    status_hush(true);
    status = tune_candidate_load(walk->base, candidate, &config);
    status_hush(false);
    known = status >= 0 && config_hash(config) == walk->own_hash;
    config_destroy(&config);
    if (status == STATUS_ERR_REFUSED || known) {
        return STATUS_OK;
    }
    return status < 0 ? status : tune_candidates_add(walk->candidates, candidate);
}

/* Of orders that run any number of chunks, one chunk is a schedule with another name; on one rank
 * alone nothing has to be ordered. */
static bool is_distinct(const struct tune_candidate *candidate)
{
    enum schedule schedule = candidate->schedule;
    bool takes_many = schedule_takes_chunks(schedule, 1) && schedule_takes_chunks(schedule, 2);

    if (candidate->pp == 1) {
        return schedule == SCHEDULE_1F1B;
    }
    /* Of slices there is one. */
    return !schedule_takes_slices(schedule) && schedule_trains(schedule) &&
           !(takes_many && candidate->virtual_stages == 1);
}

static enum status walk_schedules(const struct enumeration *walk, struct tune_candidate *candidate)
{
    if (!varies(walk, TUNE_KEY_SCHEDULE)) {
        candidate->schedule = walk->base->config->parallel.schedule;
        return candidate->schedule == SCHEDULE_FILE ? STATUS_OK : add_legal(walk, candidate);
    }
    for (int schedule = 0; schedule < SCHEDULES; schedule++) {
        candidate->schedule = (enum schedule)schedule;
        TRY(is_distinct(candidate) ? add_legal(walk, candidate) : STATUS_OK);
    }
    return STATUS_OK;
}

static enum status take_chunks(const struct enumeration *walk, struct tune_candidate *candidate,
                               int64_t chunks)
{
    bool wanted = varies(walk, TUNE_KEY_VIRTUAL_STAGES) && chunks <= MOST_CHUNKS &&
                  candidate->pp * chunks <= walk->base->config->model.num_layers;

    if (!wanted && chunks != walk->base->config->parallel.virtual_stages) {
        return STATUS_OK;
    }
    candidate->virtual_stages = chunks;
    return walk_schedules(walk, candidate);
}

static enum status walk_chunks(const struct enumeration *walk, struct tune_candidate *candidate)
{
    int64_t own = walk->base->config->parallel.virtual_stages;

    for (int64_t chunks = 1; chunks <= (own > MOST_CHUNKS ? own : MOST_CHUNKS); chunks++) {
        TRY(take_chunks(walk, candidate, chunks));
    }
    return STATUS_OK;
}

/* `samples` is what a replica has. */
static enum status take_size(const struct enumeration *walk, struct tune_candidate *candidate,
                             int64_t size, int64_t samples)
{
    bool wanted =
        varies(walk, TUNE_KEY_MICRO_BATCH) || size == walk->base->config->train.micro_batch_size;

    if (!wanted || samples % size != 0) {
        return STATUS_OK;
    }
    candidate->micro_batch_size = size;
    candidate->num_microbatches = samples / size;
    return walk_chunks(walk, candidate);
}

static enum status walk_sizes(const struct enumeration *walk, struct tune_candidate *candidate)
{
    int64_t global = walk->base->config->train.global_batch_size;
    int64_t samples = global / candidate->dp;

    for (int64_t size = 1; global % candidate->dp == 0 && size <= samples; size++) {
        TRY(take_size(walk, candidate, size, samples));
    }
    return STATUS_OK;
}

static enum status take_grid(const struct enumeration *walk, struct tune_candidate *candidate,
                             int64_t tp, int64_t dp)
{
    const struct config_parallel *own = &walk->base->config->parallel;
    const struct config_model *model = &walk->base->config->model;
    int64_t world = own->pp * own->tp * own->dp;
    bool fits = varies(walk, TUNE_KEY_GRID) && model->num_heads % tp == 0 &&
                model->ffn_hidden_size % tp == 0 && world / tp / dp <= model->num_layers;

    if (world % (tp * dp) != 0 || !(fits || (tp == own->tp && dp == own->dp))) {
        return STATUS_OK;
    }
    candidate->pp = world / tp / dp;
    candidate->tp = tp;
    candidate->dp = dp;
    return walk_sizes(walk, candidate);
}

static enum status walk_replicas(const struct enumeration *walk, struct tune_candidate *candidate,
                                 int64_t tp, int64_t most)
{
    for (int64_t dp = 1; dp <= most; dp++) {
        TRY(take_grid(walk, candidate, tp, dp));
    }
    return STATUS_OK;
}

static enum status walk_grids(const struct enumeration *walk, struct tune_candidate *candidate)
{
    const struct config_parallel *own = &walk->base->config->parallel;
    int64_t world = own->pp * own->tp * own->dp;

    for (int64_t tp = 1; tp <= world; tp++) {
        TRY(walk_replicas(walk, candidate, tp, world / tp));
    }
    return STATUS_OK;
}

enum status tune_candidates_make(const struct tune_base *base, unsigned keys,
                                 struct tune_candidates *candidates_out)
{
    struct tune_candidate candidate = configured(base->config);
    const struct enumeration walk = {
        .base = base,
        .keys = keys,
        .own_hash = config_hash(base->config),
        .candidates = candidates_out,
    };

    *candidates_out = (struct tune_candidates){.all = NULL};
    TRY(tune_candidates_add(candidates_out, &candidate));
    candidate.configured = false;
    return walk_grids(&walk, &candidate);
}
