#include "stages/model/flops.h"

struct flops flops_of_layer(const struct config *config, enum recompute recompute)
{
    double C = (double)config->model.hidden_size;
    double inner = (double)config->model.ffn_hidden_size;
    double T = (double)config->model.seq_len;
    double shards = (double)config->parallel.tp;
    /* QKV, the projection behind attention, both of the MLP: a multiplication and an addition each. */
    double products = 2.0 * (4.0 * C * C + 2.0 * C * inner) / shards;
    /* Scores and their weighted sum, over half of the positions. */
    double attention = 2.0 * T * C / shards;
    struct flops flops = {
        .F = products + attention, .I = products + 2.0 * attention, .W = products};

    if (recompute == RECOMPUTE_FULL) {
        flops.I += flops.F;
    } else if (recompute == RECOMPUTE_SELECTIVE) {
        flops.I += attention;
    }
    return flops;
}

double flops_of_head(const struct config *config)
{
    return 3.0 * 2.0 * (double)config->model.hidden_size * (double)config->model.vocab_size /
           (double)config->parallel.tp;
}

struct flops flops_of_stage(const struct config *config, int32_t virtual_stage)
{
    int64_t last = config->parallel.pp * config->parallel.virtual_stages - 1;
    double layers = (double)config->parallel.layers_per_stage[virtual_stage];
    double rows = (double)config->train.micro_batch_size * (double)config->model.seq_len;
    struct flops flops = flops_of_layer(config, config->train.recompute[virtual_stage]);

    flops.F *= layers;
    flops.I *= layers;
    flops.W *= layers;
    flops.F += virtual_stage == last ? flops_of_head(config) : 0.0;
    flops.F *= rows;
    flops.I *= rows;
    flops.W *= rows;
    return flops;
}
