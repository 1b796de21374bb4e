#include "naive_attention.h"

#include <math.h>
#include <stdlib.h>

static double dot(const double *a, const double *b, size_t D)
{
    double sum = 0.0;

    for (size_t d = 0; d < D; d++) {
        sum += a[d] * b[d];
    }
    return sum;
}

/* The weights p (T,T) of all queries, and the log-sum-exp of each. */
static double *weights(const double *q, const double *k, double *lse, size_t T, size_t D)
{
    double *p = calloc(T * T, sizeof(*p));

    for (size_t i = 0; p != NULL && i < T; i++) {
        double max = -INFINITY;
        double sum = 0.0;

        for (size_t j = 0; j <= i; j++) {
            p[i * T + j] = dot(q + i * D, k + j * D, D) / sqrt((double)D);
            max = fmax(max, p[i * T + j]);
        }
        for (size_t j = 0; j <= i; j++) {
            sum += exp(p[i * T + j] - max);
        }
        lse[i] = max + log(sum);
        for (size_t j = 0; j <= i; j++) {
            p[i * T + j] = exp(p[i * T + j] - lse[i]);
        }
    }
    return p;
}

static double factor(const double *factors, size_t element)
{
    return factors != NULL ? factors[element] : 1.0;
}

void naive_attention_forward(double *out, double *lse, const double *q, const double *k,
                             const double *v, const double *factors, size_t T, size_t D)
{
    double *p = weights(q, k, lse, T, D);

    for (size_t i = 0; i < T; i++) {
        for (size_t d = 0; d < D; d++) {
            out[i * D + d] = 0.0;
            for (size_t j = 0; j <= i; j++) {
                out[i * D + d] += p[i * T + j] * factor(factors, i * T + j) * v[j * D + d];
            }
        }
    }
    free(p);
}

/* dp = factor · dout·v, ds = p (dp - sum of p dp): the derivative of softmax. Only where `out` is
 * given does the sum take the kernel's shortcut through it. */
void naive_attention_backward(double *dq, double *dk, double *dv, const double *dout,
                              const double *out, const double *q, const double *k, const double *v,
                              const double *factors, size_t T, size_t D)
{
    double *lse = calloc(T, sizeof(*lse));
    double *p = weights(q, k, lse, T, D);

    for (size_t i = 0; i < T * D; i++) {
        dq[i] = 0.0;
        dk[i] = 0.0;
        dv[i] = 0.0;
    }
    for (size_t i = 0; i < T; i++) {
        double mean = out != NULL ? dot(dout + i * D, out + i * D, D) : 0.0;

        for (size_t j = 0; out == NULL && j <= i; j++) {
            mean += p[i * T + j] * factor(factors, i * T + j) * dot(dout + i * D, v + j * D, D);
        }
        for (size_t j = 0; j <= i; j++) {
            double kept = factor(factors, i * T + j);
            double dp = kept * dot(dout + i * D, v + j * D, D);
            double ds = p[i * T + j] * (dp - mean) / sqrt((double)D);

            for (size_t d = 0; d < D; d++) {
                dq[i * D + d] += ds * k[j * D + d];
                dk[j * D + d] += ds * q[i * D + d];
                dv[j * D + d] += p[i * T + j] * kept * dout[i * D + d];
            }
        }
    }
    free(lse);
    free(p);
}

/* What ds of a query and a key may be off by. */
static double ds_rounding(const double *dout, const double *v, double p, double f, double mean,
                          size_t D, double u, double s)
{
    double dp_off = 0.0;
    double off;

    for (size_t d = 0; d < D; d++) {
        dp_off += (u * fabs(dout[d]) + s) * fabs(v[d]);
    }
    off = p * f * dp_off;
    return off + u * (fabs(p * (f * dot(dout, v, D) - mean)) + off) + s;
}

void naive_attention_rounding(double *bounds, const double *dout, const double *out,
                              const double *q, const double *k, const double *v,
                              const double *factors, size_t T, size_t D, double u, double s)
{
    double *lse = calloc(T, sizeof(*lse));
    double *p = weights(q, k, lse, T, D);
    double *dq = bounds + T * D;
    double *dk = bounds + 2 * T * D;
    double *dv = bounds + 3 * T * D;

    for (size_t i = 0; i < 4 * T * D; i++) {
        bounds[i] = 0.0;
    }
    for (size_t i = 0; i < T; i++) {
        double mean = dot(dout + i * D, out + i * D, D);

        for (size_t j = 0; j <= i; j++) {
            double f = factor(factors, i * T + j);
            double weight = f * p[i * T + j];
            double off = f > 0.0 ? u * weight + s : 0.0;
            double ds_off = ds_rounding(dout + i * D, v + j * D, p[i * T + j], f, mean, D, u, s) /
                            sqrt((double)D);

            for (size_t d = 0; d < D; d++) {
                double dout_off = u * fabs(dout[i * D + d]) + s;

                bounds[i * D + d] += f * (u * p[i * T + j] + s) * fabs(v[j * D + d]);
                dq[i * D + d] += ds_off * fabs(k[j * D + d]);
                dk[j * D + d] += ds_off * fabs(q[i * D + d]);
                dv[j * D + d] += off * fabs(dout[i * D + d]) + (weight + off) * dout_off;
            }
        }
    }
    free(lse);
    free(p);
}
