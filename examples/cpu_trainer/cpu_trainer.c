/* A network of three dense layers, trained data-parallel through Tarantella's C API, in C99 on CPUs. Each layer's gradients
 * are handed over as soon as backward has made them, and are summed over ranks while it makes those of the layer before.
 *
 *     ./cpu_trainer                          one rank
 *     tarantella -n 4 -- ./cpu_trainer       four ranks: the same losses, to rounding
 *
 * elastic.h shows how it goes on when ranks are lost or come.
 *
 * Results go to stdout, messages to stderr. */
#define _POSIX_C_SOURCE 200809L /* for umask */

#include "elastic.h"
#include "job.h"
#include "options.h"
#include "problem.h"

typedef struct {
  float* weights[TENSORS];
  float* gradients[TENSORS];
  float* outputs[LAYERS + 1]; /* of the layer before: outputs[0] are the features, outputs[LAYERS] the probabilities */
  float* deltas[LAYERS + 1];  /* derivatives of the loss by the layers' outputs, before their tanh */
  int* labels;
} network_t;

static void* allocate(size_t count, size_t bytes) {
  void* memory = calloc(count > 0 ? count : 1, bytes);
  if (memory == NULL) give_up("calloc", "out of memory");
  return memory;
}

static network_t make_network(uint64_t seed, size_t max_samples) {
  network_t net;
  int i;
  for (i = 0; i < TENSORS; ++i) {
    net.weights[i] = allocate(tensor_count(i), sizeof(float));
    net.gradients[i] = allocate(tensor_count(i), sizeof(float));
    if (job.rank == 0) make_weights(seed, i, net.weights[i]);
  }
  for (i = 0; i <= LAYERS; ++i) {
    net.outputs[i] = allocate(max_samples * (size_t)widths[i], sizeof(float));
    net.deltas[i] = allocate(max_samples * (size_t)widths[i], sizeof(float));
  }
  net.labels = allocate(max_samples, sizeof(int));
  return net;
}

static void free_network(network_t* net) {
  int i;
  for (i = 0; i < TENSORS; ++i) {
    free(net->weights[i]);
    free(net->gradients[i]);
  }
  for (i = 0; i <= LAYERS; ++i) {
    free(net->outputs[i]);
    free(net->deltas[i]);
  }
  free(net->labels);
}

/* out = tanh(in W + b); the last layer's is in W + b. */
static void forward_layer(network_t* net, int layer, int samples) {
  const int n_in = widths[layer];
  const int n_out = widths[layer + 1];
  int s, i, o;
  for (s = 0; s < samples; ++s) {
    const float* in = net->outputs[layer] + s * n_in;
    float* out = net->outputs[layer + 1] + s * n_out;
    for (o = 0; o < n_out; ++o) out[o] = net->weights[2 * layer + 1][o];
    for (i = 0; i < n_in; ++i) {
      const float* row = net->weights[2 * layer] + i * n_out;
      for (o = 0; o < n_out; ++o) out[o] += in[i] * row[o];
    }
    for (o = 0; layer + 1 < LAYERS && o < n_out; ++o) out[o] = tanhf(out[o]);
  }
}

/* Cross entropy of the softmax, summed over samples; its derivative becomes the last layer's delta. */
static double loss_and_delta(network_t* net, int samples) {
  double loss = 0.0;
  int s, c;
  for (s = 0; s < samples; ++s) {
    const float* logits = net->outputs[LAYERS] + s * CLASSES;
    float* delta = net->deltas[LAYERS] + s * CLASSES;
    float largest = logits[0];
    float sum = 0.0f;
    for (c = 1; c < CLASSES; ++c) largest = fmaxf(largest, logits[c]);
    for (c = 0; c < CLASSES; ++c) sum += delta[c] = expf(logits[c] - largest);
    for (c = 0; c < CLASSES; ++c) delta[c] = delta[c] / sum - (c == net->labels[s] ? 1.0f : 0.0f);
    loss += logf(sum) + largest - logits[net->labels[s]];
  }
  return loss;
}

/* The layer's gradients, summed over this rank's samples, and the delta of the layer before. */
static void backward_layer(network_t* net, int layer, int samples) {
  const int n_in = widths[layer];
  const int n_out = widths[layer + 1];
  float* by_weights = net->gradients[2 * layer];
  float* by_biases = net->gradients[2 * layer + 1];
  int s, i, o;
  for (i = 0; i < n_in * n_out; ++i) by_weights[i] = 0.0f;
  for (o = 0; o < n_out; ++o) by_biases[o] = 0.0f;
  for (s = 0; s < samples; ++s) {
    const float* in = net->outputs[layer] + s * n_in;
    const float* delta = net->deltas[layer + 1] + s * n_out;
    float* delta_before = net->deltas[layer] + s * n_in;
    for (o = 0; o < n_out; ++o) by_biases[o] += delta[o];
    for (i = 0; i < n_in; ++i) {
      const float* row = net->weights[2 * layer] + i * n_out;
      float sum = 0.0f;
      for (o = 0; o < n_out; ++o) by_weights[i * n_out + o] += in[i] * delta[o];
      for (o = 0; o < n_out; ++o) sum += delta[o] * row[o];
      delta_before[i] = sum * (1.0f - in[i] * in[i]); /* the derivative of tanh; unused before the first layer */
    }
  }
}

