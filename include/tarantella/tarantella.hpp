// The C API for C++17: handles that end by themselves, views of contiguous elements, exceptions with a status, and deadlines of
// std::chrono. Header-only. A function is one call of tarantella.h, which says what it does and costs; comments here state only
// differences. Nothing is locked or kept in addition, and only wait_any, split and create_group allocate.
//
// A call that fails throws Error, except in destructors (but that of Group) and in moves. Buffers are containers or views with
// std::data and std::size: vector, array, std::span, View. Their element type says the dtype (DtypeOf). Their sizes must fit,
// else the status is TNT_INVALID_ARGUMENT.
#ifndef TARANTELLA_TARANTELLA_HPP
#define TARANTELLA_TARANTELLA_HPP

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tarantella/tarantella.h"

namespace tarantella {

// what(): the message of tnt_last_error.
class Error : public std::runtime_error {
 public:
  Error(tnt_status_t status, const std::string& message) : std::runtime_error(message), status_(status) {}
  [[nodiscard]] tnt_status_t status() const noexcept { return status_; }

 private:
  tnt_status_t status_;
};

// Throws the Error of a call of tarantella.h.
inline void check(tnt_status_t status) {
  if (status != TNT_SUCCESS) throw Error(status, tnt_last_error());
}

// The dtype of T. Specialise it for 16-bit floats of your own.
template <typename T>
struct DtypeOf;
template <tnt_dtype_t dtype>
using Dtype = std::integral_constant<tnt_dtype_t, dtype>;
template <>
struct DtypeOf<float> : Dtype<TNT_FLOAT32> {};
template <>
struct DtypeOf<double> : Dtype<TNT_FLOAT64> {};
template <>
struct DtypeOf<std::int8_t> : Dtype<TNT_INT8> {};
template <>
struct DtypeOf<std::uint8_t> : Dtype<TNT_UINT8> {};
template <>
struct DtypeOf<std::int32_t> : Dtype<TNT_INT32> {};
template <>
struct DtypeOf<std::int64_t> : Dtype<TNT_INT64> {};
template <>
struct DtypeOf<std::uint32_t> : Dtype<TNT_UINT32> {};
template <>
struct DtypeOf<std::uint64_t> : Dtype<TNT_UINT64> {};

// Elements that lie one after another, in host or device memory; not owned.
template <typename T>
class View {
 public:
  constexpr View() = default;
  constexpr View(T* data, std::size_t size) : data_(data), size_(size) {}
  template <typename Container, typename = std::enable_if_t<std::is_convertible_v<
                                    std::remove_pointer_t<decltype(std::data(std::declval<Container&>()))> (*)[], T (*)[]>>>
  constexpr View(Container&& of) : data_(std::data(of)), size_(std::size(of)) {}  // NOLINT(*-explicit-*): as std::span's
  [[nodiscard]] constexpr T* data() const noexcept { return data_; }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  [[nodiscard]] constexpr T* begin() const noexcept { return data_; }
  [[nodiscard]] constexpr T* end() const noexcept { return data_ + size_; }
  [[nodiscard]] constexpr T& operator[](std::size_t index) const { return data_[index]; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

namespace detail {

// A handle, destroyed by its owner.
template <typename Handle, tnt_status_t (*destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) noexcept : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() { (void)destroy(handle_); }  // after tnt_finalize, which has destroyed it, this does nothing
  [[nodiscard]] Handle get() const noexcept { return handle_; }

 private:
  Handle handle_ = nullptr;
};

template <typename Container>
using Element = std::remove_cv_t<std::remove_pointer_t<decltype(std::data(std::declval<Container&>()))>>;

template <typename In, typename Out>
constexpr tnt_dtype_t common_dtype() {
  static_assert(std::is_same_v<Element<In>, Element<Out>>, "in and out have different element types");
  return DtypeOf<Element<Out>>::value;
}

inline void check_sizes(const char* call, std::size_t in, std::size_t out, bool fit) {
  if (fit) return;
  throw Error(TNT_INVALID_ARGUMENT, std::string(call) + ": in has " + std::to_string(in) + " elements and out " +
                                        std::to_string(out) + ", which does not fit the number of ranks");
}

template <typename Rep, typename Period>
double seconds_of(std::chrono::duration<Rep, Period> time) {
  return std::max(0.0, std::chrono::duration<double>(time).count());
}

}  // namespace detail

// An operation that was started. Its end waits for the operation, because that still uses the buffers.
class Work {
 public:
  Work() = default;
  explicit Work(tnt_work_t handle) noexcept : handle_(handle) {}
  Work(Work&&) noexcept = default;
  Work& operator=(Work&&) noexcept = default;  // the other one ends this one's operation
  ~Work() {
    if (get() != nullptr) (void)tnt_work_wait(get(), -1);
  }

