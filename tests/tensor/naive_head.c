#include "naive_head.h"

#include <math.h>

static double logit(const struct naive_head *head, size_t row, size_t v)
{
    double sum = 0.0;

    for (size_t c = 0; c < head->hidden; c++) {
        sum += head->x[row * head->hidden + c] * head->wte[v * head->hidden + c];
    }
    return sum;
}

/* The log of the sum of exp of a row's logits. */
static double log_sum_exp(const struct naive_head *head, size_t row)
{
    double max = -INFINITY;
    double sum = 0.0;

    for (size_t v = 0; v < head->vocab; v++) {
        max = fmax(max, logit(head, row, v));
    }
    for (size_t v = 0; v < head->vocab; v++) {
        sum += exp(logit(head, row, v) - max);
    }
    return max + log(sum);
}

double naive_head_loss(const struct naive_head *head)
{
    double loss = 0.0;

    for (size_t row = 0; row < head->rows; row++) {
        if (head->mask[row] != 0.0F) {
            loss += log_sum_exp(head, row) - logit(head, row, (size_t)head->targets[row]);
        }
    }
    return loss;
}

void naive_head_gradients(const struct naive_head *head, double seed, double *dx, double *dwte)
{
    size_t C = head->hidden;

    for (size_t row = 0; row < head->rows; row++) {
        double lse = log_sum_exp(head, row);

        for (size_t c = 0; c < C; c++) {
            dx[row * C + c] = 0.0;
        }
        for (size_t v = 0; v < head->vocab && head->mask[row] != 0.0F; v++) {
            double hit = v == (size_t)head->targets[row] ? 1.0 : 0.0;
            double dlogit = (exp(logit(head, row, v) - lse) - hit) * seed;

            for (size_t c = 0; c < C; c++) {
                dx[row * C + c] += dlogit * head->wte[v * C + c];
                dwte[v * C + c] += dlogit * head->x[row * C + c];
            }
        }
    }
}
