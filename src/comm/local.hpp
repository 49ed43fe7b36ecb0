// The communicator of a single rank: every collective is a copy.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include "comm/communicator.hpp"
#include "common/error.hpp"

namespace tnt {

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator() : LocalCommunicator(std::make_shared<AbortState>()) {}

  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int size() const noexcept override { return 1; }
  [[nodiscard]] int local_rank() const noexcept override { return 0; }
  [[nodiscard]] int local_size() const noexcept override { return 1; }
  [[nodiscard]] const char* transport() const noexcept override { return "local"; }
  [[nodiscard]] bool defers_cancellation() const noexcept override { return true; }

  void run(const Collective& call, const CallContext& context) override;
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key, const CallContext& context) override;
  [[nodiscard]] std::unique_ptr<Communicator> create_group(std::span<const int> /*members*/, int /*tag*/,
                                                           const CallContext& context) override {
    return split(0, 0, context);
  }
  [[nodiscard]] std::unique_ptr<Communicator> duplicate(const CallContext& context) override;
  [[nodiscard]] ErrorScope error_scope() const noexcept override {
    return own_ == job_ ? ErrorScope::job : ErrorScope::communicator;
  }
  void set_error_scope(ErrorScope scope) override;
  [[nodiscard]] std::unique_ptr<Communicator> shrink(const CallContext& context) override;
  void abort(tnt_status_t status, const std::string& message) noexcept override;
  void cancel() noexcept override {}
  [[nodiscard]] std::optional<Error> async_error() const noexcept override;

 private:
  // The error of an abort.
  struct AbortState {
    std::atomic<bool> set{false};
    std::mutex mutex;
    std::optional<Error> error;
  };

  explicit LocalCommunicator(std::shared_ptr<AbortState> job) : job_(std::move(job)), own_(job_) {}
  void check() const;  // throws the error of an abort
  void all_reduce(const FusedBuffer& fused, tnt_op_t op, const CallContext& context);
  [[nodiscard]] std::unique_ptr<LocalCommunicator> make_part() const;

  std::shared_ptr<AbortState> job_;  // of the communicator of the job, shared by all that are made of it
  std::shared_ptr<AbortState> own_;  // the same, or one of its own
  bool was_shrunk_ = false;
};

}  // namespace tnt
