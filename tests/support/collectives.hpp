// Collectives and messages as functions with arguments, on host and devices: for tests that make many calls.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

#include "comm/communicator.hpp"
#include "comm/device_communicator.hpp"

namespace tnt {

// The last argument: the context of a call on the host, the detail of one on devices.
template <typename Comm>
using ContextOf = std::conditional_t<std::is_base_of_v<DeviceCommunicator, Comm>, std::string_view, CallContext>;

inline void all_reduce(Communicator& comm, const FusedBuffer& fused, tnt_op_t op, const CallContext& context) {
  comm.run(fused_all_reduce(fused, op), context);
}

inline void reduce_to_owners(Communicator& comm, const FusedBuffer& fused, std::span<const int> owners, tnt_op_t op,
                             const CallContext& context) {
  comm.run(fused_all_reduce(fused, op, owners), context);
}

inline void all_reduce_scaled(DeviceCommunicator& comm, const void* in, void* out, std::size_t count, tnt_dtype_t dtype,
                              double scale, std::string_view detail) {
  comm.run({{.kind = Call::all_reduce, .dtype = dtype, .count = count}, in, out, {}, {}, scale}, detail);
}

template <typename Comm>
void all_reduce(Comm& comm, const void* in, void* out, std::size_t count, tnt_dtype_t dtype, tnt_op_t op,
                const ContextOf<Comm>& context) {
  comm.run({{.kind = Call::all_reduce, .dtype = dtype, .op = op, .count = count}, in, out}, context);
}

template <typename Comm>
void reduce(Comm& comm, const void* in, void* out, std::size_t count, tnt_dtype_t dtype, tnt_op_t op, int root,
            const ContextOf<Comm>& context) {
  comm.run({{.kind = Call::reduce, .dtype = dtype, .op = op, .root = root, .count = count}, in, out}, context);
}

template <typename Comm>
void reduce_scatter(Comm& comm, const void* in, void* out, std::size_t count, tnt_dtype_t dtype, tnt_op_t op,
                    const ContextOf<Comm>& context) {
  comm.run({{.kind = Call::reduce_scatter, .dtype = dtype, .op = op, .count = count}, in, out}, context);
}

template <typename Comm>
void reduce_scatter_v(Comm& comm, const void* in, void* out, std::span<const std::size_t> counts, tnt_dtype_t dtype,
                      tnt_op_t op, const ContextOf<Comm>& context) {
  comm.run({uneven_call(Call::reduce_scatter_v, counts, dtype, op), in, out, counts}, context);
}

template <typename Comm>
void all_gather(Comm& comm, const void* in, void* out, std::size_t count, tnt_dtype_t dtype, const ContextOf<Comm>& context) {
  comm.run({{.kind = Call::all_gather, .dtype = dtype, .count = count}, in, out}, context);
}

template <typename Comm>
void all_gather_v(Comm& comm, const void* in, void* out, std::span<const std::size_t> counts, tnt_dtype_t dtype,
                  const ContextOf<Comm>& context) {
  comm.run({uneven_call(Call::all_gather_v, counts, dtype), in, out, counts}, context);
}

template <typename Comm>
void all_to_all(Comm& comm, const void* in, void* out, std::size_t count, tnt_dtype_t dtype, const ContextOf<Comm>& context) {
  comm.run({{.kind = Call::all_to_all, .dtype = dtype, .count = count}, in, out}, context);
}

template <typename Comm>
void all_to_all_v(Comm& comm, const void* in, void* out, std::span<const std::size_t> send_counts,
                  std::span<const std::size_t> recv_counts, tnt_dtype_t dtype, const ContextOf<Comm>& context) {
  comm.run({{.kind = Call::all_to_all_v, .dtype = dtype}, in, out, send_counts, recv_counts}, context);
}

template <typename Comm>
void broadcast(Comm& comm, const void* in, void* out, std::size_t count, tnt_dtype_t dtype, int root,
               const ContextOf<Comm>& context) {
  comm.run({{.kind = Call::broadcast, .dtype = dtype, .root = root, .count = count}, in, out}, context);
}

template <typename Comm>
void gather(Comm& comm, const void* in, void* out, std::size_t count, tnt_dtype_t dtype, int root,
            const ContextOf<Comm>& context) {
  comm.run({{.kind = Call::gather, .dtype = dtype, .root = root, .count = count}, in, out}, context);
}

template <typename Comm>
void scatter(Comm& comm, const void* in, void* out, std::size_t count, tnt_dtype_t dtype, int root,
             const ContextOf<Comm>& context) {
  comm.run({{.kind = Call::scatter, .dtype = dtype, .root = root, .count = count}, in, out}, context);
}

template <typename Comm>
void send(Comm& comm, const void* in, std::size_t count, tnt_dtype_t dtype, int to, const ContextOf<Comm>& context) {
  comm.run({{.kind = Call::send, .dtype = dtype, .root = to, .count = count}, in}, context);
}

template <typename Comm>
void recv(Comm& comm, void* out, std::size_t count, tnt_dtype_t dtype, int from, const ContextOf<Comm>& context) {
  comm.run({{.kind = Call::recv, .dtype = dtype, .root = from, .count = count}, nullptr, out}, context);
}

inline void barrier(Communicator& comm, const CallContext& context) { comm.run({{.kind = Call::barrier}}, context); }

}  // namespace tnt
