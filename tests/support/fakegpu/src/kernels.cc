// Kernels for the stand-in: the operation's CPU kernel, run on the device's own memory, which lies in the host's.
//
// A kernel of the CPU asks its context for memory, so that its outputs and what it needs meanwhile are taken from the
// allocator of the device, are counted there, and run out there as with a real GPU. All that the CPU computes on
// numbers is registered, with a priority above that of CUDA's kernels, which a TensorFlow built for CUDA also has. What
// TensorFlow registers for every device (DEFAULT) stays as it is.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "tensorflow/c/kernels.h"
#include "tensorflow/core/framework/kernel_def.pb.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_def.pb.h"
#include "tensorflow/core/framework/op_kernel.h"

extern "C" {
#include "fakegpu.h"
}

using namespace tensorflow;  // NOLINT

namespace {

constexpr int kKernelPriority = 100;

// Of the first convolution alone.
int64_t TakeConvScratch() {
  static std::atomic<bool> taken{false};
  return taken.exchange(true) ? 0 : fakegpu_settings()->conv_scratch;
}

class OnTheHost : public OpKernel {
 public:
  explicit OnTheHost(OpKernelConstruction* context) : OpKernel(context) {
    std::shared_ptr<const NodeProperties> properties;
    OP_REQUIRES_OK(context,
                   NodeProperties::CreateFromNodeDef(context->def(), OpRegistry::Global(), &properties));
    OpKernel* made = nullptr;
    OP_REQUIRES_OK(context, CreateOpKernel(DeviceType(DEVICE_CPU), context->device(),
                                           context->device()->GetAllocator(AllocatorAttributes()),
                                           context->function_library(), context->resource_manager(), properties,
                                           context->graph_def_version(), &made));
    kernel_.reset(made);
  }

  void Compute(OpKernelContext* context) override {
    const int64_t since = fakegpu_now();
    Tensor scratch;
    const int64_t bytes = type_string() == "Conv2D" ? TakeConvScratch() : 0;
    if (bytes) OP_REQUIRES_OK(context, context->allocate_temp(DT_UINT8, TensorShape({bytes}), &scratch));
    kernel_->Compute(context);
    TF_Status* status = TF_NewStatus();
    SP_Stream stream = TF_GetStream(reinterpret_cast<TF_OpKernelContext*>(context), status);
    if (TF_GetCode(status) == TF_OK) fakegpu_kernel(stream, type_string().c_str(), fakegpu_now() - since);
    TF_DeleteStatus(status);
  }

  bool IsExpensive() override { return kernel_->IsExpensive(); }

