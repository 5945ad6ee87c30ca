// What TensorFlow would make of a graph for a real GPU and the stand-in cannot run.
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tensorflow/c/experimental/grappler/grappler.h"
#include "tensorflow/compiler/jit/xla_kernel_creator.h"
#include "tensorflow/core/common_runtime/function.h"
#include "tensorflow/core/framework/device.h"
#include "tensorflow/core/framework/function.h"

extern "C" {
#include "fakegpu.h"
}

using namespace tensorflow;  // NOLINT

namespace {

// What XLA of TensorFlow 2.21 says of a convolution with a cuDNN before 9.24 (aws/deep-learning-containers#6418).
constexpr char kNoConfigs[] =
    "Autotuner could not find any supported configs for HLO: %cudnn-conv-bias-activation.7 = (f32[64,16,8,8]{3,2,1,0}, "
    "u8[0]{0}) custom-call(%a, %b, %c), custom_call_target=\"__cudnn$convBiasActivationForward\"";

// XLA has no compiler for the stand-in: a function that wants to be compiled runs there operation by operation, or
// fails with the setting `xla_fails`.
class OnlyForOthers : public XlaKernelCreator {
 public:
  bool CanCreateKernel(const FunctionLibraryRuntime& runtime,
                       const std::shared_ptr<const NodeProperties>& properties) const override {
    const Device* device = runtime.device();
    return (*fakegpu_settings()->xla_fails || !IsGpu(device)) && XlaKernelCreator::CanCreateKernel(runtime, properties);
  }

  absl::Status CreateKernel(FunctionLibraryRuntime* runtime, const std::shared_ptr<const NodeProperties>& properties,
                            std::unique_ptr<OpKernel>* kernel) const override {
    const char* text = fakegpu_settings()->xla_fails;
    if (IsGpu(runtime->device())) return absl::InternalError(std::strcmp(text, "1") ? text : kNoConfigs);
    return XlaKernelCreator::CreateKernel(runtime, properties, kernel);
  }

 private:
  static bool IsGpu(const Device* device) { return device && device->device_type() == DEVICE_GPU; }
};

const bool creator_registered = [] {
  RegisterDefaultCustomKernelCreator(new OnlyForOthers);  // deletes the one that was there
  return true;
}();

void* Create() { return nullptr; }
void Destroy(void*) {}

void LeaveAsItIs(void*, const TF_Buffer* graph, const TF_GrapplerItem*, TF_Buffer* same, TF_Status* status) {
  void* data = std::malloc(graph->length);
  std::memcpy(data, graph->data, graph->length);
  same->data = data;
  same->length = graph->length;
  same->data_deallocator = [](void* bytes, size_t) { std::free(bytes); };
  TF_SetStatus(status, TF_OK, "");
}

}  // namespace

// Convolutions keep their layout: the CPU's kernels have no other.
extern "C" void TF_InitGraph(TP_OptimizerRegistrationParams* params, TF_Status* status) {
  params->struct_size = TP_OPTIMIZER_REGISTRATION_PARAMS_STRUCT_SIZE;
  params->device_type = "GPU";
  params->optimizer_configs->struct_size = TP_OPTIMIZER_CONFIGS_STRUCT_SIZE;
  params->optimizer_configs->layout_optimizer = TF_TriState_Off;
  params->optimizer->struct_size = TP_OPTIMIZER_STRUCT_SIZE;
  params->optimizer->create_func = Create;
  params->optimizer->optimize_func = LeaveAsItIs;
  params->optimizer->destroy_func = Destroy;
  TF_SetStatus(status, TF_OK, "");
}
