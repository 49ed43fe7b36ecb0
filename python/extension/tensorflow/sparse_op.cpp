// TntSparseSum: the sum over ranks of a sparse gradient, of which each rank has a few rows. The ranks exchange their numbers of
// rows and make the same decision from them: gather all rows and add them in the tree of all_reduce, or fill a dense table and
// all_reduce it, which gives the same bits and moves fewer bytes if there are many rows. For optimizers to which it makes a
// difference that a row occurs several times, the rows of all ranks are not added: they follow one another as in the batch of
// one device. Blocks like the ops of collective_ops.cpp.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernel.hpp"
#include "sparse_sum.hpp"

namespace tnt_tensorflow {
namespace {

struct Attributes {
  std::int64_t communicator = 0;
  std::int64_t tensor = 0;
  std::int64_t rows = 0;        // of the table
  std::int64_t keeps_rows = 0;  // 1: no rows are added
};

void* create(TF_OpKernelConstruction* construction) {
  auto attributes = std::make_unique<Attributes>();
  const bool read = read_attributes(construction, {{"communicator", &attributes->communicator},
                                                   {"tensor", &attributes->tensor},
                                                   {"rows", &attributes->rows},
                                                   {"keeps_rows", &attributes->keeps_rows}});
  return read ? attributes.release() : nullptr;
}

template <typename T>
struct Sum {
  tnt_status_t status = TNT_SUCCESS;
  Rows<T> rows;
  SparseCounts counts;
};

template <typename T>
constexpr tnt_dtype_t dtype = sizeof(T) == 4 ? TNT_FLOAT32 : TNT_FLOAT64;

// The rows of all ranks, in blocks of the size of the largest: first the indices, then the values.
template <typename T>
Sum<T> gathered(tnt_comm_t comm, const Rows<T>& own, const std::vector<std::int64_t>& each, std::size_t most, std::size_t width,
                bool keeps_rows) {
  const std::size_t index_bytes = most * sizeof(std::int64_t);
  const std::size_t block = index_bytes + most * width * sizeof(T);
  std::vector<std::byte> mine(block);
  std::vector<std::byte> all(block * each.size());
  if (!own.indices.empty()) {
    std::memcpy(mine.data(), own.indices.data(), own.indices.size() * sizeof(std::int64_t));
    std::memcpy(mine.data() + index_bytes, own.values.data(), own.values.size() * sizeof(T));
  }
  Sum<T> sum;
  sum.counts = {1, 0, static_cast<std::int64_t>(block)};
  sum.status = tnt_all_gather(comm, mine.data(), all.data(), block, TNT_UINT8, nullptr, nullptr);
  if (sum.status != TNT_SUCCESS) return sum;
  std::vector<Rows<T>> ranks(each.size());
  for (std::size_t rank = 0; rank < each.size(); ++rank) {
    const auto n = static_cast<std::size_t>(each[rank]);
    const std::byte* from = all.data() + rank * block;
    ranks[rank].indices.resize(n);
    ranks[rank].values.resize(n * width);
    if (n == 0) continue;
    std::memcpy(ranks[rank].indices.data(), from, n * sizeof(std::int64_t));
    std::memcpy(ranks[rank].values.data(), from + index_bytes, n * width * sizeof(T));
  }
  sum.rows = keeps_rows ? joined(ranks) : tree_sum(ranks.data(), ranks.size(), width);
  return sum;
}

template <typename T>
Sum<T> filled_up(tnt_comm_t comm, const Rows<T>& own, std::size_t table_rows, std::size_t width) {
  Sum<T> sum;
  sum.rows.indices.resize(table_rows);
  std::iota(sum.rows.indices.begin(), sum.rows.indices.end(), std::int64_t{0});
  sum.rows.values.resize(table_rows * width);
  for (std::size_t i = 0; i < own.indices.size(); ++i) {
    std::copy_n(own.values.data() + i * width, width,
                sum.rows.values.data() + static_cast<std::size_t>(own.indices[i]) * width);
  }
  sum.counts = {0, 1, static_cast<std::int64_t>(sum.rows.values.size() * sizeof(T))};
  sum.status = tnt_all_reduce(comm, sum.rows.values.data(), sum.rows.values.data(), sum.rows.values.size(), dtype<T>, TNT_SUM,
                              nullptr, nullptr);
  return sum;
}

template <typename T>
Sum<T> summed(tnt_comm_t comm, const Rows<T>& own, std::size_t table_rows, std::size_t width, bool keeps_rows) {
  Sum<T> sum;
  int size = 0;
  sum.status = tnt_comm_size(comm, &size);
  if (sum.status != TNT_SUCCESS) return sum;
  const auto count = static_cast<std::int64_t>(own.indices.size());
  std::vector<std::int64_t> each(static_cast<std::size_t>(size));
  sum.status = tnt_all_gather(comm, &count, each.data(), 1, TNT_INT64, nullptr, nullptr);
  if (sum.status != TNT_SUCCESS) return sum;
  const auto most = static_cast<std::size_t>(*std::max_element(each.begin(), each.end()));
  // the memory traffic of all_gather and all_reduce according to tarantella.h, each divided by 2n
  const double sparse = static_cast<double>(each.size() + 1) * static_cast<double>(most) *
                        static_cast<double>(sizeof(std::int64_t) + width * sizeof(T));
  const double dense = static_cast<double>(table_rows) * static_cast<double>(width * sizeof(T));
  return keeps_rows || sparse < dense ? gathered(comm, own, each, most, width, keeps_rows)
                                      : filled_up(comm, own, table_rows, width);
}

// This rank's gradient: scaled, with each row once or as often as it occurs. A rank with weight 0 contributes nothing, whatever
// its rows hold.
template <typename T>
Rows<T> contribution(double scale, const TF_Tensor* indices, const TF_Tensor* values, std::size_t width, bool keeps_rows) {
  const auto n = scale == 0.0 ? std::size_t{0} : static_cast<std::size_t>(TF_TensorElementCount(indices));
  const auto* const index = static_cast<const std::int64_t*>(TF_TensorData(indices));
  const auto* const value = static_cast<const T*>(TF_TensorData(values));
  Rows<T> rows = keeps_rows ? Rows<T>{{index, index + n}, {value, value + n * width}} : merged(index, n, value, width);
  for (T& value : rows.values) value = static_cast<T>(value * static_cast<T>(scale));
  return rows;
}

template <typename T>
void put_out(TF_OpKernelContext* context, const Rows<T>& rows, std::size_t width, int type) {
  const Status status;
  const std::int64_t dims[2] = {static_cast<std::int64_t>(rows.indices.size()), static_cast<std::int64_t>(width)};
  const std::size_t index_bytes = rows.indices.size() * sizeof(std::int64_t);
  const std::size_t value_bytes = rows.values.size() * sizeof(T);
  const Tensor indices(TF_AllocateOutput(context, 0, TF_INT64, dims, 1, index_bytes, status.get()));
  if (!passed(context, status)) return;
  const Tensor values(TF_AllocateOutput(context, 1, type, dims, 2, value_bytes, status.get()));
  if (!passed(context, status)) return;
  if (index_bytes > 0) std::memcpy(TF_TensorData(indices.get()), rows.indices.data(), index_bytes);
  if (value_bytes > 0) std::memcpy(TF_TensorData(values.get()), rows.values.data(), value_bytes);
}

template <typename T>
void compute_as(TF_OpKernelContext* context, const Attributes& attributes, CommunicatorAttachment& attachment, double scale,
                const TF_Tensor* indices, const TF_Tensor* values) {
  const auto width = static_cast<std::size_t>(TF_Dim(values, 1));
  const bool keeps_rows = attributes.keeps_rows != 0;
  const Rows<T> own = contribution<T>(scale, indices, values, width, keeps_rows);
  const auto outside =
      std::find_if(own.indices.begin(), own.indices.end(), [&](std::int64_t row) { return row < 0 || row >= attributes.rows; });
  if (outside != own.indices.end()) {
    return fail(context, "TNT_INVALID_ARGUMENT",
                "a sparse gradient has row " + std::to_string(*outside) + ", its table has " + std::to_string(attributes.rows));
  }
  const Sum<T> sum = summed(attachment.comm(), own, static_cast<std::size_t>(attributes.rows), width, keeps_rows);
  if (sum.status != TNT_SUCCESS) return fail(context, sum.status);
  attachment.count(attributes.tensor, sum.counts);
  put_out(context, sum.rows, width, TF_TensorType(values));
}

void compute(void* kernel, TF_OpKernelContext* context) {
  const auto& attributes = *static_cast<const Attributes*>(kernel);
  const auto attachment = find_communicator(attributes.communicator);
  if (!attachment) {
    return fail(context, "TNT_INVALID_ARGUMENT",
                "this step was made for a reducer that no longer exists: compile the model again");
  }
  const Status status;
  const Tensor scale = input(context, 0, status);
  if (!passed(context, status)) return;
  const Tensor indices = input(context, 1, status);
  if (!passed(context, status)) return;
  const Tensor values = input(context, 2, status);
  if (!passed(context, status)) return;
  if (TF_NumDims(values.get()) != 2 || TF_NumDims(indices.get()) != 1 || TF_Dim(values.get(), 0) != TF_Dim(indices.get(), 0)) {
    return fail(context, "TNT_INVALID_ARGUMENT", "a sparse gradient needs a list of rows and a matrix with as many");
  }
  const double factor = *static_cast<const double*>(TF_TensorData(scale.get()));
  if (TF_TensorType(values.get()) == TF_DOUBLE) {
    compute_as<double>(context, attributes, *attachment, factor, indices.get(), values.get());
  } else {
    compute_as<float>(context, attributes, *attachment, factor, indices.get(), values.get());
  }
}

struct Registration {
  Registration() {
    register_on_host<Attributes>(
        {.name = "TntSparseSum",
         .inputs = {"scale: double", "indices: int64", "values: T"},
         .outputs = {"rows_of_sum: int64", "sum: T"},
         .attributes = {"communicator: int", "tensor: int", "rows: int", "keeps_rows: int", "T: {float, double}"},
         .infer_shapes = no_shapes},
        create, compute);
  }
};
const Registration registration;

}  // namespace
}  // namespace tnt_tensorflow
