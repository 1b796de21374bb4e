/*
 * The word table's gradient belongs to tokens: the block of the first position of a token adds all of its
 * rows, in ascending order. It reads all tokens, N²/2 of them for N blocks, which is little beside the rows
 * as long as N stays in the tens of thousands.
 */
#include "tensor/kernels/embedding.h"

#include "tensor/cuda/pack.cuh"

#define THREADS 256
#define WARPS   (THREADS / WARP_LANES)
#define BLOCKS  4096

/* Tokens that a block looks at together, four a thread. */
#define EACH  4
#define CHUNK (THREADS * EACH)
#define VOTES (CHUNK / WARP_LANES)

/* Rows of a frequent token that are read at once, and the blocks that leave room for what they are read into. */
#define TOGETHER 8
#define RESIDENT 4

/* A token's row of the table here; vocab or more where it is none of them. */
static __device__ __forceinline__ size_t word_row(int32_t token, const struct embedding_shape &s)
{
    return (size_t)token - s.first_token;
}

template <typename NUMBER> struct tables {
    const NUMBER *words;
    const NUMBER *positions;
    const NUMBER *types; /* NULL without token types */
};

/* sum += the elements from `more`. */
template <typename NUMBER, int WIDTH>
static __device__ __forceinline__ void add_pack(float (&sum)[WIDTH], const NUMBER *more)
{
    float x[WIDTH];

    pack_read(x, more);
    UNROLL
    for (int i = 0; i < WIDTH; i++) {
        sum[i] += x[i];
    }
}

template <typename NUMBER, int WIDTH>
__global__ void look_up(float *out, const int32_t *tokens, const int32_t *types, tables<NUMBER> of,
                        struct embedding_shape s)
{
    size_t row = pack_row();
    size_t C = s.hidden;

    if (row >= s.batch * s.positions) {
        return;
    }
    size_t word = word_row(tokens[row], s);
    const NUMBER *position = of.positions + row % s.positions * C;

    FOR_PACKS(c, C)
    {
        float sum[WIDTH] = {0.0F};

        if (word < s.vocab) {
            pack_read(sum, of.words + word * C + c);
            add_pack(sum, position + c);
            if (types != NULL) {
                add_pack(sum, of.types + (size_t)types[row] * C + c);
            }
        }
        pack_write(out + row * C + c, sum);
    }
}

/* The places of `token` among a chunk of tokens, in ascending order; how many there are. All threads of the
 * block come here, and have read the places of the chunk before when the first barrier opens. */
static __device__ __forceinline__ unsigned find_token(unsigned *places, const int32_t *tokens,
                                                      size_t count, int32_t token)
{
    __shared__ unsigned votes[VOTES];
    unsigned lane = threadIdx.x % WARP_LANES;
    bool here[EACH];
    unsigned found = 0;

    UNROLL
    for (unsigned k = 0; k < EACH; k++) {
        unsigned at = k * THREADS + threadIdx.x;

        here[k] = at < count && tokens[at] == token;
    }
    UNROLL
    for (unsigned k = 0; k < EACH; k++) {
        unsigned vote = __ballot_sync(ALL_LANES, here[k]);

        if (lane == 0) {
            votes[k * WARPS + threadIdx.x / WARP_LANES] = vote;
        }
    }
    __syncthreads();
    for (unsigned vote = 0; vote < VOTES; vote++) {
        UNROLL
        for (unsigned k = 0; k < EACH; k++) {
            if (here[k] && vote == k * WARPS + threadIdx.x / WARP_LANES) {
                unsigned before = (unsigned)__popc(votes[vote] & ((1U << lane) - 1U));

                places[found + before] = k * THREADS + threadIdx.x;
            }
        }
        found += (unsigned)__popc(votes[vote]);
    }
    __syncthreads();
    return found;
}

/* Whether `token` stands among the first `count`. All threads of the block come here. */
static __device__ __forceinline__ bool stands_before(const int32_t *tokens, size_t count,
                                                     int32_t token)
{
    __shared__ bool found;
    bool here = false;

    if (threadIdx.x == 0) {
        found = false;
    }
    __syncthreads();
    UNROLL_BY(4)
    for (size_t i = threadIdx.x; i < count; i += THREADS) {
        here |= tokens[i] == token;
    }
    if (here) {
        found = true;
    }
    __syncthreads();
    return found;
}

/* sum += the packs of the TOGETHER rows in these places, one after another; all are read before the first is added. */
template <typename NUMBER, int WIDTH>
static __device__ __forceinline__ void add_rows(float (&sum)[WIDTH], const NUMBER *rows,
                                                const unsigned *places, size_t C)
{
    pack<NUMBER, WIDTH> ahead[TOGETHER];

    UNROLL
    for (unsigned k = 0; k < TOGETHER; k++) {
        ahead[k] = *(const pack<NUMBER, WIDTH> *)(rows + places[k] * C);
    }
    UNROLL
    for (unsigned k = 0; k < TOGETHER; k++) {
        UNROLL
        for (int i = 0; i < WIDTH; i++) {
            sum[i] += widen(ahead[k].at[i]);
        }
    }
}

