// An operation that was started, and the buffers that it uses.
#pragma once

#include <nanobind/ndarray.h>

#include <memory>
#include <utility>
#include <vector>

#include "native/call.hpp"

namespace tnt::native {

using In = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Out = nb::ndarray<nb::c_contig, nb::device::cpu>;

// A started operation, which uses its buffers until it has ended. A Work that is dropped earlier puts them on a list of
// abandoned operations, which later calls clean up.
class Work {
 public:
  Work(tnt_comm_t comm, tnt_work_t handle, In in, Out out)
      : comm_(comm), operation_{Handle(handle), std::move(in), std::move(out)} {}
  ~Work() {
    forget_finished();
    if (!finished_ && operation_.runs()) abandoned().push_back(std::move(operation_));
  }

  [[nodiscard]] bool test() {
    if (!finished_) finished_ = !operation_.runs();
    return finished_;
  }

  // Waits in short intervals, so that signals are handled. A caller that continues must not leave its buffers to a running
  // operation, so an interrupt aborts the job and with it the operation.
  void wait() {
    tnt_status_t status = TNT_SUCCESS;
    int finished = 0;
    while (finished == 0) {
      {
        const nb::gil_scoped_release released;
        status = tnt_work_wait(operation_.handle.get(), 0.1);
        if (status != TNT_SUCCESS)
          status = tnt_work_test(operation_.handle.get(), &finished);  // 1 also if this fails
        else
          finished = 1;
      }
      if (finished == 0 && PyErr_CheckSignals() != 0) {
        tnt_comm_abort(comm_, "interrupted");
        {
          const nb::gil_scoped_release released;
          tnt_work_wait(operation_.handle.get(), -1.0);
        }
        finished_ = true;
        throw nb::python_error();
      }
    }
    finished_ = true;
    check(status);
  }

  static void forget_finished() {
    std::erase_if(abandoned(), [](const Operation& operation) { return !operation.runs(); });
  }

 private:
  struct Destroy {
    void operator()(tnt_work_t work) const { tnt_work_destroy(work); }
  };
  using Handle = std::unique_ptr<tnt_work, Destroy>;
  struct Operation {
    Handle handle;
    In in;
    Out out;
    [[nodiscard]] bool runs() const {
      int finished = 1;
      tnt_work_test(handle.get(), &finished);
      return finished == 0;
    }
  };

  static std::vector<Operation>& abandoned() {
    static auto* const list = new std::vector<Operation>;  // never destroyed: an operation may still run at exit
    return *list;
  }

  tnt_comm_t comm_;
  Operation operation_;
  bool finished_ = false;
};

}  // namespace tnt::native
