/*
 * Cases of the field in every layout: starting weights, the norm and its clipping, what shards have
 * in common, weight decay, micro-batch counts, neighbours that are one rank, uneven layers, and a
 * vocabulary that does not divide.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "stages/engine.h"
#include "tests/stages/base_run.h"
#include "tests/stages/oracle.h"

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

/* H01. */
static void test_starting_weights_are_the_same_in_every_layout(void **state)
{
    static struct rig_result one;
    static struct rig_result run;
    static const struct base_run alone = {.steps = BASE_NO_STEPS};
    static const struct base_run layouts[] = {
        {.pp = 4, .steps = BASE_NO_STEPS},
        {.pp = 4, .virtual_stages = 2, .steps = BASE_NO_STEPS},
        {.tp = 4, .steps = BASE_NO_STEPS},
        {.dp = 4, .steps = BASE_NO_STEPS},
        {.pp = 2, .tp = 2, .dp = 2, .steps = BASE_NO_STEPS},
        {.pp = 2, .tp = 2, .dp = 2, .virtual_stages = 2, .steps = BASE_NO_STEPS},
    };

    (void)state;
    base_train(&alone, &one);
    assert_int_equal(one.tensors, BASE_LAYERS * 12 + 4);
    for (size_t i = 0; i < COUNT(layouts); i++) {
        base_train(&layouts[i], &run);
        base_assert_same(&layouts[i], &run, &one);
        if (layouts[i].pp > 1) {
            base_assert_copy(&run);
        }
        rig_release(&run);
    }
    rig_release(&one);
}

#define CLIP 0.1

/* Sum of squares of Adam's first moment, of everything once. */
static void add_moments(void *context, const struct engine *engine)
{
    double *sum = context;

    for (int32_t i = 0; i < engine->params.count; i++) {
        const struct param *param = &engine->params.table[i];
        bool first_shard = engine->grid.tp == 0 || param->sharded;
        bool first_replica = engine->grid.dp == 0 || param->sliced;

        for (size_t e = 0; e < param->own_elems && first_shard && first_replica; e++) {
            *sum += (double)param->moment1[e] * param->moment1[e];
        }
    }
}

static double norm_of(const struct rig_result *run)
{
    double sum = 0.0;

    for (int32_t i = 0; i < run->gradient_count; i++) {
        for (size_t e = 0; e < run->gradients[i].elems; e++) {
            sum += (double)run->gradients[i].data[e] * run->gradients[i].data[e];
        }
    }
    return sqrt(sum);
}

/* H04: no layout counts anything twice, or clips by another norm; replicas that share out neither. */
static void test_the_norm_is_the_sum_over_the_whole_gradients_in_every_layout(void **state)
{
    static struct rig_result one;
    static struct rig_result run;
    static const int layouts[][3] = {{1, 1, 1}, {2, 1, 1}, {4, 1, 1}, {1, 2, 1}, {1, 4, 1},
                                     {2, 2, 1}, {1, 1, 2}, {2, 1, 2}, {1, 2, 2}, {2, 2, 2}};
    const struct base_run alone = {.steps = 1, .micro_batch = 8};

    (void)state;
    base_train(&alone, &one);
    assert_true(one.norm[0] > 2 * CLIP);
    for (size_t i = 0; i < 4 * COUNT(layouts); i++) {
        const int *sizes = layouts[i / 4];
        bool zero = i / 2 % 2 == 1;
        double moments = 0.0;
        const struct rig_hooks hooks = {.context = &moments, .on_step = add_moments};
        const struct base_run layout = {
            .pp = sizes[0],
            .tp = sizes[1],
            .dp = sizes[2],
            .steps = 1,
            .more = {"optimizer.grad_clip=0.1",
                     i % 2 == 0 ? "model.tied_embeddings=true" : "model.tied_embeddings=false",
                     zero ? "parallel.zero_stage=1" : NULL},
            .hooks = &hooks};
        double expected = 0.0;

        if (zero && sizes[2] == 1) {
            continue;
        }
        base_train(&layout, &run);
        expected = norm_of(&run);
        if (!(oracle_relative(run.norm[0], expected) <= 1e-9)) {
            fail_msg("pp %d, tp %d, dp %d: norm %.15g, of the whole gradients %.15g", sizes[0],
                     sizes[1], sizes[2], run.norm[0], expected);
        }
        if (i % 2 == 0) {
            base_assert_close(&layout, &run, &one);
        }
        /* The first moment of the first update is (1 - beta1) times the clipped gradient. */
        assert_true(oracle_relative(sqrt(moments), 0.1 * expected * CLIP / (expected + 1e-6)) <=
                    1e-6);
        rig_release(&run);
    }
    rig_release(&one);
}

