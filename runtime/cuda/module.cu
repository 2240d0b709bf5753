// The module's side of the table: CUDA's runtime, and of its driver what handles virtual memory.
#include <cuda.h>
#include <cuda_runtime.h>

#include "runtime/cuda/module_table.h"
#include "runtime/kernels/cuda/libraries.h"

namespace braid::cuda {
namespace {

Error Code(cudaError_t error) { return static_cast<Error>(error); }

// Functions of the driver come through the runtime, so that the module opens without one.
struct Driver {
  CUresult (*reserve)(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long);
  CUresult (*release)(CUdeviceptr, size_t);
  CUresult (*create)(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*,
                     unsigned long long);
  CUresult (*drop)(CUmemGenericAllocationHandle);
  CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
  CUresult (*unmap)(CUdeviceptr, size_t);
  CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t);
  CUresult (*granularity)(size_t*, const CUmemAllocationProp*, CUmemAllocationGranularity_flags);
};

template <class Function>
Error Find(const char* name, Function* function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
  if (error != cudaSuccess) return Code(error);
  if (result != cudaDriverEntryPointSuccess) return Code(cudaErrorSymbolNotFound);
  *function = reinterpret_cast<Function>(found);
  return kDone;
}

Error FindDriver(Driver* driver) {
  Error error = Find("cuMemAddressReserve", &driver->reserve);
  if (error == kDone) error = Find("cuMemAddressFree", &driver->release);
  if (error == kDone) error = Find("cuMemCreate", &driver->create);
  if (error == kDone) error = Find("cuMemRelease", &driver->drop);
  if (error == kDone) error = Find("cuMemMap", &driver->map);
  if (error == kDone) error = Find("cuMemUnmap", &driver->unmap);
  if (error == kDone) error = Find("cuMemSetAccess", &driver->set_access);
  if (error == kDone) error = Find("cuMemGetAllocationGranularity", &driver->granularity);
  return error;
}

// The runtime's errors have the driver's numbers.
Error OfDriver(CUresult result) { return static_cast<Error>(result); }

CUmemAllocationProp OnCard(int32_t card) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = card;
  return properties;
}

Error UseCard(int32_t card) { return Code(cudaSetDevice(card)); }

int32_t CountCards(Error* error) {
  int count = 0;
  *error = Code(cudaGetDeviceCount(&count));
  if (*error != kDone) cudaGetLastError();
  return *error == kDone ? count : 0;
}

Error Versions(int32_t* driver, int32_t* runtime) {
  const Error error = Code(cudaDriverGetVersion(driver));
  return error == kDone ? Code(cudaRuntimeGetVersion(runtime)) : error;
}

Error Describe(int32_t card, CardInfo* info) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, card);
  if (error != cudaSuccess) return Code(error);
  for (int i = 0; i < 256; ++i) info->name[i] = properties.name[i];
  info->name[255] = '\0';
  info->major = properties.major;
  info->minor = properties.minor;
  info->multiprocessors = properties.multiProcessorCount;
  info->bytes = properties.totalGlobalMem;
  for (int i = 0; i < 16; ++i) info->id[i] = static_cast<uint8_t>(properties.uuid.bytes[i]);
  return kDone;
}

Error FreeMemory(int32_t card, uint64_t* bytes) {
  size_t free_bytes = 0, total = 0;
  Error error = UseCard(card);
  if (error == kDone) error = Code(cudaMemGetInfo(&free_bytes, &total));
  *bytes = free_bytes;
  return error;
}