template <typename NUMBER, int WIDTH>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    add_words(float *dwte, const NUMBER *dout, const int32_t *tokens, struct embedding_shape s)
{
    __shared__ unsigned places[CHUNK];
    size_t rows = s.batch * s.positions;
    size_t C = s.hidden;
    int32_t token = tokens[blockIdx.x];
    size_t word = word_row(token, s);

    if (word >= s.vocab || stands_before(tokens, blockIdx.x, token)) {
        return;
    }
    for (size_t first = blockIdx.x; first < rows; first += CHUNK) {
        size_t count = rows - first < CHUNK ? rows - first : CHUNK;
        unsigned found = find_token(places, tokens + first, count, token);

        for (size_t c = (size_t)threadIdx.x * WIDTH; found > 0 && c < C;
             c += (size_t)THREADS * WIDTH) {
            float sum[WIDTH];
            unsigned k = 0;

            pack_read(sum, dwte + word * C + c);
            for (; k + TOGETHER <= found; k += TOGETHER) {
                add_rows(sum, dout + first * C + c, places + k, C);
            }
            for (; k < found; k++) {
                add_pack(sum, dout + (first + places[k]) * C + c);
            }
            pack_write(dwte + word * C + c, sum);
        }
    }
}

template <typename NUMBER, int WIDTH>
__global__ void add_positions(float *dwpe, const NUMBER *dout, struct embedding_shape s)
{
    size_t elems = s.positions * s.hidden;

    FOR_EACH(i, elems / WIDTH)
    {
        float sum[WIDTH];

        pack_read(sum, dwpe + i * WIDTH);
        UNROLL_BY(4)
        for (size_t b = 0; b < s.batch; b++) {
            add_pack(sum, dout + b * elems + i * WIDTH);
        }
        pack_write(dwpe + i * WIDTH, sum);
    }
}

/* A thread goes down a column for a type: slow where there are many rows, but in the promised order, and
 * few models have types. */
template <typename NUMBER>
__global__ void add_types(float *dwtt, const NUMBER *dout, const int32_t *types,
                          struct embedding_shape s)
{
    size_t C = s.hidden;
    size_t c = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    float sum;

    if (c >= C) {
        return;
    }
    sum = dwtt[blockIdx.y * C + c];
    UNROLL_BY(8)
    for (size_t row = 0; row < s.batch * s.positions; row++) {
        float x = widen(dout[row * C + c]);

        sum = types[row] == (int32_t)blockIdx.y ? sum + x : sum;
    }
    dwtt[blockIdx.y * C + c] = sum;
}

template <typename NUMBER>
static enum status launch_look_up(float *out, const int32_t *tokens, const int32_t *types,
                                  const tables<NUMBER> &of, const struct embedding_shape &s,
                                  struct stream *stream)
{
    BY_WIDTH(in_packs(s.hidden, out, of.words, of.positions, of.types),
             LAUNCH((look_up<NUMBER, WIDTH>), PACK_GRID(s.batch * s.positions), PACK_BLOCK, stream,
                    out, tokens, types, of, s));
}

template <typename NUMBER>
static enum status launch_words(float *dwte, const NUMBER *dout, const int32_t *tokens,
                                const struct embedding_shape &s, struct stream *stream)
{
    BY_WIDTH(in_packs(s.hidden, dwte, dout),
             LAUNCH((add_words<NUMBER, WIDTH>), (unsigned)(s.batch * s.positions), THREADS, stream,
                    dwte, dout, tokens, s));
}

template <typename NUMBER>
static enum status launch_positions(float *dwpe, const NUMBER *dout,
                                    const struct embedding_shape &s, struct stream *stream)
{
    BY_WIDTH(in_packs(s.positions * s.hidden, dwpe, dout),
             LAUNCH((add_positions<NUMBER, WIDTH>),
                    grid_of(s.positions * s.hidden / WIDTH, THREADS, BLOCKS), THREADS, stream, dwpe,
                    dout, s));
}

template <typename NUMBER>
static enum status launch_types(float *dwtt, const NUMBER *dout, const int32_t *types,
                                const struct embedding_shape &s, struct stream *stream)
{
    LAUNCH(add_types<NUMBER>, dim3(grid_of(s.hidden, WARP_LANES, UINT32_MAX), (unsigned)s.types),
           WARP_LANES, stream, dwtt, dout, types, s);
}

template <typename NUMBER>
static enum status launch_backward(float *dwte, float *dwpe, float *dwtt, const NUMBER *dout,
                                   const int32_t *tokens, const int32_t *types,
                                   const struct embedding_shape &s, struct stream *stream)
{
    if (s.vocab > 0) {
        TRY(launch_words(dwte, dout, tokens, s, stream));
    }
    TRY(launch_positions(dwpe, dout, s, stream));
    if (types != NULL && s.types > 0) {
        TRY(launch_types(dwtt, dout, types, s, stream));
    }
    return STATUS_OK;
}

static bool is_empty(const struct embedding_shape *shape)
{
    return shape->batch == 0 || shape->positions == 0 || shape->hidden == 0;
}

enum status KERNEL(embedding_forward)(float *out, const int32_t *tokens, const int32_t *types,
                                      const void *wte, const void *wpe, const void *wtt,
                                      const struct embedding_shape *shape, enum dtype type,
                                      struct stream *stream)
{
    if (is_empty(shape)) {
        return STATUS_OK;
    }
    BY_TYPE(type, return launch_look_up(
                      out, tokens, types,
                      tables<NUMBER>{(const NUMBER *)wte, (const NUMBER *)wpe, (const NUMBER *)wtt},
                      *shape, stream));
}

enum status KERNEL(embedding_backward)(float *dwte, float *dwpe, float *dwtt, const void *dout,
                                       const int32_t *tokens, const int32_t *types,
                                       const struct embedding_shape *shape, enum dtype type,
                                       struct stream *stream)
{
    if (is_empty(shape)) {
        return STATUS_OK;
    }
    BY_TYPE(type, return launch_backward(dwte, dwpe, dwtt, (const NUMBER *)dout, tokens, types,
                                         *shape, stream));
}
