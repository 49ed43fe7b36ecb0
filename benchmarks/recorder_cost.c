/* What the flight recorder costs a small collective: all_reduce of one float, in turn on communicators that are recorded and on
 * some that are not, in the same processes. A record has room for some hundred communicators; later ones are not recorded.
 *
 *     tarantella -n 2 -- recorder_cost [ROUNDS] [CALLS]
 *
 * docs/reliability.md has the command to compile it. The controls compare two communicators of one kind: they show what the
 * machine and the place of the memory do by themselves. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tarantella/tarantella.h>

enum { COMMUNICATORS = 140 }; /* the record has room for 128, with their messages */

static tnt_comm_t comms[COMMUNICATORS];

static void check(tnt_status_t status) {
  if (status == TNT_SUCCESS) return;
  fprintf(stderr, "%s\n", tnt_last_error());
  exit(1);
}

static double ns_per_call(tnt_comm_t comm, int calls) {
  const float in = 1;
  float out = 0;
  for (int i = 0; i < 50; ++i) check(tnt_all_reduce(comm, &in, &out, 1, TNT_FLOAT32, TNT_SUM, NULL, NULL));
  const int64_t begin = tnt_clock_ns();
  for (int i = 0; i < calls; ++i) check(tnt_all_reduce(comm, &in, &out, 1, TNT_FLOAT32, TNT_SUM, NULL, NULL));
  return (double)(tnt_clock_ns() - begin) / calls;
}

static int by_value(const void* a, const void* b) {
  const double difference = *(const double*)a - *(const double*)b;
  return difference < 0 ? -1 : difference > 0;
}

static void print_median(const char* what, double* values, int n) {
  qsort(values, (size_t)n, sizeof *values, by_value);
  const int margin = (int)(0.98 * sqrt(n)); /* of the median's 95 % confidence interval */
  printf("%-32s %9.4f  [%.4f, %.4f]\n", what, values[n / 2], values[n / 2 - margin], values[n / 2 + margin]);
}

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 400;
  const int calls = argc > 2 ? atoi(argv[2]) : 2000;
  if (rounds < 10 || calls < 1) return fprintf(stderr, "ROUNDS >= 10 and CALLS >= 1, please\n"), 1;
  check(tnt_init(NULL));
  tnt_comm_t world = NULL;
  int rank = 0, size = 0;
  check(tnt_comm_world(&world));
  check(tnt_comm_rank(world, &rank));
  check(tnt_comm_size(world, &size));
  for (int i = 0; i < COMMUNICATORS; ++i) check(tnt_comm_split(world, 0, rank, &comms[i]));
  const tnt_comm_t order[] = {comms[0], comms[COMMUNICATORS - 2], comms[1], comms[COMMUNICATORS - 1]};
  double* values[5]; /* recorded and not in ns; ratios: recorded to not, and of two of a kind */
  for (int i = 0; i < 5; ++i) values[i] = malloc((size_t)rounds * sizeof(double));
  for (int round = -10; round < rounds; ++round) {
    double ns[4];
    for (int i = 0; i < 4; ++i) {
      const int which = round % 2 == 0 ? i : 3 - i;
      ns[which] = ns_per_call(order[which], calls);
    }
    if (round < 0) continue;
    values[0][round] = (ns[0] + ns[2]) / 2;
    values[1][round] = (ns[1] + ns[3]) / 2;
    values[2][round] = (ns[0] + ns[2]) / (ns[1] + ns[3]);
    values[3][round] = ns[0] / ns[2];
    values[4][round] = ns[1] / ns[3];
  }
  if (rank == 0) {
    static const char* const names[] = {"recorded, ns", "not recorded, ns", "recorded / not", "control, recorded",
                                        "control, not recorded"};
    printf("%d ranks, medians of %d rounds of %d calls, and 95 %% intervals\n", size, rounds, calls);
    for (int i = 0; i < 5; ++i) print_median(names[i], values[i], rounds);
  }
  for (int i = 0; i < 5; ++i) free(values[i]);
  check(tnt_finalize());
  return 0;
}