  void wait() const { check(tnt_work_wait(get(), -1)); }
  // False if it has not finished after this time; it goes on then.
  template <typename Rep, typename Period>
  [[nodiscard]] bool wait_for(std::chrono::duration<Rep, Period> time) const {
    const tnt_status_t status = tnt_work_wait(get(), detail::seconds_of(time));
    if (status == TNT_TIMEOUT) return test();  // of this wait, or of the operation
    check(status);
    return true;
  }
  [[nodiscard]] bool test() const {
    int finished = 0;
    check(tnt_work_test(get(), &finished));
    return finished != 0;
  }
  [[nodiscard]] tnt_work_t get() const noexcept { return handle_.get(); }

  // The index of one that has finished, whose wait() returns at once and throws its error. Empty ones are skipped.
  [[nodiscard]] static std::size_t wait_any(View<const Work> works) { return *find_finished(works, -1); }
  // Nothing if none has finished after this time.
  template <typename Rep, typename Period>
  [[nodiscard]] static std::optional<std::size_t> wait_any_for(View<const Work> works,
                                                               std::chrono::duration<Rep, Period> time) {
    return find_finished(works, detail::seconds_of(time));
  }

 private:
  static std::optional<std::size_t> find_finished(View<const Work> works, double seconds) {
    std::vector<tnt_work_t> handles;
    for (const Work& work : works) handles.push_back(work.get());
    std::size_t index = 0;
    const tnt_status_t status = tnt_work_wait_any(handles.data(), handles.size(), seconds, &index);
    if (index < handles.size()) return index;
    if (status == TNT_TIMEOUT) return std::nullopt;
    throw Error(status, tnt_last_error());
  }

  detail::Owned<tnt_work_t, tnt_work_destroy> handle_;
};

// Where processes meet: tnt_unique_id.
[[nodiscard]] inline tnt_unique_id_t unique_id(const char* rendezvous = nullptr) {
  tnt_unique_id_t id;
  check(tnt_unique_id(rendezvous, &id));
  return id;
}

// A group of ranks. All collectives take a stream last, and start_... returns when the operation has been started.
class Comm {
 public:
  // All ranks of the job.
  [[nodiscard]] static Comm world() {
    tnt_comm_t handle = nullptr;
    check(tnt_comm_world(&handle));
    return Comm(handle);
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] tnt_comm_t get() const noexcept { return handle_; }
  [[nodiscard]] int local_rank() const { return asked(tnt_comm_local_rank); }
  [[nodiscard]] int local_size() const { return asked(tnt_comm_local_size); }
  [[nodiscard]] const char* transport() const {
    const char* name = nullptr;
    check(tnt_comm_transport(handle_, &name));
    return name;
  }

