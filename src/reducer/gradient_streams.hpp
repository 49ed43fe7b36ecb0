// The streams that compute the gradients of one bucket in one step.
#pragma once

#include <thread>
#include <vector>

#include "device/handles.hpp"

namespace tnt {

class GradientStreams {
 public:
  // Called by the thread that hands the gradient over.
  void add(Device& device, StreamHandle stream);
  // Makes `stream` wait for what was enqueued on all of them so far, on a thread's cudaStreamPerThread for what was enqueued
  // when it was added. Then there are none. joined: the streams that it waits for already, since all gradients were added;
  // those of this call are appended.
  void join(Device& device, StreamHandle stream, std::vector<StreamHandle>& joined);

 private:
  struct ThreadStream {  // only the thread itself can name its stream, so its event is recorded at once
    std::thread::id thread;
    Event event;
    bool used = false;
  };
  void add_of_thread(Device& device, StreamHandle stream);

  std::vector<StreamHandle> streams_;
  std::vector<Event> events_;  // one for each stream
  std::vector<ThreadStream> thread_streams_;
};

}  // namespace tnt
