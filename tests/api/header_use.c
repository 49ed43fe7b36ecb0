/* Every function of the header, named and linked: compiled as C99, and once more as C++.
 * header_test.cpp sees to it that none is forgotten here. */
#include <stdio.h>

#include "tarantella/tarantella.h"

typedef void (*function_t)(void);

static const function_t functions[] = {(function_t)tnt_version,
                                       (function_t)tnt_version_number,
                                       (function_t)tnt_status_name,
                                       (function_t)tnt_setting,
                                       (function_t)tnt_dtype_size,
                                       (function_t)tnt_last_error,
                                       (function_t)tnt_init,
                                       (function_t)tnt_finalize,
                                       (function_t)tnt_tuning_file,
                                       (function_t)tnt_set_log_callback,
                                       (function_t)tnt_clock_ns,
                                       (function_t)tnt_trace_span,
                                       (function_t)tnt_timeline_start,
                                       (function_t)tnt_timeline_stop,
                                       (function_t)tnt_progress,
                                       (function_t)tnt_device_count,
                                       (function_t)tnt_device_check,
                                       (function_t)tnt_comm_world,
                                       (function_t)tnt_comm_split,
                                       (function_t)tnt_comm_create_group,
                                       (function_t)tnt_comm_rank,
                                       (function_t)tnt_comm_size,
                                       (function_t)tnt_comm_local_rank,
                                       (function_t)tnt_comm_local_size,
                                       (function_t)tnt_comm_transport,
                                       (function_t)tnt_comm_abort,
                                       (function_t)tnt_comm_connect_device,
                                       (function_t)tnt_comm_set_timeout,
                                       (function_t)tnt_comm_set_error_mode,
                                       (function_t)tnt_comm_shrink,
                                       (function_t)tnt_unique_id,
                                       (function_t)tnt_comm_grow,
                                       (function_t)tnt_comm_check,
                                       (function_t)tnt_comm_destroy,
                                       (function_t)tnt_all_reduce,
                                       (function_t)tnt_all_reduce_scaled,
                                       (function_t)tnt_reduce_scatter,
                                       (function_t)tnt_all_gather,
                                       (function_t)tnt_broadcast,
                                       (function_t)tnt_all_to_all,
                                       (function_t)tnt_reduce,
                                       (function_t)tnt_gather,
                                       (function_t)tnt_scatter,
                                       (function_t)tnt_all_gather_v,
                                       (function_t)tnt_reduce_scatter_v,
                                       (function_t)tnt_all_to_all_v,
                                       (function_t)tnt_barrier,
                                       (function_t)tnt_send,
                                       (function_t)tnt_recv,
                                       (function_t)tnt_group_start,
                                       (function_t)tnt_group_end,
                                       (function_t)tnt_work_wait,
                                       (function_t)tnt_work_wait_any,
                                       (function_t)tnt_work_test,
                                       (function_t)tnt_work_destroy,
                                       (function_t)tnt_add_scaled,
                                       (function_t)tnt_reducer_create,
                                       (function_t)tnt_reducer_bucket_count,
                                       (function_t)tnt_reducer_bucket,
                                       (function_t)tnt_reducer_fusion_threshold,
                                       (function_t)tnt_reducer_set_hook,
                                       (function_t)tnt_reducer_ready,
                                       (function_t)tnt_reducer_ready_many,
                                       (function_t)tnt_reducer_wait_bucket,
                                       (function_t)tnt_reducer_finish,
                                       (function_t)tnt_reducer_check,
                                       (function_t)tnt_reducer_gradient_buffer,
                                       (function_t)tnt_reducer_statistics,
                                       (function_t)tnt_reducer_tensor_steps,
                                       (function_t)tnt_reducer_stats,
                                       (function_t)tnt_reducer_destroy};

int main(void) {
  tnt_init_options_t init = TNT_INIT_OPTIONS_INITIALIZER;
  tnt_reducer_options_t reducer = TNT_REDUCER_OPTIONS_INITIALIZER;
  tnt_reducer_stats_t stats = TNT_REDUCER_STATS_INITIALIZER;
  tnt_bucket_t bucket = TNT_BUCKET_INITIALIZER;
  size_t i;
  for (i = 0; i < sizeof(functions) / sizeof(functions[0]); ++i) {
    if (functions[i] == NULL) return 1;
  }
  if (init.size == 0 || init.ranks != 1 || reducer.fusion_threshold != TNT_FUSION_DEFAULT ||
      reducer.wire_dtype != TNT_WIRE_DEFAULT || stats.steps != 0 || bucket.size != sizeof(bucket))
    return 1;
  if (tnt_init(&init) != TNT_SUCCESS || tnt_finalize() != TNT_SUCCESS) return 1;
  return printf("Tarantella %s\n", tnt_version()) > 0 ? 0 : 1;
}
