// The factory of the devices. TensorFlow has one for plugins, which knows neither partitions nor limits to memory; this
// one obeys tf.config.set_logical_device_configuration as the factory for CUDA does.
#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tensorflow/core/common_runtime/device/device_id.h"
#include "tensorflow/core/common_runtime/device/device_id_manager.h"
#include "tensorflow/core/common_runtime/pluggable_device/pluggable_device.h"
#include "tensorflow/core/common_runtime/pluggable_device/pluggable_device_factory.h"
#include "tensorflow/core/common_runtime/pluggable_device/pluggable_device_process_state.h"
#include "tensorflow/core/common_runtime/process_state.h"
#include "tensorflow/core/framework/device_factory.h"
#include "tensorflow/core/public/session_options.h"

extern "C" {
#include "fakegpu.h"
}

using namespace tensorflow;  // NOLINT

namespace {

constexpr char kPlatform[] = "FAKEGPU";
constexpr int kFactoryPriority = 230;  // above the factory that TensorFlow makes for a plugin, 220

class FakeGpuFactory : public DeviceFactory {
 public:
  FakeGpuFactory() : whole_(DEVICE_GPU, kPlatform) {}

  absl::Status ListPhysicalDevices(std::vector<std::string>* devices) override {
    return whole_.ListPhysicalDevices(devices);
  }

  absl::Status GetDeviceDetails(int index, std::unordered_map<std::string, std::string>* details) override {
    (*details)["device_name"] = fakegpu_settings()->name;
    (*details)["compute_capability"] = fakegpu_settings()->capability;
    return absl::OkStatus();
  }

  // Python takes this factory for that of a real GPU and fills gpu_options; the allocator of a plugin reads
  // pluggable_device_options.
  absl::Status CreateDevices(const SessionOptions& given, const std::string& prefix,
                             std::vector<std::unique_ptr<Device>>* devices) override {
    SessionOptions options = given;
    GPUOptions& gpus = *options.config.mutable_pluggable_device_options();
    gpus = given.config.gpu_options();
    const std::vector<std::string> visible = Split(gpus.visible_device_list());
    const auto count = options.config.device_count().find("GPU");
    const int wanted = count == options.config.device_count().end() ? MAX_GPUS : count->second;
    const int gpus_here = visible.empty() ? fakegpu_settings()->visible_count : static_cast<int>(visible.size());
    const auto& partitions = gpus.experimental().virtual_devices();
    int next = 0, least = 0;  // as the factory for CUDA leaves the small GPUs of displays alone
    for (int i = 0; i < gpus_here; i++)
      least = std::max(least, std::min(8, Multiprocessors(visible.empty() ? i : std::stoi(visible[i]))));
    for (int i = 0; i < std::min(wanted, gpus_here) && (partitions.empty() || i < partitions.size()); i++) {
      const int ordinal = visible.empty() ? i : std::stoi(visible[i]);
      if (Multiprocessors(ordinal) < least) {
        LOG(INFO) << "Ignoring visible gpu device (device: " << ordinal << ") with core count: " << Multiprocessors(ordinal)
                  << ". The minimum required count is " << least << ".";
        continue;
      }
      std::vector<int64_t> limits;
      if (!partitions.empty())
        for (float limit_mb : partitions[i].memory_limit_mb()) limits.push_back(static_cast<int64_t>(limit_mb) << 20);
      if (limits.empty()) limits.push_back(WithoutSystemMemory(fakegpu_free_bytes(ordinal)));
      for (int64_t limit : limits) TF_RETURN_IF_ERROR(CreateOne(options, prefix, next++, ordinal, limit, devices));
    }
    return absl::OkStatus();
  }

 private:
  static std::vector<std::string> Split(const std::string& text) {
    std::vector<std::string> words;
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find(',', at), text.size());
      words.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    return words;
  }

  static int Multiprocessors(int ordinal) {
    return fakegpu_settings()->multiprocessors[fakegpu_settings()->visible[ordinal]];
  }

  static int64_t WithoutSystemMemory(int64_t free) { return free - std::max<int64_t>(300LL << 20, free / 16); }

  static absl::Status CreateOne(const SessionOptions& options, const std::string& prefix, int index, int ordinal,
                                int64_t limit, std::vector<std::unique_ptr<Device>>* devices) {
    const TfDeviceId id(index);
    TF_RETURN_IF_ERROR(
        DeviceIdManager::InsertTfPlatformDeviceIdPair(DeviceType(DEVICE_GPU), id, PlatformDeviceId(ordinal)));
    Allocator* memory = PluggableDeviceProcessState::singleton(DEVICE_GPU, kPlatform)
                            ->GetPluggableDeviceAllocator(options.config.pluggable_device_options(), id,
                                                          static_cast<size_t>(limit));
    const std::string name = prefix + "/device:GPU:" + std::to_string(index);
    char bus[FAKEGPU_BUS];
    fakegpu_bus(fakegpu_settings()->visible[ordinal], bus);
    const std::string what = "device: " + std::to_string(ordinal) + ", name: " + fakegpu_settings()->name +
                             ", pci bus id: " + bus + ", compute capability: " + fakegpu_settings()->capability;
    DeviceLocality place;
    place.set_bus_id(1);
    auto device = std::make_unique<PluggableDevice>(options, name, DEVICE_GPU, kPlatform, Bytes(limit), place, id, what,
                                                    memory, ProcessState::singleton()->GetCPUAllocator(0),
                                                    /*sync_every_op=*/false);
    TF_RETURN_IF_ERROR(device->Init(options));
    LOG(INFO) << "Created device " << name << " with " << (limit >> 20) << " MB memory:  -> " << what;
    devices->push_back(std::move(device));
    return absl::OkStatus();
  }

  PluggableDeviceFactory whole_;
};

const bool factory_registered = [] {
  DeviceFactory::Register(DEVICE_GPU, std::make_unique<FakeGpuFactory>(), kFactoryPriority, /*is_pluggable_device=*/false);
  return true;
}();

}  // namespace