const char* ErrorName(Error error) { return cudaGetErrorName(static_cast<cudaError_t>(error)); }
const char* ErrorText(Error error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

Error Allocate(int32_t card, uint64_t bytes, void** address) {
  Error error = UseCard(card);
  if (error == kDone) error = Code(cudaMalloc(address, bytes));
  // It is the caller's, and not what the next launch meets.
  if (error != kDone) cudaGetLastError();
  return error;
}
void Free(int32_t card, void* address) {
  if (UseCard(card) == kDone) cudaFree(address);
}

Error Reserve(int32_t card, uint64_t most_bytes, Range* range) {
  Driver driver;
  Error error = UseCard(card);
  if (error == kDone) error = FindDriver(&driver);
  if (error != kDone) return error;
  const CUmemAllocationProp properties = OnCard(card);
  size_t granularity = 0;
  error = OfDriver(driver.granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  if (error != kDone) return error;
  const uint64_t rounded = (most_bytes + granularity - 1) / granularity * granularity;
  CUdeviceptr address = 0;
  error = OfDriver(driver.reserve(&address, rounded, 0, 0, 0));
  if (error != kDone) return error;
  range->card = card;
  range->address = reinterpret_cast<void*>(address);
  range->reserved = rounded;
  return kDone;
}

// Cards that a range can be shared with, by their numbers.
constexpr int32_t kMostSharing = 64;

// Lets a card read and write what is mapped there.
Error Open(const Driver& driver, int32_t card, CUdeviceptr at, uint64_t bytes) {
  CUmemAccessDesc access = {};
  access.location = OnCard(card).location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return OfDriver(driver.set_access(at, bytes, &access, 1));
}

Error Share(Range* range, int32_t other) {
  if (other >= kMostSharing) return Code(cudaErrorPeerAccessUnsupported);
  range->others |= uint64_t{1} << other;
  if (range->usable == 0) return kDone;
  Driver driver;
  Error error = UseCard(range->card);
  if (error == kDone) error = FindDriver(&driver);
  if (error != kDone) return error;
  return Open(driver, other, reinterpret_cast<CUdeviceptr>(range->address), range->usable);
}

Error Extend(Range* range, uint64_t bytes) {
  if (bytes <= range->usable) return kDone;
  Driver driver;
  Error error = UseCard(range->card);
  if (error == kDone) error = FindDriver(&driver);
  if (error != kDone) return error;
  const CUmemAllocationProp properties = OnCard(range->card);
  size_t granularity = 0;
  error = OfDriver(driver.granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  if (error != kDone) return error;
  const uint64_t more = (bytes - range->usable + granularity - 1) / granularity * granularity;
  if (range->usable + more > range->reserved) return Code(cudaErrorMemoryAllocation);
  CUmemGenericAllocationHandle handle = 0;
  error = OfDriver(driver.create(&handle, more, &properties, 0));
  if (error != kDone) return error;
  const CUdeviceptr at = reinterpret_cast<CUdeviceptr>(range->address) + range->usable;
  error = OfDriver(driver.map(at, more, 0, handle, 0));
  // The mapping keeps the memory.
  driver.drop(handle);
  if (error != kDone) return error;
  error = Open(driver, range->card, at, more);
  for (int32_t other = 0; other < kMostSharing && error == kDone; ++other) {
    if ((range->others >> other & 1) != 0) error = Open(driver, other, at, more);
  }
  if (error != kDone) {
    driver.unmap(at, more);
    return error;
  }
  range->usable += more;
  return kDone;
}

void Release(Range* range) {
  Driver driver;
  if (range->address == nullptr || UseCard(range->card) != kDone || FindDriver(&driver) != kDone) {
    return;
  }
  const auto address = reinterpret_cast<CUdeviceptr>(range->address);
  if (range->usable > 0) driver.unmap(address, range->usable);
  driver.release(address, range->reserved);
  *range = {};
}

Error Pin(void* address, uint64_t bytes) {
  const Error error =
      Code(cudaHostRegister(address, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped));
  if (error != kDone) cudaGetLastError();
  return error;
}
void Unpin(void* address) { cudaHostUnregister(address); }

Error AllowPeer(int32_t card, int32_t other) {
  const Error error = UseCard(card);
  if (error != kDone) return error;
  const cudaError_t allowed = cudaDeviceEnablePeerAccess(other, 0);
  // It is the caller's, and not what the next launch meets.
  if (allowed != cudaSuccess) cudaGetLastError();
  return allowed == cudaErrorPeerAccessAlreadyEnabled ? kDone : Code(allowed);
}

Error MakeStream(int32_t card, void** stream) {
  cudaStream_t made = nullptr;
  Error error = UseCard(card);
  if (error == kDone) error = Code(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
  *stream = made;
  return error;
}
void DestroyStream(int32_t card, void* stream) {
  if (UseCard(card) == kDone) cudaStreamDestroy(static_cast<cudaStream_t>(stream));
}

Error MakeEvent(int32_t card, void** event) {
  cudaEvent_t made = nullptr;
  Error error = UseCard(card);
  if (error == kDone) error = Code(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
  *event = made;
  return error;
}
void DestroyEvent(int32_t card, void* event) {
  if (UseCard(card) == kDone) cudaEventDestroy(static_cast<cudaEvent_t>(event));
}

Error Record(int32_t card, void* event, void* stream) {
  const Error error = UseCard(card);
  if (error != kDone) return error;
  return Code(cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)));
}
Error Wait(int32_t card, void* stream, void* event) {
  const Error error = UseCard(card);
  if (error != kDone) return error;
  return Code(
      cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event), 0));
}

Error Copy(int32_t card, void* to, const void* from, uint64_t bytes, void* stream) {
  const Error error = UseCard(card);
  if (error != kDone || bytes == 0) return error;
  return Code(
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)));
}
Error CardOf(const void* address, int32_t* card) {
  cudaPointerAttributes attributes;
  const cudaError_t error = cudaPointerGetAttributes(&attributes, address);
  *card = error == cudaSuccess ? attributes.device : -1;
  return Code(error);
}
Error CopyAcross(int32_t card, void* to, int32_t other, const void* from, uint64_t bytes,
                 void* stream) {
  const Error error = UseCard(card);
  if (error != kDone || bytes == 0) return error;
  return Code(cudaMemcpyPeerAsync(to, card, from, other, bytes, static_cast<cudaStream_t>(stream)));
}
Error Clear(int32_t card, void* to, uint64_t bytes, void* stream) {
  const Error error = UseCard(card);
  if (error != kDone || bytes == 0) return error;
  return Code(cudaMemsetAsync(to, 0, bytes, static_cast<cudaStream_t>(stream)));
}

