#include "reducer/progress_engine.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/log.hpp"
#include "base/thread.hpp"
#include "common/error.hpp"

namespace tnt {

ProgressEngine::~ProgressEngine() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  for (std::thread& thread : retired_) thread.join();
}

ProgressEngine::Entry& ProgressEngine::entry_of(const Client& client) {
  return *std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.client == &client; });
}

std::vector<ProgressEngine::Entry>::iterator ProgressEngine::next() {
  return std::find_if(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.due && !entry.served; });
}

void ProgressEngine::add(Client& client) {
  const std::scoped_lock lock(mutex_);
  if (threads_.empty()) threads_.push_back(start_thread("tnt-reducer", [this] { loop(); }));
  entries_.push_back({.client = &client});
}

void ProgressEngine::remove(Client& client) {
  std::unique_lock lock(mutex_);
  served_.wait(lock, [&] { return !entry_of(client).served; });
  std::erase_if(entries_, [&](const Entry& entry) { return entry.client == &client; });
}

void ProgressEngine::wake(Client& client) {
  const std::scoped_lock lock(mutex_);
  Entry& entry = entry_of(client);
  entry.due = true;
  if (!entry.served) wake_or_start();
}

void ProgressEngine::look_for_overdue() {
  const std::scoped_lock lock(mutex_);
  mark_overdue();
  wake_or_start();
}

std::size_t ProgressEngine::threads() const {
  const std::scoped_lock lock(mutex_);
  return threads_.size();
}

std::size_t ProgressEngine::busy() const {
  const std::scoped_lock lock(mutex_);
  return served();
}

std::size_t ProgressEngine::served() const {
  return static_cast<std::size_t>(
      std::count_if(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.served; }));
}

void ProgressEngine::mark_overdue() {
  for (Entry& entry : entries_) entry.due = entry.due || entry.client->is_overdue();
}

void ProgressEngine::wake_or_start() {
  const auto waiting = static_cast<std::size_t>(
      std::count_if(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.due && !entry.served; }));
  if (waiting + served() > threads_.size()) {
    start_another();
  } else if (waiting > 0) {
    changed_.notify_one();
  }
}

void ProgressEngine::start_another() {
  for (std::thread& thread : retired_) thread.join();
  retired_.clear();
  try {
    threads_.push_back(start_thread("tnt-reducer", [this] { loop(); }));
  } catch (const Error& error) {
    if (!std::exchange(warned_, true)) {
      log(LogLevel::warning, "several reducers share a thread, and may wait for one another: {}", error.what());
    }
  }
}

// Of a thread that had nothing to do: it ends if another one has nothing to do either.
bool ProgressEngine::retire() {
  if (threads_.size() <= served() + 1) return false;
  const auto own = std::find_if(threads_.begin(), threads_.end(),
                                [](const std::thread& thread) { return thread.get_id() == std::this_thread::get_id(); });
  retired_.push_back(std::move(*own));
  threads_.erase(own);
  return true;
}

void ProgressEngine::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (const auto found = next(); found != entries_.end()) {
      Client& client = *found->client;
      found->due = false;
      found->served = true;
      wake_or_start();  // for others that are due
      lock.unlock();
      client.serve();
      lock.lock();
      entry_of(client).served = false;  // entries may have moved
      served_.notify_all();
      continue;
    }
    if (stopping_) return;
    const bool is_woken = changed_.wait_for(lock, max_delay, [&] { return stopping_ || next() != entries_.end(); });
    if (is_woken) continue;
    mark_overdue();
    if (next() == entries_.end() && retire()) return;
  }
}

}  // namespace tnt
