// What TensorFlow would make of a graph for a real GPU and the stand-in cannot run.
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tensorflow/c/experimental/grappler/grappler.h"
#include "tensorflow/compiler/jit/xla_kernel_creator.h"
#include "tensorflow/core/common_runtime/function.h"
#include "tensorflow/core/framework/device.h"
#include "tensorflow/core/framework/function.h"

using namespace tensorflow;  // NOLINT

namespace {

// XLA has no compiler for the stand-in: a function that wants to be compiled runs there operation by operation.
class OnlyForOthers : public XlaKernelCreator {
 public:
  bool CanCreateKernel(const FunctionLibraryRuntime& runtime,
                       const std::shared_ptr<const NodeProperties>& properties) const override {
    const Device* device = runtime.device();
    return !(device && device->device_type() == DEVICE_GPU) && XlaKernelCreator::CanCreateKernel(runtime, properties);
  }
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