  // Nothing for a negative colour.
  [[nodiscard]] std::optional<Comm> split(int color, int key = 0) const {
    tnt_comm_t part = nullptr;
    check(tnt_comm_split(handle_, color, key, &part));
    if (part == nullptr) return std::nullopt;
    return Comm(Owner(part));
  }
  [[nodiscard]] Comm create_group(View<const int> ranks, int tag = 0) const {
    tnt_comm_t group = nullptr;
    check(tnt_comm_create_group(handle_, ranks.data(), ranks.size(), tag, &group));
    return Comm(Owner(group));
  }
  // Zero: TNT_TIMEOUT again.
  template <typename Rep, typename Period>
  void set_timeout(std::chrono::duration<Rep, Period> time) const {
    check(tnt_comm_set_timeout(handle_, std::chrono::duration<double>(time).count()));
  }
  void set_error_mode(tnt_error_mode_t mode) const { check(tnt_comm_set_error_mode(handle_, mode)); }
  [[nodiscard]] Comm shrink() const {
    tnt_comm_t smaller = nullptr;
    check(tnt_comm_shrink(handle_, &smaller));
    return Comm(Owner(smaller));
  }
  // This communicator's ranks and newcomers, `ranks` in all. id: of rank 0.
  [[nodiscard]] Comm grow(int ranks, const tnt_unique_id_t* id = nullptr) const { return met(handle_, id, ranks, -1); }
  // For newcomers, and for any processes that have the id.
  [[nodiscard]] static Comm join(const tnt_unique_id_t& id, int ranks, int rank) { return met(nullptr, &id, ranks, rank); }
  void connect_device(int device) const { check(tnt_comm_connect_device(handle_, device)); }
  void abort(const std::string& reason) const { check(tnt_comm_abort(handle_, reason.c_str())); }
  void check_errors() const { check(tnt_comm_check(handle_)); }  // throws the error of any rank that is known here

  void barrier(tnt_stream_t stream = nullptr) const { check(tnt_barrier(handle_, stream, nullptr)); }
  [[nodiscard]] Work start_barrier(tnt_stream_t stream = nullptr) const {
    return started([&](tnt_work_t* work) { return tnt_barrier(handle_, stream, work); });
  }

  template <typename In, typename Out>
  void all_reduce(const In& in, Out&& out, tnt_op_t op = TNT_SUM, tnt_stream_t stream = nullptr) const {
    check(call_all_reduce(in, out, op, stream, nullptr));
  }
  template <typename In, typename Out>
  [[nodiscard]] Work start_all_reduce(const In& in, Out&& out, tnt_op_t op = TNT_SUM, tnt_stream_t stream = nullptr) const {
    return started([&](tnt_work_t* work) { return call_all_reduce(in, out, op, stream, work); });
  }

  template <typename In, typename Out>
  void all_reduce_scaled(const In& in, Out&& out, double scale, tnt_stream_t stream = nullptr) const {
    check(call_all_reduce_scaled(in, out, scale, stream, nullptr));
  }
  template <typename In, typename Out>
  [[nodiscard]] Work start_all_reduce_scaled(const In& in, Out&& out, double scale, tnt_stream_t stream = nullptr) const {
    return started([&](tnt_work_t* work) { return call_all_reduce_scaled(in, out, scale, stream, work); });
  }

  template <typename In, typename Out>
  void reduce_scatter(const In& in, Out&& out, tnt_op_t op = TNT_SUM, tnt_stream_t stream = nullptr) const {
    check(call_reduce_scatter(in, out, op, stream, nullptr));
  }
  template <typename In, typename Out>
  [[nodiscard]] Work start_reduce_scatter(const In& in, Out&& out, tnt_op_t op = TNT_SUM, tnt_stream_t stream = nullptr) const {
    return started([&](tnt_work_t* work) { return call_reduce_scatter(in, out, op, stream, work); });
  }

  template <typename In, typename Out>
  void all_gather(const In& in, Out&& out, tnt_stream_t stream = nullptr) const {
    check(call_all_gather(in, out, stream, nullptr));
  }
  template <typename In, typename Out>
  [[nodiscard]] Work start_all_gather(const In& in, Out&& out, tnt_stream_t stream = nullptr) const {
    return started([&](tnt_work_t* work) { return call_all_gather(in, out, stream, work); });
  }

  // In place: the buffer is the input on root and the output elsewhere.
  template <typename Buffer>
  void broadcast(Buffer&& buffer, int root, tnt_stream_t stream = nullptr) const {
    check(call_broadcast(buffer, root, stream, nullptr));
  }
  template <typename Buffer>
  [[nodiscard]] Work start_broadcast(Buffer&& buffer, int root, tnt_stream_t stream = nullptr) const {
    return started([&](tnt_work_t* work) { return call_broadcast(buffer, root, stream, work); });
  }

  template <typename In, typename Out>
  void all_to_all(const In& in, Out&& out, tnt_stream_t stream = nullptr) const {
    check(call_all_to_all(in, out, stream, nullptr));
  }
  template <typename In, typename Out>
  [[nodiscard]] Work start_all_to_all(const In& in, Out&& out, tnt_stream_t stream = nullptr) const {
    return started([&](tnt_work_t* work) { return call_all_to_all(in, out, stream, work); });
  }