/* Everything that the shards of a stage have in common. */
static void print_common(void *context, const struct engine *engine)
{
    uint64_t print = BASE_PRINT_START;

    for (int32_t i = 0; i < engine->params.count; i++) {
        const struct param *param = &engine->params.table[i];

        if (!param->sharded) {
            print = base_print(print, param->name, strlen(param->name));
            print = base_print(print, param->weight, param->elems * sizeof(float));
        }
    }
    base_put_print(context, engine->attempts - 1, engine->grid.pp, print);
}

/* H06. */
static void test_what_shards_have_in_common_is_the_same_after_every_step(void **state)
{
    static struct rig_result run;
    static struct base_prints prints;
    static const struct base_run layouts[] = {
        {.tp = 2, .steps = 20}, {.tp = 4, .steps = 20}, {.pp = 2, .tp = 2, .dp = 2, .steps = 20}};

    (void)state;
    for (size_t i = 0; i < COUNT(layouts); i++) {
        const struct rig_hooks hooks = {.context = &prints, .on_step = print_common};
        struct base_run layout = layouts[i];
        int stages = layout.pp > 0 ? layout.pp : 1;

        memset(&prints, 0, sizeof(prints));
        layout.hooks = &hooks;
        base_train(&layout, &run);
        assert_int_equal(prints.different, 0);
        for (int64_t step = 0; step < 20; step++) {
            for (int stage = 0; stage < stages; stage++) {
                assert_int_equal(prints.count[step][stage],
                                 layout.tp * (layout.dp > 0 ? layout.dp : 1));
                assert_true(step == 0 ||
                            prints.print[step][stage] != prints.print[step - 1][stage]);
            }
        }
        rig_release(&run);
    }
}

static void forget_gradients(void *context, const struct engine *engine)
{
    (void)context;
    for (int32_t i = 0; i < engine->params.count; i++) {
        const struct param *param = &engine->params.table[i];

        memset(param->grad, 0, param->elems * sizeof(float));
    }
}

static bool is_one_dimensional(const char *name)
{
    return strstr(name, ".bias") != NULL || strstr(name, "ln_") != NULL;
}

static void assert_decayed(const struct rig_tensor *before, const struct rig_tensor *after)
{
    if (is_one_dimensional(before->name)) {
        assert_memory_equal(before->data, after->data, before->elems * sizeof(float));
        return;
    }
    for (size_t e = 0; e < before->elems; e++) {
        double weight = before->data[e];

        /* Half a unit in the last place: of the product, and of the hundredth that is taken off. */
        if (!(fabs(after->data[e] - 0.99 * weight) <= 1.05 * ldexp(fabs(weight), -24))) {
            fail_msg("%s: element %zu is %.9g after %.9g", before->name, e, after->data[e], weight);
        }
    }
}

