// The object behind a tnt_work_t.
#pragma once

#include <memory>
#include <utility>

#include "api/handles.hpp"
#include "comm/executor.hpp"

struct tnt_work {
  std::shared_ptr<tnt::Waitable> state;
};

namespace tnt {

[[nodiscard]] inline tnt_work_t make_work(std::shared_ptr<Waitable> state) {
  return make_handle(std::make_unique<tnt_work>(tnt_work{std::move(state)}));
}

}  // namespace tnt