  // out matters on root alone, and may be empty elsewhere.
  template <typename In, typename Out>
  void reduce(const In& in, Out&& out, int root, tnt_op_t op = TNT_SUM, tnt_stream_t stream = nullptr) const {
    check(call_reduce(in, out, root, op, stream, nullptr));
  }
  template <typename In, typename Out>
  [[nodiscard]] Work start_reduce(const In& in, Out&& out, int root, tnt_op_t op = TNT_SUM,
                                  tnt_stream_t stream = nullptr) const {
    return started([&](tnt_work_t* work) { return call_reduce(in, out, root, op, stream, work); });
  }

  // out matters on root alone, and may be empty elsewhere.
  template <typename In, typename Out>
  void gather(const In& in, Out&& out, int root, tnt_stream_t stream = nullptr) const {
    check(call_gather(in, out, root, stream, nullptr));
  }
  template <typename In, typename Out>
  [[nodiscard]] Work start_gather(const In& in, Out&& out, int root, tnt_stream_t stream = nullptr) const {
    return started([&](tnt_work_t* work) { return call_gather(in, out, root, stream, work); });
  }

  // in matters on root alone, and may be empty elsewhere.
  template <typename In, typename Out>
  void scatter(const In& in, Out&& out, int root, tnt_stream_t stream = nullptr) const {
    check(call_scatter(in, out, root, stream, nullptr));
  }
  template <typename In, typename Out>
  [[nodiscard]] Work start_scatter(const In& in, Out&& out, int root, tnt_stream_t stream = nullptr) const {
    return started([&](tnt_work_t* work) { return call_scatter(in, out, root, stream, work); });
  }

  // Counts: containers of std::size_t with an element for each rank.
  template <typename In, typename Out, typename Counts>
  void all_gather_v(const In& in, Out&& out, const Counts& counts, tnt_stream_t stream = nullptr) const {
    check(call_all_gather_v(in, out, counts, stream, nullptr));
  }
  template <typename In, typename Out, typename Counts>
  [[nodiscard]] Work start_all_gather_v(const In& in, Out&& out, const Counts& counts, tnt_stream_t stream = nullptr) const {
    return started([&](tnt_work_t* work) { return call_all_gather_v(in, out, counts, stream, work); });
  }

  template <typename In, typename Out, typename Counts>
  void reduce_scatter_v(const In& in, Out&& out, const Counts& counts, tnt_op_t op = TNT_SUM,
                        tnt_stream_t stream = nullptr) const {
    check(call_reduce_scatter_v(in, out, counts, op, stream, nullptr));
  }
  template <typename In, typename Out, typename Counts>
  [[nodiscard]] Work start_reduce_scatter_v(const In& in, Out&& out, const Counts& counts, tnt_op_t op = TNT_SUM,
                                            tnt_stream_t stream = nullptr) const {
    return started([&](tnt_work_t* work) { return call_reduce_scatter_v(in, out, counts, op, stream, work); });
  }

  template <typename In, typename Out, typename Counts>
  void all_to_all_v(const In& in, Out&& out, const Counts& send_counts, const Counts& recv_counts,
                    tnt_stream_t stream = nullptr) const {
    check(call_all_to_all_v(in, out, send_counts, recv_counts, stream, nullptr));
  }
  template <typename In, typename Out, typename Counts>
  [[nodiscard]] Work start_all_to_all_v(const In& in, Out&& out, const Counts& send_counts, const Counts& recv_counts,
                                        tnt_stream_t stream = nullptr) const {
    return started([&](tnt_work_t* work) { return call_all_to_all_v(in, out, send_counts, recv_counts, stream, work); });
  }

  template <typename In>
  void send(const In& in, int to, tnt_stream_t stream = nullptr) const {
    check(call_send(in, to, stream, nullptr));
  }
  template <typename In>
  [[nodiscard]] Work start_send(const In& in, int to, tnt_stream_t stream = nullptr) const {
    return started([&](tnt_work_t* work) { return call_send(in, to, stream, work); });
  }
  template <typename Out>
  void recv(Out&& out, int from, tnt_stream_t stream = nullptr) const {
    check(call_recv(out, from, stream, nullptr));
  }
  template <typename Out>
  [[nodiscard]] Work start_recv(Out&& out, int from, tnt_stream_t stream = nullptr) const {
    return started([&](tnt_work_t* work) { return call_recv(out, from, stream, work); });
  }