/* H10. */
static void test_weight_decay_leaves_one_dimensional_parameters_alone(void **state)
{
    static struct rig_result before;
    static struct rig_result after;
    static const int layouts[][4] = {{1, 1, 1, 0}, {1, 2, 1, 0}, {1, 1, 2, 0}, {2, 1, 1, 0},
                                     {2, 2, 2, 0}, {1, 1, 2, 1}, {1, 2, 2, 1}, {2, 1, 4, 1}};
    static const struct rig_hooks hooks = {.on_gradients = forget_gradients};

    (void)state;
    for (size_t i = 0; i < COUNT(layouts); i++) {
        struct base_run layout = {
            .pp = layouts[i][0],
            .tp = layouts[i][1],
            .dp = layouts[i][2],
            .steps = BASE_NO_STEPS,
            .more = {"optimizer.lr=0.1", layouts[i][3] != 0 ? "parallel.zero_stage=1" : NULL},
            .hooks = &hooks};

        base_train(&layout, &before);
        layout.steps = 1;
        base_train(&layout, &after);
        assert_int_equal(before.tensors, BASE_LAYERS * 12 + 4);
        for (int32_t t = 0; t < before.tensors; t++) {
            const struct rig_tensor *tensor =
                rig_find(after.weights, after.tensors, before.weights[t].name);

            assert_non_null(tensor);
            assert_decayed(&before.weights[t], tensor);
        }
        if (layout.pp > 1) {
            base_assert_copy(&after);
        }
        rig_release(&before);
        rig_release(&after);
    }
}

static void check_micro_batches(int m, int dp)
{
    static struct rig_result reference;
    static struct rig_result run;
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved_1f1b"};
    struct base_run layout = {.pp = 4, .dp = dp, .steps = 3, .batch = m * dp};
    struct base_run one = base_reference(&layout);

    base_train(&one, &reference);
    for (int i = 0; i < 6; i++) {
        layout.schedule = schedules[i / 2];
        layout.virtual_stages = i / 2 == 2 ? 2 : 1;
        layout.more[0] = i % 2 == 0 ? "parallel.early_send=true" : "parallel.early_send=false";
        base_train(&layout, &run);
        base_assert_close(&layout, &run, &reference);
        rig_release(&run);
    }
    rig_release(&reference);
}

/* H11. */
static void test_fewer_micro_batches_than_stages_are_trained(void **state)
{
    (void)state;
    for (int m = 1; m <= 5; m++) {
        check_micro_batches(m, 1);
    }
}

static void test_fewer_micro_batches_than_stages_are_trained_in_replicas(void **state)
{
    (void)state;
    for (int m = 1; m <= 5; m++) {
        check_micro_batches(m, 2);
    }
}

/* H15: the next rank is the rank before, too. */
static void test_two_interleaved_stages_take_nothing_for_the_other_message(void **state)
{
    static const int batches[] = {4, 8};

    (void)state;
    for (size_t i = 0; i < COUNT(batches); i++) {
        const struct base_run plain = {.pp = 2, .virtual_stages = 2, .batch = batches[i]};
        const struct base_run sharded = {
            .pp = 2, .tp = 2, .virtual_stages = 2, .batch = batches[i]};
        const struct base_run replicated = {
            .pp = 2, .dp = 2, .virtual_stages = 2, .batch = 2 * batches[i]};
        const struct base_run finer = {.pp = 2, .virtual_stages = 4, .batch = batches[i]};

        base_check(&plain);
        base_check(&sharded);
        base_check(&replicated);
        base_check(&finer);
    }
}

#define LAYERS_MOST 40

/* On how many ranks each layer is. */
static void count_layers(void *context, const struct engine *engine)
{
    int *ranks = context;
    char name[PARAM_NAME_BYTES];

    for (int layer = 0; layer < LAYERS_MOST; layer++) {
        (void)snprintf(name, sizeof(name), "h.%d.ln_1.weight", layer);
        ranks[layer] += params_find(&engine->params, name) != NULL ? 1 : 0;
    }
}

static size_t count_elements(const struct rig_result *run)
{
    size_t elems = 0;

    for (int32_t i = 0; i < run->tensors; i++) {
        elems += run->weights[i].elems;
    }
    return elems;
}

