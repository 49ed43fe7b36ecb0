/* A rank of the fault matrix (matrix.py): a few steps of a training without a framework. At one moment, in the phase that the
 * environment names, it is faulty by itself, or stays there until somebody has sent it a signal.
 *
 *   FAULT_FOLDER  where the ranks and matrix.py leave notes for each other
 *   FAULT_PHASE   starting, joining, first, bucket, between, finalizing
 *   FAULT_KIND    raise, leave, fork; signal: comes from outside; none
 *   FAULT_RANK    the faulty rank, "all", or "launcher"
 *   FAULT_LATE    the rank that keeps the others waiting inside of a call
 *   FAULT_NODES, FAULT_RENDEZVOUS   for ranks on two simulated nodes, and by TCP
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tarantella/tarantella.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 4, TENSORS = 4, ELEMENTS = 3000, FAULTY_STEP = 2, MOMENT_MS = 50, SOON_MS = 30000 };

static int rank, size;
static tnt_comm_t world;
static const char *folder, *phase, *kind, *faulty, *late;

static const char* environment(const char* name, const char* otherwise) {
  const char* value = getenv(name);
  return value != NULL ? value : otherwise;
}

static int number(const char* a, const char* b) { return atoi(environment(a, environment(b, "0"))); }

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void pause_ms(int ms) {
  struct timespec time = {ms / 1000, (long)(ms % 1000) * 1000000};
  nanosleep(&time, NULL);
}

/* A note is complete once it has its name. */
static void note(const char* what, int who, const char* text) {
  char place[512], beside[520];
  int file;
  if (who < 0) {
    snprintf(place, sizeof place, "%s/%s", folder, what);
  } else {
    snprintf(place, sizeof place, "%s/%s-%d", folder, what, who);
  }
  snprintf(beside, sizeof beside, "%s.part", place);
  file = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0 || write(file, text, strlen(text)) != (ssize_t)strlen(text) || close(file) != 0 || rename(beside, place) != 0) {
    perror(place);
    _exit(99);
  }
}

static int noted(const char* what, int who) {
  char place[512];
  if (who < 0) {
    snprintf(place, sizeof place, "%s/%s", folder, what);
  } else {
    snprintf(place, sizeof place, "%s/%s-%d", folder, what, who);
  }
  return access(place, F_OK) == 0;
}

static void await_note(const char* what, int who) {
  int waited;
  for (waited = 0; !noted(what, who); waited += 2) {
    if (waited > SOON_MS) {
      fprintf(stderr, "rank %d: %s of %d did not come\n", rank, what, who);
      _exit(98);
    }
    pause_ms(2);
  }
}

static void check(tnt_status_t status, const char* call) {
  char text[4096];
  if (status == TNT_SUCCESS) return;
  snprintf(text, sizeof text, "%.6f\t%s\t%s", now(), call, tnt_last_error());
  note("error", rank, text);
  fprintf(stderr, "rank %d: %s: %s\n", rank, call, tnt_last_error());
  exit(1);
}
#define CHECK(call) check(call, #call)

static int is(const char* a, const char* b) { return strcmp(a, b) == 0; }
static int is_faulty(void) { return is(faulty, "all") || (faulty[0] >= '0' && faulty[0] <= '9' && atoi(faulty) == rank); }

static void say_when(void) {
  char text[64];
  snprintf(text, sizeof text, "%.6f", now());
  note("fault", rank, text);
}

/* A child with the parent's memory: its calls are refused, and its end by exit() harms nobody. */
static void fork_a_child(int joined) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    if (joined && tnt_barrier(world, NULL, NULL) == TNT_SUCCESS) _exit(97);
    exit(0);
  }
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
    char text[128];
    snprintf(text, sizeof text, "%.6f\tfork\tthe child ended with status %d", now(), status);
    note("error", rank, text);
    exit(1);
  }
}