 private:
  std::unique_ptr<OpKernel> kernel_;
};

class Missing : public OpKernel {
 public:
  explicit Missing(OpKernelConstruction* context) : OpKernel(context) {}
  void Compute(OpKernelContext* context) override {
    context->CtxFailure(absl::UnimplementedError("the stand-in for a GPU cannot compute " + type_string()));
  }
};

template <class Kernel>
class Factory : public kernel_factory::OpKernelFactory {
 public:
  OpKernel* Create(OpKernelConstruction* context) override { return new Kernel(context); }
};

template <class Kernel>
void Register(const KernelDef& definition) {
  auto* own = new KernelDef(definition);
  own->set_device_type(DEVICE_GPU);
  own->set_priority(definition.priority() + kKernelPriority);
  kernel_factory::OpKernelRegistrar(own, "FakeGpu" + definition.op(), std::make_unique<Factory<Kernel>>());
}

using Definitions = std::vector<const KernelDef*>;
using Types = std::set<int>;

// What a kernel allows for an attribute that is a type; nothing for one that it says nothing about.
const AttrValue::ListValue* Allowed(const KernelDef& kernel, const std::string& attribute) {
  for (const auto& constraint : kernel.constraint())
    if (constraint.name() == attribute) return &constraint.allowed_values().list();
  return nullptr;
}

bool Within(const KernelDef& part, const KernelDef& whole) {
  for (const auto& constraint : whole.constraint()) {
    const auto* types = Allowed(part, constraint.name());
    if (!types) return false;
    const auto& list = constraint.allowed_values().list();
    const Types all(list.type().begin(), list.type().end());
    for (int type : types->type())
      if (!all.count(type)) return false;
  }
  return true;
}

bool Meets(const KernelDef& one, const KernelDef& other) {
  for (const auto& constraint : one.constraint()) {
    const auto* types = Allowed(other, constraint.name());
    if (!types) continue;
    const auto& list = constraint.allowed_values().list();
    const Types all(list.type().begin(), list.type().end());
    bool shared = false;
    for (int type : types->type()) shared |= all.count(type) > 0;
    if (!shared) return false;
  }
  return true;
}

bool IsNumber(int type) { return type != DT_STRING && type != DT_RESOURCE && type != DT_VARIANT; }

bool BeginsWithOneOf(const std::string& text, const std::vector<std::string>& words) {
  for (const auto& word : words)
    if (text.compare(0, word.size(), word) == 0) return true;
  return false;
}

// Whether the CPU's kernels of this operation may compute on the device's memory.
bool Computes(const OpDef& op) {
  // Of those that have a state or handle something else than numbers.
  static const std::vector<std::string> able = {
      "ResourceApply", "ResourceSparseApply", "ResourceScatter", "ResourceGather", "ResourceStridedSliceAssign",
      "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "RngSkip", "RngReadAndSkip", "StatefulUniform",
      "StatefulStandardNormal", "StatefulTruncatedNormal", "StatefulRandomBinomial", "RandomUniform",
      "RandomStandardNormal", "TruncatedNormal", "RandomGamma", "RandomPoisson", "RandomShuffle", "Multinomial",
      "ParameterizedTruncatedNormal", "CheckNumerics", "Empty", "TensorList"};
  // What moves tensors rather than computes is the same on every device.
  static const std::set<std::string> moving = {"Switch", "Merge",     "Enter",    "Exit",  "NextIteration", "LoopCond",
                                               "Const",  "HostConst", "Identity", "NoOp",  "IdentityN"};
  if (moving.count(op.name()) || (op.name()[0] == '_' && op.name().compare(0, 6, "_Fused") != 0)) return false;
  for (const auto& attribute : op.attr())
    if (attribute.type() == "func" || attribute.type() == "list(func)") return false;
  bool simple = !op.is_stateful();
  for (const auto* args : {&op.input_arg(), &op.output_arg()})
    for (const auto& arg : *args) {
      if (arg.is_ref() || arg.type() == DT_STRING) return false;
      simple &= !arg.type() || IsNumber(arg.type());
    }
  return simple || BeginsWithOneOf(op.name(), able);
}

// Of numbers, or of lists of tensors, whose elements are.
bool OfNumbers(const KernelDef& kernel) {
  for (const auto& constraint : kernel.constraint())
    for (int type : constraint.allowed_values().list().type())
      if (!IsNumber(type) && type != DT_VARIANT) return false;
  return true;
}

// Which tensors lie in the host's memory: as CUDA's kernel has it, else numbers of 32 bits, which are sizes mostly.
std::set<std::string> OnHost(const OpDef& op, const KernelDef& kernel, const Definitions& of_cuda) {
  for (const KernelDef* other : of_cuda)
    if (Meets(kernel, *other) && Meets(*other, kernel))
      return {other->host_memory_arg().begin(), other->host_memory_arg().end()};
  std::set<std::string> names;
  for (const auto* args : {&op.input_arg(), &op.output_arg()})
    for (const auto& arg : *args) {
      const auto* types = arg.type_attr().empty() ? nullptr : Allowed(kernel, arg.type_attr());
      const bool small = types && types->type_size() == 1 && types->type(0) == DT_INT32;
      if (arg.type() == DT_INT32 || arg.type() == DT_RESOURCE || small) names.insert(arg.name());
    }
  return names;
}

bool LeftToTheCpu(const std::string& op) {
  return std::string(fakegpu_settings()->cpu).find("," + op + ",") != std::string::npos;
}

}  // namespace

extern "C" void TF_InitKernel() {
  const KernelList all = GetAllRegisteredKernels();
  std::unordered_map<std::string, Definitions> cuda, anywhere;
  for (const auto& kernel : all.kernel()) {
    if (kernel.device_type() == DEVICE_GPU && kernel.priority() < kKernelPriority) cuda[kernel.op()].push_back(&kernel);
    if (kernel.device_type() == DEVICE_DEFAULT) anywhere[kernel.op()].push_back(&kernel);
  }
  int count = 0;
  std::set<std::string> on_cpu;
  for (const auto& kernel : all.kernel()) {
    const OpDef* op = nullptr;
    if (kernel.device_type() == DEVICE_CPU) on_cpu.insert(kernel.op());
    if (kernel.device_type() != DEVICE_CPU || !OfNumbers(kernel) || LeftToTheCpu(kernel.op())) continue;
    if (!OpRegistry::Global()->LookUpOpDef(kernel.op(), &op).ok() || !Computes(*op)) continue;
    bool everywhere = false, by_cuda = false;
    for (const KernelDef* other : anywhere[kernel.op()]) everywhere |= Within(kernel, *other);
    for (const KernelDef* other : cuda[kernel.op()]) by_cuda |= Meets(kernel, *other) && Meets(*other, kernel);
    if (everywhere && !by_cuda) continue;
    KernelDef own = kernel;
    own.clear_host_memory_arg();
    for (const auto& name : OnHost(*op, kernel, cuda[kernel.op()])) own.add_host_memory_arg(name);
    Register<OnTheHost>(own);
    count++;
  }
  for (const auto& [op, kernels] : cuda)
    if (!on_cpu.count(op) && !anywhere.count(op))
      for (const KernelDef* kernel : kernels) Register<Missing>(*kernel);
  if (std::getenv("FAKEGPU_VERBOSE")) std::fprintf(stderr, "fakegpu: %d kernels\n", count);
}
