/*
 * manifest_json -- what the writing and the reading half of manifest.h have in common.
 *
 * Private to them.
 */
#ifndef STAGES_CHECKPOINT_MANIFEST_JSON_H
#define STAGES_CHECKPOINT_MANIFEST_JSON_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MANIFEST_FORMAT    1
#define MANIFEST_HEX_BYTES 17 /* a sum as digits, with its end */

struct json_t;

/* The sum of the object, whatever the order of its keys; false where there is no memory. */
bool manifest_json_sum(const struct json_t *object, uint64_t *sum_out);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_CHECKPOINT_MANIFEST_JSON_H */