 private:
  using Owner = detail::Owned<tnt_comm_t, tnt_comm_destroy>;

  explicit Comm(tnt_comm_t handle) : handle_(handle), rank_(asked(tnt_comm_rank)), size_(asked(tnt_comm_size)) {}
  explicit Comm(Owner owner) : Comm(owner.get()) { owner_ = std::move(owner); }

  [[nodiscard]] static Comm met(tnt_comm_t comm, const tnt_unique_id_t* id, int ranks, int rank) {
    tnt_comm_t larger = nullptr;
    check(tnt_comm_grow(comm, id, ranks, rank, &larger));
    return Comm(Owner(larger));
  }

  [[nodiscard]] int asked(tnt_status_t (*question)(tnt_comm_t, int*)) const {
    int number = 0;
    check(question(handle_, &number));
    return number;
  }
  [[nodiscard]] std::size_t blocks() const noexcept { return static_cast<std::size_t>(size_); }

  template <typename Start>
  [[nodiscard]] static Work started(const Start& start) {
    tnt_work_t work = nullptr;
    check(start(&work));
    return Work(work);
  }

  template <typename In, typename Out>
  [[nodiscard]] tnt_status_t call_all_reduce(In& in, Out& out, tnt_op_t op, tnt_stream_t stream, tnt_work_t* work) const {
    detail::check_sizes("all_reduce", std::size(in), std::size(out), std::size(in) == std::size(out));
    return tnt_all_reduce(handle_, std::data(in), std::data(out), std::size(out), detail::common_dtype<In, Out>(), op, stream,
                          work);
  }
  template <typename In, typename Out>
  [[nodiscard]] tnt_status_t call_all_reduce_scaled(In& in, Out& out, double scale, tnt_stream_t stream,
                                                    tnt_work_t* work) const {
    detail::check_sizes("all_reduce_scaled", std::size(in), std::size(out), std::size(in) == std::size(out));
    return tnt_all_reduce_scaled(handle_, std::data(in), std::data(out), std::size(out), detail::common_dtype<In, Out>(), scale,
                                 stream, work);
  }
  template <typename In, typename Out>
  [[nodiscard]] tnt_status_t call_reduce_scatter(In& in, Out& out, tnt_op_t op, tnt_stream_t stream, tnt_work_t* work) const {
    detail::check_sizes("reduce_scatter", std::size(in), std::size(out), std::size(in) == blocks() * std::size(out));
    return tnt_reduce_scatter(handle_, std::data(in), std::data(out), std::size(out), detail::common_dtype<In, Out>(), op,
                              stream, work);
  }
  template <typename In, typename Out>
  [[nodiscard]] tnt_status_t call_all_gather(In& in, Out& out, tnt_stream_t stream, tnt_work_t* work) const {
    detail::check_sizes("all_gather", std::size(in), std::size(out), std::size(out) == blocks() * std::size(in));
    return tnt_all_gather(handle_, std::data(in), std::data(out), std::size(in), detail::common_dtype<In, Out>(), stream, work);
  }
  template <typename Buffer>
  [[nodiscard]] tnt_status_t call_broadcast(Buffer& buffer, int root, tnt_stream_t stream, tnt_work_t* work) const {
    return tnt_broadcast(handle_, std::data(buffer), std::data(buffer), std::size(buffer),
                         DtypeOf<detail::Element<Buffer>>::value, root, stream, work);
  }
  template <typename In, typename Out>
  [[nodiscard]] tnt_status_t call_all_to_all(In& in, Out& out, tnt_stream_t stream, tnt_work_t* work) const {
    detail::check_sizes("all_to_all", std::size(in), std::size(out),
                        std::size(in) == std::size(out) && std::size(out) % blocks() == 0);
    return tnt_all_to_all(handle_, std::data(in), std::data(out), std::size(out) / blocks(), detail::common_dtype<In, Out>(),
                          stream, work);
  }
  template <typename In, typename Out>
  [[nodiscard]] tnt_status_t call_reduce(In& in, Out& out, int root, tnt_op_t op, tnt_stream_t stream, tnt_work_t* work) const {
    detail::check_sizes("reduce", std::size(in), std::size(out), rank_ != root || std::size(in) == std::size(out));
    return tnt_reduce(handle_, std::data(in), std::data(out), std::size(in), detail::common_dtype<In, Out>(), op, root, stream,
                      work);
  }
  template <typename In, typename Out>
  [[nodiscard]] tnt_status_t call_gather(In& in, Out& out, int root, tnt_stream_t stream, tnt_work_t* work) const {
    detail::check_sizes("gather", std::size(in), std::size(out), rank_ != root || std::size(out) == blocks() * std::size(in));
    return tnt_gather(handle_, std::data(in), std::data(out), std::size(in), detail::common_dtype<In, Out>(), root, stream,
                      work);
  }
  template <typename In, typename Out>
  [[nodiscard]] tnt_status_t call_scatter(In& in, Out& out, int root, tnt_stream_t stream, tnt_work_t* work) const {
    detail::check_sizes("scatter", std::size(in), std::size(out), rank_ != root || std::size(in) == blocks() * std::size(out));
    return tnt_scatter(handle_, std::data(in), std::data(out), std::size(out), detail::common_dtype<In, Out>(), root, stream,
                       work);
  }
  template <typename In, typename Out, typename Counts>
  [[nodiscard]] tnt_status_t call_all_gather_v(In& in, Out& out, Counts& counts, tnt_stream_t stream, tnt_work_t* work) const {
    const View<const std::size_t> list = checked_counts("all_gather_v", counts);
    detail::check_sizes("all_gather_v", std::size(in), std::size(out),
                        std::size(in) == own(list) && std::size(out) == sum(list));
    return tnt_all_gather_v(handle_, std::data(in), std::data(out), list.data(), detail::common_dtype<In, Out>(), stream, work);
  }
  template <typename In, typename Out, typename Counts>
  [[nodiscard]] tnt_status_t call_reduce_scatter_v(In& in, Out& out, Counts& counts, tnt_op_t op, tnt_stream_t stream,
                                                   tnt_work_t* work) const {
    const View<const std::size_t> list = checked_counts("reduce_scatter_v", counts);
    detail::check_sizes("reduce_scatter_v", std::size(in), std::size(out),
                        std::size(in) == sum(list) && std::size(out) == own(list));
    return tnt_reduce_scatter_v(handle_, std::data(in), std::data(out), list.data(), detail::common_dtype<In, Out>(), op,
                                stream, work);
  }
  template <typename In, typename Out, typename Counts>
  [[nodiscard]] tnt_status_t call_all_to_all_v(In& in, Out& out, Counts& send_counts, Counts& recv_counts, tnt_stream_t stream,
                                               tnt_work_t* work) const {
    const View<const std::size_t> sent = checked_counts("all_to_all_v", send_counts);
    const View<const std::size_t> received = checked_counts("all_to_all_v", recv_counts);
    detail::check_sizes("all_to_all_v", std::size(in), std::size(out),
                        std::size(in) == sum(sent) && std::size(out) == sum(received));
    return tnt_all_to_all_v(handle_, std::data(in), std::data(out), sent.data(), received.data(),
                            detail::common_dtype<In, Out>(), stream, work);
  }
  [[nodiscard]] View<const std::size_t> checked_counts(const char* call, View<const std::size_t> counts) const {
    if (counts.size() == blocks()) return counts;
    throw Error(TNT_INVALID_ARGUMENT, std::string(call) + ": there are " + std::to_string(counts.size()) + " counts of " +
                                          std::to_string(size_) + " ranks");
  }
  [[nodiscard]] std::size_t own(View<const std::size_t> counts) const { return counts[static_cast<std::size_t>(rank_)]; }
  [[nodiscard]] static std::size_t sum(View<const std::size_t> counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  }
  template <typename In>
  [[nodiscard]] tnt_status_t call_send(In& in, int to, tnt_stream_t stream, tnt_work_t* work) const {
    return tnt_send(handle_, std::data(in), std::size(in), DtypeOf<detail::Element<In>>::value, to, stream, work);
  }
  template <typename Out>
  [[nodiscard]] tnt_status_t call_recv(Out& out, int from, tnt_stream_t stream, tnt_work_t* work) const {
    return tnt_recv(handle_, std::data(out), std::size(out), DtypeOf<detail::Element<Out>>::value, from, stream, work);
  }

