/* What a job of the rig came to: compared, and released. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/stages/engine_rig.h"

uint64_t rig_bits(double value)
{
    uint64_t bits = 0;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

const struct rig_tensor *rig_find(const struct rig_tensor *tensors, int32_t count, const char *name)
{
    for (int32_t i = 0; i < count; i++) {
        if (strcmp(tensors[i].name, name) == 0) {
            return &tensors[i];
        }
    }
    return NULL;
}

static bool same_tensors(const struct rig_tensor *a, const struct rig_tensor *b, int32_t count,
                         const char *what, char *text, size_t text_bytes)
{
    for (int32_t i = 0; i < count; i++) {
        const struct rig_tensor *other = rig_find(b, count, a[i].name);

        if (other == NULL || other->elems != a[i].elems ||
            memcmp(a[i].data, other->data, a[i].elems * sizeof(float)) != 0) {
            (void)snprintf(text, text_bytes, "%s of %s differ", what, a[i].name);
            return false;
        }
    }
    return true;
}

bool rig_same_end(const struct rig_result *a, const struct rig_result *b, char *text,
                  size_t text_bytes)
{
    int32_t copies = a->copy_count < b->copy_count ? a->copy_count : b->copy_count;

    if (a->steps != b->steps || a->tensors != b->tensors) {
        (void)snprintf(text, text_bytes, "steps or tensors differ in number");
        return false;
    }
    for (int64_t step = a->first > b->first ? a->first : b->first; step < a->steps; step++) {
        if (rig_bits(a->loss[step]) != rig_bits(b->loss[step]) ||
            rig_bits(a->norm[step]) != rig_bits(b->norm[step]) ||
            rig_bits(a->lr[step]) != rig_bits(b->lr[step])) {
            (void)snprintf(text, text_bytes,
                           "step %lld: losses %.17g %.17g, norms %.17g %.17g, lr %.17g %.17g",
                           (long long)step + 1, a->loss[step], b->loss[step], a->norm[step],
                           b->norm[step], a->lr[step], b->lr[step]);
            return false;
        }
    }
    return same_tensors(a->weights, b->weights, a->tensors, "weights", text, text_bytes) &&
           same_tensors(a->models, b->models, a->model_count, "model params", text, text_bytes) &&
           same_tensors(a->copies, b->copies, copies, "the head's copies", text, text_bytes);
}

bool rig_same(const struct rig_result *a, const struct rig_result *b, char *text, size_t text_bytes)
{
    if (a->gradient_count != b->gradient_count) {
        (void)snprintf(text, text_bytes, "gradients differ in number");
        return false;
    }
    return same_tensors(a->gradients, b->gradients, a->gradient_count, "gradients", text,
                        text_bytes) &&
           rig_same_end(a, b, text, text_bytes);
}

void rig_release(struct rig_result *result)
{
    for (int32_t i = 0; i < RIG_TENSORS_MOST; i++) {
        free(result->gradients[i].data);
        free(result->gradients[i].seen);
        free(result->weights[i].data);
        free(result->weights[i].seen);
        free(result->models[i].data);
        free(result->models[i].seen);
    }
    free(result->copies[0].data);
    free(result->copies[0].seen);
    memset(result, 0, sizeof(*result));
}
