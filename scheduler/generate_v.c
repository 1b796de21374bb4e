/* generate_v -- zb_v: two chunks a rank on a V, every W right behind the I that makes room for it. */
#include "scheduler/generate_order.h"

#define DOWN 0 /* the chunk that goes from rank 0 to rank p-1, and the one that comes back */
#define UP   1

/* How many of a kind the line has so far, by chunk. */
struct counts {
    int32_t F[2];
    int32_t I[2];
    int32_t W[2];
};

static void forward(struct order *order, struct counts *counts, int32_t chunk)
{
    order_add(order, ACTION_F, counts->F[chunk]++, chunk);
}

static void input(struct order *order, struct counts *counts, int32_t chunk)
{
    order_add(order, ACTION_I, counts->I[chunk]++, chunk);
}

static void weight(struct order *order, struct counts *counts, int32_t chunk)
{
    order_add(order, ACTION_W, counts->W[chunk]++, chunk);
}

/* Until the first micro-batches have come back up, and their I has. */
static void begin(struct order *order, struct counts *counts)
{
    int32_t below = order->plan->shape.ranks - order->rank; /* this rank included */
    int32_t i;

    for (i = 0; i < 2 * below - 1; i++) {
        forward(order, counts, DOWN);
    }
    for (i = 0; i < order->rank; i++) {
        forward(order, counts, UP);
        forward(order, counts, DOWN);
    }
    for (i = 0; i < below; i++) {
        forward(order, counts, UP);
        input(order, counts, UP);
        weight(order, counts, UP);
    }
}

/* From here on I alone: W fills the end. */
static void drain(struct order *order, struct counts *counts, int32_t microbatches)
{
    int32_t below = order->plan->shape.ranks - order->rank;
    int32_t i;

    for (i = 0; i < order->rank; i++) {
        input(order, counts, DOWN);
        input(order, counts, UP);
    }
    for (i = 0; i < below; i++) {
        input(order, counts, DOWN);
        weight(order, counts, DOWN);
    }
    while (counts->W[UP] < microbatches) {
        weight(order, counts, UP);
    }
    while (counts->W[DOWN] < microbatches) {
        weight(order, counts, DOWN);
    }
}

/* The order is one of at least 2p-1 micro-batches; those that a shorter step lacks are left out. */
void order_zero_bubble_v(struct order *order)
{
    const struct plan_shape *shape = &order->plan->shape;
    int32_t full = 2 * shape->ranks - 1;
    int32_t microbatches = shape->microbatches > full ? shape->microbatches : full;
    struct counts counts = {.F = {0, 0}};

    begin(order, &counts);
    while (counts.F[UP] < counts.F[DOWN] || counts.F[DOWN] < microbatches) {
        if (counts.F[DOWN] < microbatches) {
            forward(order, &counts, DOWN);
        }
        input(order, &counts, DOWN);
        weight(order, &counts, DOWN);
        forward(order, &counts, UP);
        input(order, &counts, UP);
        weight(order, &counts, UP);
    }
    drain(order, &counts, microbatches);
}
