// The training of ../cpu_trainer in plain CUDA. Every rank has a GPU. Each layer's gradients are marked ready in the order of a
// stream and summed over ranks while backward goes on. The host waits once in an epoch, for the loss.
//
// ./cuda_trainer                         one rank
//     tarantella -n 4 -- ./cuda_trainer      four ranks with a GPU each: the same losses, to rounding
//
// Results go to stdout, messages to stderr.
#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "job.h"
#include "kernels.cuh"
#include "options.h"
#include "problem.h"

namespace {

void check_cuda(cudaError_t error, const char* call) {
  if (error != cudaSuccess) give_up(call, cudaGetErrorString(error));
}
#define CUDA(call) check_cuda(call, #call)

// One thread for each result. Launches nothing for a rank without samples.
template <typename... Parameters, typename... Arguments>
void launch(int threads, cudaStream_t stream, void (*kernel)(Parameters...), Arguments... arguments) {
  constexpr int block = 128;
  if (threads == 0) return;
  kernel<<<(threads + block - 1) / block, block, 0, stream>>>(arguments...);
  CUDA(cudaGetLastError());
}

// Device memory for count elements.
template <typename T>
class Array {
 public:
  explicit Array(size_t count) { CUDA(cudaMalloc(&data_, sizeof(T) * (count > 0 ? count : 1))); }
  Array(Array&& other) noexcept : data_(other.data_) { other.data_ = nullptr; }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  Array& operator=(Array&&) = delete;
  ~Array() { cudaFree(data_); }
  T* get() const { return data_; }

 private:
  T* data_ = nullptr;
};

struct Network {
  std::vector<Array<float>> weights;    // of each tensor
  std::vector<Array<float>> gradients;  // summed over samples
  std::vector<Array<float>> outputs;    // of layers 0, 1, ...; the last one has the logits
  std::vector<Array<float>> deltas;     // derivatives of the loss with respect to the layers' outputs, before tanh
};

// This rank's samples of an epoch, step by step.
struct Samples {
  std::vector<float> features;
  std::vector<int> labels;
  std::vector<int> shares;  // of each step
};

Samples make_samples(const options_t& options, long epoch) {
  std::vector<int> order(SAMPLES);
  shuffle(static_cast<uint64_t>(options.seed), epoch, order.data());
  Samples samples;
  samples.features.resize(SAMPLES * FEATURES);
  samples.labels.resize(SAMPLES);
  size_t made = 0;
  for (long first = 0; first < SAMPLES; first += options.batch) {
    const long size = std::min(options.batch, SAMPLES - first);
    const int share = make_share(static_cast<uint64_t>(options.seed), order.data(), first, size, job.rank, job.ranks,
                                 samples.features.data() + made * FEATURES, samples.labels.data() + made);
    samples.shares.push_back(share);
    made += static_cast<size_t>(share);
  }
  return samples;
}

// All ranks take the weights of rank 0.
Network make_network(const options_t& options, cudaStream_t stream) {
  Network net;
  for (int i = 0; i < TENSORS; ++i) {
    const size_t count = tensor_count(i);
    std::vector<float> initial(count);
    if (job.rank == 0) make_weights(static_cast<uint64_t>(options.seed), i, initial.data());
    net.gradients.emplace_back(count);
    float* weights = net.weights.emplace_back(count).get();
    CUDA(cudaMemcpyAsync(weights, initial.data(), count * sizeof(float), cudaMemcpyHostToDevice, stream));
    CHECK(tnt_broadcast(job.comm, weights, weights, count, TNT_FLOAT32, 0, stream, nullptr));
    CUDA(cudaStreamSynchronize(stream));  // initial goes out of scope
  }
  const auto share = static_cast<size_t>(largest_share(options.batch, job.ranks));
  for (int layer = 0; layer < LAYERS; ++layer) {
    net.outputs.emplace_back(share * static_cast<size_t>(widths[layer + 1]));
    net.deltas.emplace_back(share * static_cast<size_t>(widths[layer + 1]));
  }
  return net;
}

class Trainer {
 public:
  Trainer(const options_t& options, tnt_reducer_t reducer, cudaStream_t stream)
      : options_(options),
        reducer_(reducer),
        stream_(stream),
        net_(make_network(options, stream)),
        features_(SAMPLES * FEATURES),
        labels_(SAMPLES),
        losses_(SAMPLES) {}

  // Returns the sum of this rank's losses.
  double epoch(long number) {
    const Samples samples = make_samples(options_, number);
    CUDA(cudaMemcpyAsync(features_.get(), samples.features.data(), samples.features.size() * sizeof(float),
                         cudaMemcpyHostToDevice, stream_));
    CUDA(cudaMemcpyAsync(labels_.get(), samples.labels.data(), samples.labels.size() * sizeof(int), cudaMemcpyHostToDevice,
                         stream_));
    size_t done = 0;
    long first = 0;
    for (const int share : samples.shares) {
      step(done, share, std::min(options_.batch, SAMPLES - first));
      done += static_cast<size_t>(share);
      first += options_.batch;
    }
    std::vector<float> losses(done);
    CUDA(cudaMemcpyAsync(losses.data(), losses_.get(), done * sizeof(float), cudaMemcpyDeviceToHost, stream_));
    CUDA(cudaStreamSynchronize(stream_));
    double sum = 0.0;
    for (const float loss : losses) sum += loss;
    return sum;
  }