  tnt_comm_t handle_;
  int rank_;
  int size_;
  Owner owner_;  // of a group; empty for the world
};

// This process' part in the job, from tnt_init to tnt_finalize. Its end destroys all handles that are left, so it is made
// first.
class Job {
 public:
  // The place in the job comes from the environment.
  Job() { check(tnt_init(nullptr)); }
  explicit Job(const tnt_init_options_t& options) { check(tnt_init(&options)); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() { (void)tnt_finalize(); }

  // As the end, but throws what went wrong.
  void finalize() { check(tnt_finalize()); }
};

// A group of calls of this thread, which begin together when it ends: at end(), or at the end of its scope, which throws what
// went wrong. An exception that leaves the scope drops the calls. No start_... stands in a group.
class Group {
 public:
  Group() { check(tnt_group_start()); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() noexcept(false) {
    if (!open_) return;
    const bool unwinding = std::uncaught_exceptions() > exceptions_;
    if (unwinding) (void)tnt_barrier(nullptr, nullptr, nullptr);  // is refused, so the group begins nothing
    const tnt_status_t status = tnt_group_end();
    if (!unwinding) check(status);
  }
  void end() {
    open_ = false;
    check(tnt_group_end());
  }

 private:
  int exceptions_ = std::uncaught_exceptions();
  bool open_ = true;
};

// Fused, overlapped gradient reduction. Collective.
class Reducer {
 public:
  Reducer(const Comm& comm, View<const tnt_tensor_t> tensors,
          const tnt_reducer_options_t& options = TNT_REDUCER_OPTIONS_INITIALIZER) {
    tnt_reducer_t handle = nullptr;
    check(tnt_reducer_create(comm.get(), tensors.data(), tensors.size(), &options, &handle));
    handle_ = detail::Owned<tnt_reducer_t, tnt_reducer_destroy>(handle);
  }