static void check_layers(int layers, const struct base_run *base)
{
    /* GPT-2 of width C with L layers: 12 C² + 13 C a layer, tables of V and T rows, a last norm. */
    const size_t C = 16;
    const size_t expected =
        (size_t)layers * (12 * C * C + 13 * C) + (BASE_VOCAB + BASE_POSITIONS) * C + 2 * C;
    static struct rig_result reference;
    static struct rig_result run;
    int ranks[LAYERS_MOST] = {0};
    const struct rig_hooks hooks = {.context = ranks, .on_step = count_layers};
    struct base_run layout = *base;
    struct base_run one = base_reference(base);

    base_train(&one, &reference);
    layout.hooks = &hooks;
    base_train(&layout, &run);
    base_assert_close(&layout, &run, &reference);
    for (int layer = 0; layer < layers; layer++) {
        assert_int_equal(ranks[layer], run.steps);
    }
    assert_int_equal(run.tensors, layers * 12 + 4);
    assert_int_equal(count_elements(&run), expected);
    assert_int_equal(count_elements(&reference), expected);
    rig_release(&run);
    rig_release(&reference);
}

/* H16. */
static void test_layers_that_do_not_divide_are_all_there_and_once(void **state)
{
    static const struct base_run thirty = {
        .pp = 4, .steps = 2, .more = {"model.num_layers=30", "model.hidden_size=16"}};
    static const struct base_run forty = {.pp = 8,
                                          .virtual_stages = 2,
                                          .steps = 2,
                                          .more = {"model.num_layers=40", "model.hidden_size=16"}};

    (void)state;
    check_layers(30, &thirty);
    check_layers(40, &forty);
}

/* H17: starting weights so small that the first loss tells 257 tokens from 260. */
static void check_vocabulary(const char *tied)
{
    static struct rig_result reference;
    static struct rig_result run;
    static const int layouts[][3] = {{1, 2, 1}, {1, 4, 1}, {2, 2, 1}, {2, 4, 1}, {1, 2, 2}};
    struct base_run layout = {.more = {"model.vocab_size=257", "model.init_std=0.002", tied}};
    struct base_run one = base_reference(&layout);

    base_train(&one, &reference);
    for (size_t i = 0; i < COUNT(layouts); i++) {
        layout.pp = layouts[i][0];
        layout.tp = layouts[i][1];
        layout.dp = layouts[i][2];
        base_train(&layout, &run);
        base_assert_close(&layout, &run, &reference);
        assert_true(fabs(run.loss[0] - log(257.0)) < 0.005);
        /* Nothing of a padded row is anywhere. */
        for (int32_t t = 0; t < run.tensors; t++) {
            if (strcmp(run.weights[t].name, "wte.weight") == 0 ||
                strcmp(run.weights[t].name, "lm_head.weight") == 0) {
                assert_int_equal(run.weights[t].elems, 257 * BASE_HIDDEN);
            }
        }
        assert_int_equal(count_elements(&run), count_elements(&reference));
        rig_release(&run);
    }
    rig_release(&reference);
}

static void test_a_vocabulary_that_does_not_divide_has_no_padding_in_its_loss(void **state)
{
    (void)state;
    check_vocabulary("model.tied_embeddings=true");
    check_vocabulary("model.tied_embeddings=false");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_starting_weights_are_the_same_in_every_layout),
        cmocka_unit_test(test_the_norm_is_the_sum_over_the_whole_gradients_in_every_layout),
        cmocka_unit_test(test_what_shards_have_in_common_is_the_same_after_every_step),
        cmocka_unit_test(test_weight_decay_leaves_one_dimensional_parameters_alone),
        cmocka_unit_test(test_fewer_micro_batches_than_stages_are_trained),
        cmocka_unit_test(test_fewer_micro_batches_than_stages_are_trained_in_replicas),
        cmocka_unit_test(test_two_interleaved_stages_take_nothing_for_the_other_message),
        cmocka_unit_test(test_layers_that_do_not_divide_are_all_there_and_once),
        cmocka_unit_test(test_a_vocabulary_that_does_not_divide_has_no_padding_in_its_loss),
    };

    return cmocka_run_group_tests_name("layout_cases", tests, base_make, base_remove);
}
