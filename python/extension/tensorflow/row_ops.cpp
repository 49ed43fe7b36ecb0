// TntAllGatherRows, TntAllToAllRows, TntReduceScatterRows: collectives of tensors by their rows, of which each rank may have or
// get another number. Ranks compare their calls first (comparison.hpp), and learn in that the numbers of rows. They block, like
// the ops of collective_ops.cpp.
#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>

#include "comparison.hpp"
#include "kernel.hpp"

namespace tnt_tensorflow {
namespace {

struct Attributes {
  std::int64_t communicator = 0;
  std::int64_t op = 0;  // TntReduceScatterRows: tnt_op_t
  std::array<char, max_name> name{};
};

template <bool reduces>
void* create(TF_OpKernelConstruction* construction) {
  auto attributes = std::make_unique<Attributes>();
  const bool read = read_attributes(construction, {{"communicator", &attributes->communicator}}) &&
                    (!reduces || read_attributes(construction, {{"op", &attributes->op}})) &&
                    read_text(construction, "tensor", &attributes->name);
  return read ? attributes.release() : nullptr;
}

// What each of the ops works on.
struct Rows {
  std::shared_ptr<CommunicatorAttachment> attachment;  // nullptr: the op has failed
  Tensor in;
  Dims dims;
  Call call;

  [[nodiscard]] tnt_comm_t comm() const { return attachment->comm(); }
  [[nodiscard]] std::size_t row_elements() const {
    return static_cast<std::size_t>(
        std::accumulate(dims.sizes.begin() + 1, dims.sizes.begin() + dims.count, std::int64_t{1}, std::multiplies<>()));
  }
  [[nodiscard]] std::size_t row_bytes(std::size_t element) const { return row_elements() * element; }
};

// Bytes of an element: of a tensor without elements as well, which tells no size.
std::size_t element_size(int type) {
  switch (type) {
    case TF_UINT8:
    case TF_INT8:
    case TF_BOOL: return 1;
    case TF_HALF:
    case TF_BFLOAT16:
    case TF_INT16:
    case TF_UINT16: return 2;
    case TF_DOUBLE:
    case TF_INT64:
    case TF_UINT64:
    case TF_COMPLEX64: return 8;
    case TF_COMPLEX128: return 16;
    default: return 4;
  }
}

Rows rows_of(const Attributes& attributes, TF_OpKernelContext* context, Kind kind) {
  Rows rows;
  auto attachment = communicator_of(context, attributes.communicator);
  if (!attachment) return rows;
  const Status status;
  rows.in = input(context, 0, status);
  if (status.ok()) rows.dims = dims_of(rows.in.get(), status);
  if (!passed(context, status)) return rows;
  rows.call = call_of(kind, rows.in.get(), rows.dims, attributes.op, attributes.name);
  rows.attachment = std::move(attachment);
  return rows;
}

// An output like the input, with another number of rows.
Tensor allocate_rows(TF_OpKernelContext* context, const Rows& rows, std::int64_t number, const Status& status) {
  Dims dims = rows.dims;
  dims.sizes[0] = number;
  const int type = TF_TensorType(rows.in.get());
  const std::size_t bytes = static_cast<std::size_t>(number) * rows.row_bytes(element_size(type));
  return Tensor(TF_AllocateOutput(context, 0, type, dims.sizes.data(), dims.count, bytes, status.get()));
}

// The second output: numbers of rows.
bool put_numbers(TF_OpKernelContext* context, const std::vector<std::int64_t>& numbers) {
  const Status status;
  const auto n = static_cast<std::int64_t>(numbers.size());
  const Tensor out(TF_AllocateOutput(context, 1, TF_INT64, &n, 1, numbers.size() * sizeof(std::int64_t), status.get()));
  if (!passed(context, status)) return false;
  std::ranges::copy(numbers, static_cast<std::int64_t*>(TF_TensorData(out.get())));
  return true;
}

std::vector<std::size_t> times(const std::vector<std::int64_t>& numbers, std::size_t factor) {
  std::vector<std::size_t> result;
  for (const std::int64_t number : numbers) result.push_back(static_cast<std::size_t>(number) * factor);
  return result;
}

std::int64_t total(const std::vector<std::int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0});
}

void all_gather(void* kernel, TF_OpKernelContext* context) {
  const Rows rows = rows_of(*static_cast<const Attributes*>(kernel), context, Kind::all_gather);
  if (!rows.attachment) return;
  const std::vector<Call> calls = meet(context, rows.comm(), rows.call);
  if (calls.empty()) return;
  std::vector<std::int64_t> numbers;
  for (const Call& call : calls) numbers.push_back(call.rows());
  const Status status;
  const Tensor out = allocate_rows(context, rows, total(numbers), status);
  if (!passed(context, status) || !put_numbers(context, numbers)) return;
  const auto counts = times(numbers, rows.row_bytes(element_size(TF_TensorType(rows.in.get()))));
  const tnt_status_t done = tnt_all_gather_v(rows.comm(), TF_TensorData(rows.in.get()), TF_TensorData(out.get()), counts.data(),
                                             TNT_UINT8, nullptr, nullptr);
  if (done != TNT_SUCCESS) fail(context, done);
}

// Whether the numbers say where each of a tensor's rows goes.
bool make_sense(const std::vector<std::int64_t>& splits, std::size_t size, std::int64_t rows) {
  return splits.size() == size && std::ranges::all_of(splits, [](std::int64_t n) { return n >= 0; }) && total(splits) == rows;
}

