// A stream of the fake device: a thread that does one piece of work after another.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

// What an event waits for: the place in a stream where it was recorded last.
struct SP_Event_st {
  struct Place {
    std::mutex mutex;
    std::condition_variable changed;
    bool reached = false;
  };

  std::shared_ptr<Place> place = std::make_shared<Place>();
};

struct SP_Stream_st {
 public:
  SP_Stream_st();
  ~SP_Stream_st();
  SP_Stream_st(const SP_Stream_st&) = delete;
  SP_Stream_st& operator=(const SP_Stream_st&) = delete;

  void enqueue(std::function<void()> work);

  // The event is reached when all work that was enqueued before is done.
  void record(SP_Event_st& event);

  // Work that is enqueued later begins when the event is reached.
  void wait_for(const SP_Event_st& event);

  // Blocks the caller until all work is done.
  void finish();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool ends_ = false;
  std::thread thread_;
};

namespace fake_device {

void wait_for(SP_Event_st::Place& place);

}  // namespace fake_device
