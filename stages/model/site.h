/*
 * site -- what a random number of the model is for (tensor/rng.h): the starting values of each kind of
 * parameter, and the masks of each place that has a dropout.
 *
 * A number, once used, never changes its meaning: it is part of what a seed stands for.
 */
#ifndef STAGES_MODEL_SITE_H
#define STAGES_MODEL_SITE_H

#ifdef __cplusplus
extern "C" {
#endif

enum site {
    SITE_WTE = 1,
    SITE_WPE = 2,
    SITE_WTT = 3,
    SITE_LM_HEAD = 4,
    SITE_LAYER = 16, /* and up: a tensor of a layer, by its row in parameters.c */
    /* Dropout, as in Megatron: */
    SITE_DROPOUT_EMBEDDING = 64, /* of the embedding's sum */
    SITE_DROPOUT_ATTENTION = 65, /* of the attention's weights */
    SITE_DROPOUT_HEADS = 66,     /* of what the attention adds to the residual stream */
    SITE_DROPOUT_MLP = 67        /* of what the MLP adds to it */
};

#ifdef __cplusplus
}
#endif

#endif /* STAGES_MODEL_SITE_H */