/* The moment of the fault. inside: the ranks are about to enter a call, in which they wait for the late one. */
static void at(const char* here, int joined, int inside) {
  char pid[32];
  int other;
  if (!is(phase, here) || is(kind, "none")) return;
  snprintf(pid, sizeof pid, "%d", (int)getpid());
  note("at", rank, pid);
  if (is(kind, "signal")) {
    const int waits = inside || is(faulty, "launcher") ? atoi(late) == rank : is_faulty();
    if (waits) await_note("go", -1);
    return;
  }
  if (!is_faulty()) return;
  for (other = 0; other < size; ++other) await_note("at", other);
  pause_ms(MOMENT_MS);
  say_when();
  if (is(kind, "fork")) {
    fork_a_child(joined);
  } else if (is(kind, "raise")) {
    if (joined) tnt_comm_abort(world, "what went wrong");
    fprintf(stderr, "rank %d: what went wrong\n", rank);
    exit(1);
  } else if (is(kind, "leave")) {
    if (joined) CHECK(tnt_finalize());
    exit(0);
  }
}

static void train(float* weights) {
  static float gradients[TENSORS][ELEMENTS];
  static const char* const names[TENSORS] = {"a", "b", "c", "d"};
  tnt_tensor_t tensors[TENSORS];
  tnt_reducer_options_t options = TNT_REDUCER_OPTIONS_INITIALIZER;
  tnt_reducer_t reducer = NULL;
  int step, t, i;
  for (t = 0; t < TENSORS; ++t) {
    tensors[t].name = names[t];
    tensors[t].count = ELEMENTS;
    tensors[t].dtype = TNT_FLOAT32;
  }
  options.fusion_threshold = 2 * ELEMENTS * sizeof(float); /* two buckets */
  CHECK(tnt_reducer_create(world, tensors, TENSORS, &options, &reducer));
  for (step = 0; step < STEPS; ++step) {
    for (t = TENSORS - 1; t >= 0; --t) {
      for (i = 0; i < ELEMENTS; ++i) gradients[t][i] = (float)(1.0 / (1 + i + 7 * t + 31 * rank + 101 * step));
      CHECK(tnt_reducer_ready(reducer, (size_t)t, gradients[t], gradients[t], 1.0 / size, NULL));
      if (step == FAULTY_STEP && t == TENSORS - 1) at("bucket", 1, 0);
    }
    CHECK(tnt_reducer_finish(reducer, NULL));
    for (t = 0; t < TENSORS; ++t) {
      for (i = 0; i < ELEMENTS; ++i) weights[t * ELEMENTS + i] -= 0.1f * gradients[t][i];
    }
    if (step == FAULTY_STEP) at("between", 1, 0);
  }
  CHECK(tnt_reducer_destroy(reducer));
}

int main(void) {
  static float weights[TENSORS * ELEMENTS];
  uint64_t hash = 1469598103934665603u;
  char text[64];
  float one = 1.0f;
  size_t i;
  folder = environment("FAULT_FOLDER", ".");
  kind = atoi(environment("TNT_RESTART", "0")) > 0 ? "none" : environment("FAULT_KIND", "none");
  phase = environment("FAULT_PHASE", "");
  faulty = environment("FAULT_RANK", "");
  late = environment("FAULT_LATE", "-1");
  rank = number("TNT_RANK", "OMPI_COMM_WORLD_RANK");
  size = number("TNT_SIZE", "OMPI_COMM_WORLD_SIZE");
  if (getenv("FAULT_NODES") != NULL) setenv("TNT_INTERNAL_NODE", rank < 2 ? "a" : "b", 1);
  if (getenv("FAULT_RENDEZVOUS") != NULL) setenv("TNT_RENDEZVOUS", getenv("FAULT_RENDEZVOUS"), 1);

  at("starting", 0, 0);
  at("joining", 0, 1);
  CHECK(tnt_init(NULL));
  CHECK(tnt_comm_world(&world));
  at("first", 1, 1);
  CHECK(tnt_all_reduce(world, &one, &one, 1, TNT_FLOAT32, TNT_SUM, NULL, NULL));
  train(weights);
  for (i = 0; i < sizeof weights; ++i) hash = (hash ^ ((const unsigned char*)weights)[i]) * 1099511628211u;
  snprintf(text, sizeof text, "%016llx sum %g", (unsigned long long)hash, one);
  if (rank == 0) note("result", -1, text);
  CHECK(tnt_barrier(world, NULL, NULL));
  at("finalizing", 1, 0);
  CHECK(tnt_finalize());
  return 0;
}
