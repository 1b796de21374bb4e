/* The emulated instructions of tensor cores against the fragment layouts of the PTX ISA, section "Warp-level
 * matrix instructions", written down here lane by lane as the tables there have them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tensor/dtype.h"
#include "tests/emulated/cuda_on_host_seed.h"
#include "tests/emulated/hosted_mma.h"

#define LANES 32
#define SEEDS 4

/* mma.m16n8k16, .f16 and .bf16, element i of a lane's fragment. A: row = groupID for i of 0, 1, 4, 5, else
 * groupID + 8; col = threadID_in_group * 2 + (i & 1), + 8 for i >= 4. */
static int a_row(int lane, int i)
{
    return (i == 0 || i == 1 || i == 4 || i == 5) ? (lane >> 2) : (lane >> 2) + 8;
}

static int a_column(int lane, int i)
{
    return i < 4 ? (lane & 3) * 2 + (i & 1) : (lane & 3) * 2 + (i & 1) + 8;
}

/* B: row = threadID_in_group * 2 + (i & 1), + 8 for i >= 2; col = groupID. */
static int b_row(int lane, int i)
{
    return i < 2 ? (lane & 3) * 2 + (i & 1) : (lane & 3) * 2 + (i & 1) + 8;
}

/* C and D: row = groupID for i < 2, else groupID + 8; col = threadID_in_group * 2 + (i & 1). */
static int c_row(int lane, int i)
{
    return i < 2 ? (lane >> 2) : (lane >> 2) + 8;
}

static int c_column(int lane, int i)
{
    return (lane & 3) * 2 + (i & 1);
}

static uint16_t half_of(float number, enum dtype type)
{
    return type == DTYPE_BF16 ? dtype_to_bf16(number) : dtype_to_fp16(number);
}

/* Small whole numbers and quarters, whose products add without rounding. */
static float small(int row, int column, int salt)
{
    return (float)((row * 31 + column * 17 + salt) % 13 - 6) * 0.25F;
}

static void check_product(enum dtype type)
{
    uint32_t a[LANES * 4] = {0};
    uint32_t b[LANES * 2] = {0};
    float c[LANES * 4];

    for (int lane = 0; lane < LANES; lane++) {
        for (int i = 0; i < 8; i++) {
            a[lane * 4 + i / 2] |=
                (uint32_t)half_of(small(a_row(lane, i), a_column(lane, i), 1), type)
                << (i % 2 * 16);
        }
        for (int i = 0; i < 4; i++) {
            b[lane * 2 + i / 2] |= (uint32_t)half_of(small(b_row(lane, i), lane >> 2, 5), type)
                                   << (i % 2 * 16);
            c[lane * 4 + i] = small(c_row(lane, i), c_column(lane, i), 9);
        }
    }
    hosted_multiply_add(c, a, b, type);
    for (int lane = 0; lane < LANES; lane++) {
        for (int i = 0; i < 4; i++) {
            const int row = c_row(lane, i);
            const int column = c_column(lane, i);
            float want = small(row, column, 9);

            for (int k = 0; k < 16; k++) {
                want += small(row, k, 1) * small(k, column, 5);
            }
            assert_true(c[lane * 4 + i] == want);
        }
    }
}

static void a_product_is_that_of_the_fragments(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cuda_on_host_seed(seed);
        check_product(DTYPE_BF16);
        check_product(DTYPE_FP16);
    }
}

/* ldmatrix .x4: addresses of lanes 0-7 are the rows of matrix 0, of 8-15 those of matrix 1, and so on; a lane
 * gets of each matrix the two elements from row lane / 4, columns 2 (lane % 4) on; with .trans the matrix is
 * loaded in column-major order. */
static void matrices_are_loaded_by_the_tables(void **state)
{
    uint16_t in[LANES * 8];
    uint32_t out[LANES * 4];

    (void)state;
    for (int i = 0; i < LANES * 8; i++) {
        in[i] = (uint16_t)(1000 + i);
    }
    for (int transposed = 0; transposed < 2; transposed++) {
        memset(out, 0, sizeof(out));
        hosted_load_matrices(out, in, transposed);
        for (int i = 0; i < LANES * 4; i++) {
            const int lane = i / 4;
            const int first = 1000 + i % 4 * 64; /* of the matrix */
            const int row = lane / 4;
            const int column = lane % 4 * 2;
            const int lower = transposed ? first + column * 8 + row : first + row * 8 + column;
            const int upper =
                transposed ? first + (column + 1) * 8 + row : first + row * 8 + column + 1;

            assert_int_equal(out[i] & 0xFFFFU, lower);
            assert_int_equal(out[i] >> 16, upper);
        }
    }
}

static void ends_itself(unsigned threads)
{
    int code = 0;
    pid_t child = fork();

    if (child == 0) {
        (void)close(STDERR_FILENO);
        (void)alarm(20);
        hosted_mixed_instructions(threads);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFSIGNALED(code));
    assert_int_equal(WTERMSIG(code), SIGABRT);
}

static void a_warp_that_is_not_whole_ends_the_program(void **state)
{
    (void)state;
    ends_itself(32);
    ends_itself(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product_is_that_of_the_fragments),
        cmocka_unit_test(matrices_are_loaded_by_the_tables),
        cmocka_unit_test(a_warp_that_is_not_whole_ends_the_program),
    };

    return cmocka_run_group_tests_name("mma", tests, NULL, NULL);
}
