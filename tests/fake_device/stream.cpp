#include "stream.hpp"

#include <utility>

namespace fake_device {

void wait_for(SP_Event_st::Place& place) {
  std::unique_lock lock{place.mutex};
  place.changed.wait(lock, [&place] { return place.reached; });
}

}  // namespace fake_device

SP_Stream_st::SP_Stream_st() : thread_{[this] { run(); }} {}

SP_Stream_st::~SP_Stream_st() {
  {
    const std::lock_guard lock{mutex_};
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SP_Stream_st::enqueue(std::function<void()> work) {
  {
    const std::lock_guard lock{mutex_};
    queue_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void SP_Stream_st::record(SP_Event_st& event) {
  event.place = std::make_shared<SP_Event_st::Place>();
  enqueue([place = event.place] {
    {
      const std::lock_guard lock{place->mutex};
      place->reached = true;
    }
    place->changed.notify_all();
  });
}

void SP_Stream_st::wait_for(const SP_Event_st& event) {
  enqueue([place = event.place] { fake_device::wait_for(*place); });
}

void SP_Stream_st::finish() {
  SP_Event_st event;
  record(event);
  fake_device::wait_for(*event.place);
}

void SP_Stream_st::run() {
  std::unique_lock lock{mutex_};
  while (true) {
    changed_.wait(lock, [this] { return ends_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
    lock.lock();
  }
}