  // The buffers are the reducer's until their bucket has been waited for.
  template <typename T>
  void ready(std::size_t tensor, const T* gradient, T* out, double scale = 1.0, tnt_stream_t stream = nullptr) const {
    check(tnt_reducer_ready(get(), tensor, gradient, out, scale, stream));
  }
  // outs and scales may be null: no results are wanted, all scales are 1.
  void ready_many(const std::size_t* tensors, const void* const* gradients, void* const* outs, const double* scales,
                  std::size_t n, tnt_stream_t stream = nullptr) const {
    check(tnt_reducer_ready_many(get(), tensors, gradients, outs, scales, n, stream));
  }
  void wait_bucket(std::size_t bucket, tnt_stream_t stream = nullptr) const {
    check(tnt_reducer_wait_bucket(get(), bucket, stream));
  }
  void finish(tnt_stream_t stream = nullptr) const { check(tnt_reducer_finish(get(), stream)); }

  [[nodiscard]] std::size_t bucket_count() const {
    std::size_t count = 0;
    check(tnt_reducer_bucket_count(get(), &count));
    return count;
  }
  [[nodiscard]] tnt_bucket_t bucket(std::size_t index) const {
    tnt_bucket_t found = TNT_BUCKET_INITIALIZER;
    check(tnt_reducer_bucket(get(), index, &found));
    return found;
  }
  [[nodiscard]] tnt_reducer_stats_t stats() const {
    tnt_reducer_stats_t found = TNT_REDUCER_STATS_INITIALIZER;
    check(tnt_reducer_stats(get(), &found));
    return found;
  }
  // For functions of the C API that have no counterpart here.
  [[nodiscard]] tnt_reducer_t get() const noexcept { return handle_.get(); }

 private:
  detail::Owned<tnt_reducer_t, tnt_reducer_destroy> handle_;
};

}  // namespace tarantella

#endif  // TARANTELLA_TARANTELLA_HPP
