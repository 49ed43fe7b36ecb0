/* How other libraries put work on the streams of tests/support/simulated_device.hpp: the fake NCCL library, which is loaded at
 * run time, finds this function in the program that holds the device (link it with ENABLE_EXPORTS, look up by RTLD_DEFAULT). */
#ifndef TARANTELLA_TESTS_SIMULATED_STREAM_H
#define TARANTELLA_TESTS_SIMULATED_STREAM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueues work on a stream of any simulated device of this process. When its turn comes, try_run(data) is called until it
 * returns 1: done; 0 is "not yet", for a collective that waits for other ranks: other streams go on meanwhile and it is asked
 * again, maybe from another thread, never by two at once. Then destroy(data), once, in any case: also of work that never ran.
 * try_run must not wait, nor call the device; it may touch the memory of all devices of the process. In a capture nothing runs:
 * each replay of the graph calls try_run until it returns 1, and destroy comes when the graph goes. The ranges that it reads
 * and writes are checked like those of any other work; both lists and `what` ("all_reduce of bucket 1", for reports) are
 * copied. */
__attribute__((visibility("default"))) void tnt_simulated_enqueue(void* stream, const void* const* reads,
                                                                  const size_t* read_bytes, size_t n_reads, void* const* writes,
                                                                  const size_t* write_bytes, size_t n_writes,
                                                                  int (*try_run)(void* data), void (*destroy)(void* data),
                                                                  void* data, const char* what);
typedef void (*tnt_simulated_enqueue_fn)(void* stream, const void* const* reads, const size_t* read_bytes, size_t n_reads,
                                         void* const* writes, const size_t* write_bytes, size_t n_writes,
                                         int (*try_run)(void* data), void (*destroy)(void* data), void* data, const char* what);

/* Memory of the simulated device that is the calling thread's current one (Device::with_current_device); null: there is none,
 * or the device refuses. release: the memory must not be in use. */
__attribute__((visibility("default"))) void* tnt_simulated_allocate(size_t bytes);
typedef void* (*tnt_simulated_allocate_fn)(size_t bytes);
__attribute__((visibility("default"))) void tnt_simulated_release(void* memory);
typedef void (*tnt_simulated_release_fn)(void* memory);

/* The calling thread's current simulated device, or null. */
__attribute__((visibility("default"))) void* tnt_simulated_current(void);
typedef void* (*tnt_simulated_current_fn)(void);

/* 1 while the stream is being captured into a graph. */
__attribute__((visibility("default"))) int tnt_simulated_capturing(void* stream);
typedef int (*tnt_simulated_capturing_fn)(void* stream);

#ifdef __cplusplus
}
#endif

#endif
