/* A program that was compiled with the first header (first_header) and runs with today's library. */
#include <stdio.h>
#include <string.h>

#include "tarantella/tarantella.h"

/* A struct of this header, and what follows it in the caller's memory. */
#define FOLLOWED(type, name, initial) \
  struct {                            \
    type own;                         \
    unsigned char after[64];          \
  } name;                             \
  memset(&name, 0x5a, sizeof(name));  \
  name.own = initial

static int failed = 0;

static void expect(int ok, const char* what) {
  if (!ok) printf("not so: %s (%s)\n", what, tnt_last_error());
  failed += !ok;
}
#define EXPECT(condition) expect((condition) != 0, #condition)

static int untouched(const unsigned char* after) {
  int i;
  for (i = 0; i < 64; ++i) {
    if (after[i] != 0x5a) return 0;
  }
  return 1;
}

static int hook(tnt_packed_bucket_t* bucket, void* user_data) {
  ++*(int*)user_data;
  return bucket->size >= sizeof(*bucket) && bucket->index == 0 && bucket->count == 6 && bucket->n_tensors == 2 ? 0 : 1;
}

int main(void) {
  const tnt_init_options_t first_init = TNT_INIT_OPTIONS_INITIALIZER;
  const tnt_reducer_options_t first_options = TNT_REDUCER_OPTIONS_INITIALIZER;
  const tnt_bucket_t first_bucket = TNT_BUCKET_INITIALIZER;
  const tnt_reducer_stats_t first_stats = TNT_REDUCER_STATS_INITIALIZER;
  const tnt_tensor_t tensors[2] = {{"a", 4, TNT_FLOAT32}, {"b", 2, TNT_FLOAT32}};
  float a[4] = {1, 2, 3, 4}, b[2] = {5, 6};
  int hooked = 0;
  tnt_comm_t world;
  tnt_reducer_t reducer;
  FOLLOWED(tnt_init_options_t, init, first_init);
  FOLLOWED(tnt_reducer_options_t, options, first_options);
  FOLLOWED(tnt_bucket_t, bucket, first_bucket);
  FOLLOWED(tnt_reducer_stats_t, stats, first_stats);

  EXPECT(tnt_init(&init.own) == TNT_SUCCESS);
  EXPECT(tnt_comm_world(&world) == TNT_SUCCESS);
  EXPECT(tnt_reducer_create(world, tensors, 2, &options.own, &reducer) == TNT_SUCCESS);
  EXPECT(tnt_reducer_set_hook(reducer, hook, &hooked) == TNT_SUCCESS);
  EXPECT(tnt_reducer_bucket(reducer, 0, &bucket.own) == TNT_SUCCESS);
  EXPECT(bucket.own.size == sizeof(tnt_bucket_t) && bucket.own.bytes == 24 && bucket.own.n_tensors == 2);
  EXPECT(untouched(bucket.after));
  EXPECT(tnt_reducer_ready(reducer, 1, b, b, 0.5, NULL) == TNT_SUCCESS);
  EXPECT(tnt_reducer_ready(reducer, 0, a, a, 0.5, NULL) == TNT_SUCCESS);
  EXPECT(tnt_reducer_finish(reducer, NULL) == TNT_SUCCESS);
  EXPECT(a[3] == 2.0f && b[1] == 3.0f && hooked == 1);
  EXPECT(tnt_reducer_stats(reducer, &stats.own) == TNT_SUCCESS);
  EXPECT(stats.own.size == sizeof(tnt_reducer_stats_t) && stats.own.steps == 1 && stats.own.bytes == 24);
  EXPECT(untouched(stats.after));
  EXPECT(tnt_reducer_destroy(reducer) == TNT_SUCCESS);
  EXPECT(tnt_finalize() == TNT_SUCCESS);
  return failed != 0;
}
