#include "device/devices.hpp"

#include <filesystem>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/log.hpp"
#include "base/plugin.hpp"
#include "device/device_plugin.hpp"

namespace tnt {
namespace {

constexpr PluginName cuda_plugin{.file = "libtarantella_cuda.so",
                                 .symbol = device_plugin_symbol,
                                 .missing = "GPUs need: build it again on a machine with a CUDA toolkit (nvcc) or HIP (hipcc)",
                                 .unloadable = "build it again on this machine"};
constexpr PluginName hip_plugin{.file = "libtarantella_hip.so",
                                .symbol = device_plugin_symbol,
                                .missing = "AMD's GPUs need: build it again on a machine with HIP (hipcc)",
                                .unloadable = "install the ROCm that it was built with, or build it again on this machine"};

std::shared_ptr<Device> open_plugin_device(const DevicePlugin& plugin, int index) {
  tnt_status_t status = TNT_SYSTEM;
  std::string message;
  Device* device = plugin.open(index, &status, &message);
  if (device == nullptr) throw Error(status, message);
  return std::shared_ptr<Device>(device);
}

int device_of_plugin_stream(const DevicePlugin& plugin, StreamHandle stream) {
  tnt_status_t status = TNT_SYSTEM;
  std::string message;
  const int index = plugin.device_of(stream, &status, &message);
  if (index < 0) throw Error(status, message);
  return index;
}

DeviceSource plugin_devices(const PluginName& name) {
  DeviceSource source;
  try {
    const auto& plugin = load_plugin_as<DevicePlugin>(name);
    source.count = plugin.count(&source.why_none);
    source.open = [&plugin](int index) { return open_plugin_device(plugin, index); };
    source.device_of = [&plugin](StreamHandle stream) { return device_of_plugin_stream(plugin, stream); };
  } catch (const Error& error) {
    source.why_none = error.what();
  }
  return source;
}

bool is_there(const std::filesystem::path& path) {
  std::error_code unreadable;
  return std::filesystem::exists(path, unreadable);
}

// A plug-in that this installation lacks is not mentioned beside the other one. Beside NVIDIA's devices, AMD's runtime is
// loaded only if AMD's driver is there, too.
DeviceSource machine_devices() {
  const bool has_hip = is_there(plugin_folder() / hip_plugin.file);
  if (has_hip && !is_there(plugin_folder() / cuda_plugin.file)) return plugin_devices(hip_plugin);
  DeviceSource nvidia = plugin_devices(cuda_plugin);
  if (!has_hip || (nvidia.count > 0 && !is_there("/dev/kfd"))) return nvidia;
  return chosen_devices(std::move(nvidia), plugin_devices(hip_plugin));
}

struct OpenDevices {
  std::mutex mutex;
  const DeviceSource* for_tests = nullptr;
  std::map<int, std::weak_ptr<Device>> open;
  bool logged = false;

  [[nodiscard]] const DeviceSource& source() const {
    if (for_tests != nullptr) return *for_tests;
    static const DeviceSource found = machine_devices();
    return found;
  }
};

OpenDevices& open_devices() {
  static OpenDevices devices;
  return devices;
}

}  // namespace

DeviceSource chosen_devices(DeviceSource nvidia, DeviceSource amd) {
  if (nvidia.count > 0 && amd.count > 0) {
    log(LogLevel::warning,
        "this machine has devices of two vendors, {} of NVIDIA and {} of AMD: NVIDIA's are used (CUDA_VISIBLE_DEVICES=-1 hides "
        "them, and AMD's are used)",
        nvidia.count, amd.count);
  }
  if (nvidia.count > 0) return nvidia;
  if (amd.count == 0) amd.why_none = fmt::format("{}; {}", nvidia.why_none, amd.why_none);
  return amd;
}

int device_count() {
  OpenDevices& all = open_devices();
  const std::scoped_lock lock(all.mutex);
  const DeviceSource& source = all.source();
  if (source.count == 0 && !std::exchange(all.logged, true)) log(LogLevel::info, "no GPU is used: {}", source.why_none);
  return source.count;
}

const std::string& why_no_device() {
  const std::scoped_lock lock(open_devices().mutex);
  return open_devices().source().why_none;
}

std::shared_ptr<Device> open_device(int index) {
  OpenDevices& all = open_devices();
  const std::scoped_lock lock(all.mutex);
  const DeviceSource& source = all.source();
  if (source.count == 0) fail(TNT_UNSUPPORTED, "device {} cannot be used: {}", index, source.why_none);
  if (index < 0 || index >= source.count) {
    fail(TNT_INVALID_ARGUMENT, "there is no device {}: this process has {}, counted from 0", index, source.count);
  }
  auto device = all.open[index].lock();
  if (device == nullptr) all.open[index] = device = source.open(index);
  return device;
}

int device_of_stream(StreamHandle stream) {
  OpenDevices& all = open_devices();
  const std::scoped_lock lock(all.mutex);
  const DeviceSource& source = all.source();
  if (source.count == 0) fail(TNT_UNSUPPORTED, "stream is not NULL, but there is no device: {}", source.why_none);
  return source.device_of(stream);
}

void set_device_source_for_tests(const DeviceSource* source) {
  const std::scoped_lock lock(open_devices().mutex);
  open_devices().for_tests = source;
  open_devices().open.clear();
  open_devices().logged = false;
}

}  // namespace tnt