std::vector<std::int64_t> splits_of(const TF_Tensor* given, std::size_t size, std::int64_t rows) {
  const auto* numbers = static_cast<const std::int64_t*>(TF_TensorData(given));
  const auto count = static_cast<std::size_t>(TF_TensorElementCount(given));
  if (count > 0) return {numbers, numbers + count};
  const auto n = static_cast<std::int64_t>(size);
  return std::vector<std::int64_t>(size, rows % n == 0 ? rows / n : -1);
}

void all_to_all(void* kernel, TF_OpKernelContext* context) {
  Rows rows = rows_of(*static_cast<const Attributes*>(kernel), context, Kind::all_to_all);
  if (!rows.attachment) return;
  const Status status;
  const Tensor given = input(context, 1, status);
  if (!passed(context, status)) return;
  int size = 0;
  if (const tnt_status_t done = tnt_comm_size(rows.comm(), &size); done != TNT_SUCCESS) return fail(context, done);
  const auto splits = splits_of(given.get(), static_cast<std::size_t>(size), rows.call.rows());
  rows.call.choice = make_sense(splits, static_cast<std::size_t>(size), rows.call.rows()) ? 0 : 1;
  const std::vector<Call> calls = meet(context, rows.comm(), rows.call);
  if (calls.empty()) return;
  if (const auto wrong = std::ranges::find(calls, 1, &Call::choice); wrong != calls.end()) {
    return fail(context, tnt_status_name(TNT_INVALID_ARGUMENT),
                "the splits of rank " + std::to_string(wrong - calls.begin()) + " do not say where its " +
                    std::to_string(wrong->rows()) + " rows go: give " + std::to_string(size) +
                    " numbers that add up to them, or none for equal parts",
                TF_INVALID_ARGUMENT);
  }
  std::vector<std::int64_t> received(static_cast<std::size_t>(size));
  tnt_status_t done = tnt_all_to_all(rows.comm(), splits.data(), received.data(), 1, TNT_INT64, nullptr, nullptr);
  if (done != TNT_SUCCESS) return fail(context, done);
  const Tensor out = allocate_rows(context, rows, total(received), status);
  if (!passed(context, status) || !put_numbers(context, received)) return;
  const std::size_t row = rows.row_bytes(element_size(TF_TensorType(rows.in.get())));
  done = tnt_all_to_all_v(rows.comm(), TF_TensorData(rows.in.get()), TF_TensorData(out.get()), times(splits, row).data(),
                          times(received, row).data(), TNT_UINT8, nullptr, nullptr);
  if (done != TNT_SUCCESS) fail(context, done);
}

// The rows of each rank: the first ranks get one more where they cannot be shared evenly.
std::vector<std::int64_t> shares(std::int64_t rows, int size) {
  std::vector<std::int64_t> result;
  for (int rank = 0; rank < size; ++rank) result.push_back(rows / size + (rank < rows % size ? 1 : 0));
  return result;
}

void reduce_scatter(void* kernel, TF_OpKernelContext* context) {
  const auto& attributes = *static_cast<const Attributes*>(kernel);
  const Rows rows = rows_of(attributes, context, Kind::reduce_scatter);
  if (!rows.attachment) return;
  const std::vector<Call> calls = meet(context, rows.comm(), rows.call);
  if (calls.empty()) return;
  int rank = 0;
  if (const tnt_status_t done = tnt_comm_rank(rows.comm(), &rank); done != TNT_SUCCESS) return fail(context, done);
  const auto numbers = shares(rows.call.rows(), static_cast<int>(calls.size()));
  const Status status;
  const Tensor out = allocate_rows(context, rows, numbers[static_cast<std::size_t>(rank)], status);
  if (!passed(context, status) || !put_numbers(context, numbers)) return;
  const tnt_status_t done = tnt_reduce_scatter_v(rows.comm(), TF_TensorData(rows.in.get()), TF_TensorData(out.get()),
                                                 times(numbers, rows.row_elements()).data(), dtype_of(rows.in.get()),
                                                 static_cast<tnt_op_t>(attributes.op), nullptr, nullptr);
  if (done != TNT_SUCCESS) fail(context, done);
}

struct Registration {
  Registration() {
    register_on_host<Attributes>({.name = "TntAllGatherRows",
                                  .inputs = {"input: T"},
                                  .outputs = {"output: T", "numbers: int64"},
                                  .attributes = {"communicator: int", any_type, "tensor: string = ''"},
                                  .infer_shapes = unknown_shape},
                                 create<false>, all_gather);
    register_on_host<Attributes>({.name = "TntAllToAllRows",
                                  .inputs = {"input: T", "splits: int64"},
                                  .outputs = {"output: T", "numbers: int64"},
                                  .attributes = {"communicator: int", any_type, "tensor: string = ''"},
                                  .infer_shapes = unknown_shape},
                                 create<false>, all_to_all);
    register_on_host<Attributes>({.name = "TntReduceScatterRows",
                                  .inputs = {"input: T"},
                                  .outputs = {"output: T", "numbers: int64"},
                                  .attributes = {"communicator: int", "op: int", summed_type, "tensor: string = ''"},
                                  .infer_shapes = unknown_shape},
                                 create<true>, reduce_scatter);
  }
};
const Registration registration;

}  // namespace
}  // namespace tnt_tensorflow