/* One step on a batch of so many samples, of which this rank has the given ones. After an error no weight has changed. */
static tnt_status_t train_step(network_t* net, tnt_reducer_t reducer, int samples, long batch, double* loss) {
  /* the mean over the whole batch, whatever each rank's share of it is; a rank without samples adds nothing */
  const double scale = samples > 0 ? 1.0 / (double)batch : 0.0;
  tnt_status_t status;
  int layer, i;
  size_t k;
  for (layer = 0; layer < LAYERS; ++layer) forward_layer(net, layer, samples);
  *loss = loss_and_delta(net, samples);
  for (layer = LAYERS - 1; layer >= 0; --layer) {
    backward_layer(net, layer, samples);
    for (i = 2 * layer + 1; i >= 2 * layer; --i) {
      status = TRY(tnt_reducer_ready(reducer, (size_t)i, net->gradients[i], net->gradients[i], scale, NULL));
      if (status != TNT_SUCCESS) return status;
    }
  }
  status = TRY(tnt_reducer_finish(reducer, NULL));
  if (status != TNT_SUCCESS) return status; /* else the gradients are those of the whole batch from here on */
  for (i = 0; i < TENSORS; ++i) {
    for (k = 0; k < tensor_count(i); ++k) net->weights[i][k] -= LEARNING_RATE * net->gradients[i][k];
  }
  return TNT_SUCCESS;
}

/* This rank's part of an epoch so far. */
typedef struct {
  double loss;
  double samples;
} sums_t;

static tnt_status_t batch_of_epoch(network_t* net, tnt_reducer_t reducer, const options_t* options, long epoch, long first,
                                   sums_t* sums) {
  const long batch = first + options->batch < SAMPLES ? options->batch : SAMPLES - first; /* the last may be short */
  const uint64_t seed = (uint64_t)options->seed;
  int order[SAMPLES];
  double loss;
  int mine;
  tnt_status_t status;
  shuffle(seed, epoch, order);
  mine = make_share(seed, order, first, batch, job.rank, job.ranks, net->outputs[0], net->labels);
  status = train_step(net, reducer, mine, batch, &loss);
  if (status != TNT_SUCCESS) return status;
  sums->loss += loss;
  sums->samples += mine;
  return TNT_SUCCESS;
}

static tnt_status_t end_of_epoch(long epoch, const sums_t* sums) {
  double both[2]; /* samples of ranks that were lost are missing in both */
  tnt_status_t status;
  both[0] = sums->loss;
  both[1] = sums->samples;
  status = TRY(tnt_all_reduce(job.comm, both, both, 2, TNT_FLOAT64, TNT_SUM, NULL, NULL));
  if (status == TNT_SUCCESS && job.rank == 0) report_epoch(epoch, both[0] * (SAMPLES / both[1]));
  return status;
}

/* What the ranks of now begin with: the state of the one that has done most, and buckets. */
static tnt_reducer_t begin(network_t* net, int64_t* done, const char* context) {
  const tnt_reducer_options_t defaults = TNT_REDUCER_OPTIONS_INITIALIZER;
  *done = take_state_of_the_furthest(*done, net->weights);
  return make_reducer(defaults, context);
}

/* Ranks communicate in each batch and at the end of each epoch. `done` counts both, and no rank is more than one ahead. */
static void train(network_t* net, const options_t* options, const char* context, const tnt_unique_id_t* id) {
  const long batches = (SAMPLES + options->batch - 1) / options->batch;
  const int64_t in_epoch = batches + 1;
  sums_t sums = {0.0, 0.0};
  int64_t done = elastic.newcomer > 0 ? -1 : 0;
  tnt_reducer_t reducer = begin(net, &done, context);
  while (done < options->epochs * in_epoch) {
    const long epoch = (long)(done / in_epoch);
    const long batch = (long)(done % in_epoch);
    tnt_status_t status = TNT_SUCCESS;
    if (batch == 0) sums.loss = sums.samples = 0.0;
    if (batch == 0 && epoch + 1 == elastic.grow_at) {
      CHECK(tnt_reducer_destroy(reducer));
      reducer = NULL;
      status = grow(id);
      if (status == TNT_SUCCESS) reducer = begin(net, &done, context);
    }
    if (status == TNT_SUCCESS) {
      status = batch < batches ? batch_of_epoch(net, reducer, options, epoch, batch * options->batch, &sums)
                               : end_of_epoch(epoch, &sums);
    }
    if (status == TNT_SUCCESS) {
      ++done;
    } else {
      const char* const error = tnt_last_error();
      CHECK(tnt_reducer_destroy(reducer));
      shrink(error);
      reducer = begin(net, &done, context);
    }
  }
  CHECK(tnt_reducer_destroy(reducer));
}

int main(int argc, char** argv) {
  const options_t options = read_options(argc, argv, take_elastic_option, elastic_usage);
  tnt_unique_id_t id = {{0}};
  char context[128];
  network_t net;

  check_elastic_options();
  join_job();
  begin_elastic(&id);
  describe_options(&options, context, sizeof context);
  net = make_network((uint64_t)options.seed, (size_t)largest_share(options.batch, 1));
  train(&net, &options, context, &id);
  check_same_on_all_ranks(hash_of_weights(net.weights));
  if (job.rank == 0) report_weights(net.weights);

  free_network(&net);
  CHECK(tnt_finalize());
  return 0;
}
