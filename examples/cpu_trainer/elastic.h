/* A training that goes on without ranks that were lost, and with newcomers: what it is told, and how its ranks change. */
#ifndef ELASTIC_H
#define ELASTIC_H

#include <sys/stat.h>

#include "job.h"
#include "options.h"

typedef struct {
  long min_ranks;
  long grow_to;
  long grow_at;
  long newcomer;
  const char* id;
} elastic_t;

static elastic_t elastic = {0, 0, 0, 0, NULL};

static const char elastic_usage[] =
    "  --min-ranks N  go on when ranks are lost, as long as N are left (default: end)\n"
    "  --grow-to N    be N ranks, by newcomers,\n"
    "  --grow-at N    from this epoch on\n"
    "  --id FILE      rank 0 writes here what newcomers need to know\n"
    "  --newcomer R   this process is rank R of --grow-to N, and reads FILE, which has to be there\n";

static int take_elastic_option(const char* option, const char* value) {
  if (strcmp(option, "--min-ranks") == 0) {
    elastic.min_ranks = number(option, value, 1, 1000000);
  } else if (strcmp(option, "--grow-to") == 0) {
    elastic.grow_to = number(option, value, 2, 1000000);
  } else if (strcmp(option, "--grow-at") == 0) {
    elastic.grow_at = number(option, value, 1, 1000000);
  } else if (strcmp(option, "--newcomer") == 0) {
    elastic.newcomer = number(option, value, 1, 1000000);
  } else if (strcmp(option, "--id") == 0) {
    elastic.id = value;
  } else {
    return 0;
  }
  return 1;
}

static void check_elastic_options(void) {
  const int grows = elastic.newcomer > 0 || elastic.grow_at > 0;
  if (grows == (elastic.grow_to > 0) && grows == (elastic.id != NULL)) return;
  fprintf(stderr, "--grow-to N --id FILE belong together, with --grow-at or --newcomer\n");
  exit(2);
}

/* An error ends the training, if it shall not go on without a rank. */
static tnt_status_t tried(tnt_status_t status, const char* call) {
  if (elastic.min_ranks == 0) check(status, call);
  return status;
}
#define TRY(call) tried(call, #call)

/* The id is a secret: nobody else reads the file, which has all of it as soon as it exists. */
static tnt_unique_id_t make_id_file(void) {
  char beside[4096];
  tnt_unique_id_t id;
  FILE* file;
  CHECK(tnt_unique_id(NULL, &id)); /* all ranks are on this host; else tcp://HOST:PORT of rank 0 */
  snprintf(beside, sizeof beside, "%s.new", elastic.id);
  umask(077);
  file = fopen(beside, "w");
  if (file == NULL || fprintf(file, "%s\n", id.text) < 0 || fclose(file) != 0 || rename(beside, elastic.id) != 0) {
    give_up("--id", "the file cannot be written");
  }
  return id;
}

static tnt_unique_id_t read_id_file(void) {
  tnt_unique_id_t id = {{0}};
  FILE* file = fopen(elastic.id, "r");
  if (file == NULL || fgets(id.text, sizeof id.text, file) == NULL) give_up("--id", "the file cannot be read");
  id.text[strcspn(id.text, "\n")] = '\0';
  fclose(file);
  return id;
}

/* Other ranks from now on. Reducers of those before have been destroyed. */
static void take_comm(tnt_comm_t comm) {
  tnt_comm_t world;
  CHECK(tnt_comm_world(&world));
  if (job.comm != world) CHECK(tnt_comm_destroy(job.comm));
  use_comm(comm);
}

/* An error is to be returned, and to end no more than the communicator. */
static void keep_errors(void) {
  if (elastic.min_ranks > 0) CHECK(tnt_comm_set_error_mode(job.comm, TNT_ERRORS_RETURN));
}

/* id: what the ranks pass to `grow`. All have it, so that any of them may be lost. */
static void begin_elastic(tnt_unique_id_t* id) {
  tnt_comm_t comm;
  if (elastic.newcomer > 0) {
    *id = read_id_file();
    CHECK(tnt_comm_grow(NULL, id, (int)elastic.grow_to, (int)elastic.newcomer, &comm)); /* waits for the others */
    take_comm(comm);
    elastic.grow_at = 0;
  } else {
    if (elastic.id != NULL && job.rank == 0) *id = make_id_file();
    if (elastic.id != NULL) CHECK(tnt_broadcast(job.comm, id, id, sizeof *id, TNT_UINT8, 0, NULL, NULL));
    if (elastic.min_ranks == 0) return;
    CHECK(tnt_comm_split(job.comm, 0, 0, &comm));
    take_comm(comm);
  }
  keep_errors();
}

/* With newcomers, for whom this waits. */
static tnt_status_t grow(const tnt_unique_id_t* id) {
  tnt_comm_t larger;
  const tnt_status_t status = TRY(tnt_comm_grow(job.comm, id, (int)elastic.grow_to, -1, &larger));
  if (status != TNT_SUCCESS) return status;
  take_comm(larger);
  keep_errors();
  elastic.grow_at = 0;
  if (job.rank == 0) fprintf(stderr, "%d ranks from now on\n", job.ranks);
  return status;
}

/* After an error: those that are alive. */
static void shrink(const char* error) {
  tnt_comm_t smaller;
  fprintf(stderr, "rank %d: %s\n", job.rank, error);
  CHECK(tnt_comm_shrink(job.comm, &smaller));
  take_comm(smaller);
  if (job.ranks < elastic.min_ranks) give_up("--min-ranks", "too few ranks are left");
  if (job.rank == 0) fprintf(stderr, "%d ranks go on\n", job.ranks);
}

/* All ranks take the weights of the first one that has done most; a newcomer has done -1. Returns how much that is. */
static int64_t take_state_of_the_furthest(int64_t done, float* const weights[TENSORS]) {
  int64_t furthest = (done + 1) * job.ranks - job.rank - 1;
  int root, i;
  CHECK(tnt_all_reduce(job.comm, &furthest, &furthest, 1, TNT_INT64, TNT_MAX, NULL, NULL));
  root = job.ranks - 1 - (int)(furthest % job.ranks);
  for (i = 0; i < TENSORS; ++i) {
    CHECK(tnt_broadcast(job.comm, weights[i], weights[i], tensor_count(i), TNT_FLOAT32, root, NULL, NULL));
  }
  return furthest / job.ranks;
}

#endif