Error CallHost(int32_t card, void* stream, void (*function)(void*), void* argument) {
  const Error error = UseCard(card);
  if (error != kDone) return error;
  return Code(cudaLaunchHostFunc(static_cast<cudaStream_t>(stream), function, argument));
}

Error BeginCapture(int32_t card, void* stream) {
  const Error error = UseCard(card);
  if (error != kDone) return error;
  return Code(
      cudaStreamBeginCapture(static_cast<cudaStream_t>(stream), cudaStreamCaptureModeThreadLocal));
}
Error EndCapture(int32_t card, void* stream, void** graph) {
  *graph = nullptr;
  const Error error = UseCard(card);
  if (error != kDone) return error;
  cudaGraph_t captured = nullptr;
  cudaError_t result = cudaStreamEndCapture(static_cast<cudaStream_t>(stream), &captured);
  cudaGraphExec_t made = nullptr;
  if (result == cudaSuccess) result = cudaGraphInstantiate(&made, captured, 0);
  if (captured != nullptr) cudaGraphDestroy(captured);
  // It is the caller's, and not what the next launch meets.
  if (result != cudaSuccess) cudaGetLastError();
  if (result == cudaSuccess) *graph = made;
  return Code(result);
}
Error LaunchGraph(int32_t card, void* graph, void* stream) {
  const Error error = UseCard(card);
  if (error != kDone) return error;
  return Code(
      cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), static_cast<cudaStream_t>(stream)));
}
void DestroyGraph(int32_t card, void* graph) {
  if (UseCard(card) == kDone) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

Error StreamState(int32_t card, void* stream) {
  const Error error = UseCard(card);
  if (error != kDone) return error;
  const cudaError_t state = cudaStreamQuery(static_cast<cudaStream_t>(stream));
  if (state != cudaErrorNotReady) return Code(state);
  cudaGetLastError();
  return kNotReady;
}

Error LoadProgram(int32_t card, const void* code, void** program) {
  Error error = UseCard(card);
  if (error != kDone) return error;
  cudaLibrary_t library = nullptr;
  error = Code(cudaLibraryLoadData(&library, code, nullptr, nullptr, 0, nullptr, nullptr, 0));
  if (error != kDone) cudaGetLastError();
  *program = library;
  return error;
}
void UnloadProgram(int32_t card, void* program) {
  if (UseCard(card) == kDone) cudaLibraryUnload(static_cast<cudaLibrary_t>(program));
}
Error FindKernel(void* program, const char* name, void** kernel) {
  cudaKernel_t found = nullptr;
  const Error error = Code(cudaLibraryGetKernel(&found, static_cast<cudaLibrary_t>(program), name));
  if (error != kDone) cudaGetLastError();
  *kernel = found;
  return error;
}
Error LaunchKernel(const Queue& queue, void* kernel, uint32_t blocks, uint32_t threads,
                   const void* operands) {
  void* arguments[] = {const_cast<void*>(operands)};
  const cudaError_t error =
      cudaLaunchKernel(static_cast<const void*>(kernel), dim3(blocks), dim3(threads), arguments, 0,
                       static_cast<cudaStream_t>(queue.stream));
  return error == cudaSuccess ? kDone : Code(cudaGetLastError());
}

}  // namespace
}  // namespace braid::cuda

extern "C" __attribute__((visibility("default"))) const braid::cuda::ModuleTable*
BraidCudaModule() {
  using namespace braid::cuda;
  static const ModuleTable table = {.fingerprint = BRAID_CUDA_FINGERPRINT,
                                    .count_cards = CountCards,
                                    .versions = Versions,
                                    .describe = Describe,
                                    .free_memory = FreeMemory,
                                    .error_name = ErrorName,
                                    .error_text = ErrorText,
                                    .allocate = Allocate,
                                    .free = Free,
                                    .reserve = Reserve,
                                    .extend = Extend,
                                    .release = Release,
                                    .pin = Pin,
                                    .unpin = Unpin,
                                    .allow_peer = AllowPeer,
                                    .share = Share,
                                    .make_stream = MakeStream,
                                    .destroy_stream = DestroyStream,
                                    .make_event = MakeEvent,
                                    .destroy_event = DestroyEvent,
                                    .record = Record,
                                    .wait = Wait,
                                    .copy = Copy,
                                    .card_of = CardOf,
                                    .copy_across = CopyAcross,
                                    .clear = Clear,
                                    .call_host = CallHost,
                                    .begin_capture = BeginCapture,
                                    .end_capture = EndCapture,
                                    .launch_graph = LaunchGraph,
                                    .destroy_graph = DestroyGraph,
                                    .stream_state = StreamState,
                                    .use_card = UseCard,
                                    .open_libraries = OpenLibraries,
                                    .missing_libraries = MissingLibraries,
                                    .close_libraries = CloseLibraries,
                                    .kernels = MakeKernelTable(),
                                    .nccl = MakeNcclTable(),
                                    .compiler = MakeCompilerTable(),
                                    .programs = {.load = LoadProgram,
                                                 .unload = UnloadProgram,
                                                 .find = FindKernel,
                                                 .launch = LaunchKernel}};
  return &table;
}