  std::vector<std::vector<float>> weights() const {
    std::vector<std::vector<float>> all;
    for (int i = 0; i < TENSORS; ++i) {
      std::vector<float>& host = all.emplace_back(tensor_count(i));
      CUDA(cudaMemcpy(host.data(), net_.weights[static_cast<size_t>(i)].get(), host.size() * sizeof(float),
                      cudaMemcpyDeviceToHost));
    }
    return all;
  }

 private:
  // Does not wait for the device.
  void step(size_t begin, int samples, long batch) {
    const float* features = features_.get() + begin * FEATURES;
    const auto in = [&](int layer) -> const float* { return layer == 0 ? features : at(net_.outputs, layer - 1); };
    // the mean over the whole batch, whatever each rank's share is; a rank without samples contributes nothing
    const double scale = samples > 0 ? 1.0 / static_cast<double>(batch) : 0.0;

    for (int layer = 0; layer < LAYERS; ++layer) {
      launch(samples * widths[layer + 1], stream_, forward, in(layer), at(net_.weights, 2 * layer),
             at(net_.weights, 2 * layer + 1), at(net_.outputs, layer), samples, widths[layer], widths[layer + 1],
             layer + 1 < LAYERS);
    }
    launch(samples, stream_, loss_and_delta, at(net_.outputs, LAYERS - 1), labels_.get() + begin, at(net_.deltas, LAYERS - 1),
           losses_.get() + begin, samples, CLASSES);
    for (int layer = LAYERS - 1; layer >= 0; --layer) backward(layer, in(layer), samples, scale);
    CHECK(tnt_reducer_finish(reducer_, stream_));  // later work on the stream finds the gradients of the whole batch
    for (int i = 0; i < TENSORS; ++i) {
      const int count = static_cast<int>(tensor_count(i));
      launch(count, stream_, descend, at(net_.weights, i), at(net_.gradients, i), LEARNING_RATE, count);
    }
  }

  // Computes the layer's gradients, marks them ready, and computes the delta of the previous layer.
  void backward(int layer, const float* in, int samples, double scale) {
    const int n_in = widths[layer];
    const int n_out = widths[layer + 1];
    const float* delta = at(net_.deltas, layer);
    launch((n_in + 1) * n_out, stream_, gradients, in, delta, at(net_.gradients, 2 * layer), at(net_.gradients, 2 * layer + 1),
           samples, n_in, n_out);
    for (const int i : {2 * layer + 1, 2 * layer}) {
      float* gradient = at(net_.gradients, i);
      CHECK(tnt_reducer_ready(reducer_, static_cast<size_t>(i), gradient, gradient, scale, stream_));
    }
    if (layer == 0) return;
    launch(samples * n_in, stream_, delta_before, delta, at(net_.weights, 2 * layer), in, at(net_.deltas, layer - 1), samples,
           n_in, n_out);
  }

  static float* at(const std::vector<Array<float>>& arrays, int index) { return arrays[static_cast<size_t>(index)].get(); }

  options_t options_;
  tnt_reducer_t reducer_;
  cudaStream_t stream_;
  Network net_;
  Array<float> features_;
  Array<int> labels_;
  Array<float> losses_;  // of this rank's samples of an epoch
};

int choose_device() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    give_up("no CUDA device can be used (cpu_trainer needs none)", cudaGetErrorString(error));
  }
  const int device = job.local_rank % devices;
  CUDA(cudaSetDevice(device));
  return device;
}

void run(const options_t& options) {
  char context[128];
  describe_options(&options, context, sizeof context);
  tnt_reducer_options_t reducer_options = TNT_REDUCER_OPTIONS_INITIALIZER;
  reducer_options.device = choose_device();  // the device with the gradients
  tnt_reducer_t reducer = make_reducer(reducer_options, context);
  cudaStream_t stream = nullptr;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  {
    Trainer trainer(options, reducer, stream);
    for (long epoch = 0; epoch < options.epochs; ++epoch) {
      double loss = trainer.epoch(epoch);
      CHECK(tnt_all_reduce(job.comm, &loss, &loss, 1, TNT_FLOAT64, TNT_SUM, nullptr, nullptr));
      if (job.rank == 0) report_epoch(epoch, loss);
    }
    auto weights = trainer.weights();
    float* tensors[TENSORS];
    for (int i = 0; i < TENSORS; ++i) tensors[i] = weights[static_cast<size_t>(i)].data();
    check_same_on_all_ranks(hash_of_weights(tensors));
    if (job.rank == 0) report_weights(tensors);
  }
  CHECK(tnt_reducer_destroy(reducer));
  CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) {
  const options_t options = read_options(argc, argv, take_none, "");
  join_job();
  run(options);
  CHECK(tnt_finalize());
  return 0;
}
