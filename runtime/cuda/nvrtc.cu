// NVRTC.
#include <cuda_runtime_api.h>
#include <nvrtc.h>

#include <cstdio>
#include <string>

#include "runtime/cuda/program_table.h"
#include "runtime/kernels/cuda/shared_library.h"

namespace braid::cuda {
namespace {

struct Nvrtc {
  decltype(&nvrtcVersion) version;
  decltype(&nvrtcGetErrorString) error_string;
  decltype(&nvrtcCreateProgram) create;
  decltype(&nvrtcDestroyProgram) destroy;
  decltype(&nvrtcCompileProgram) compile;
  decltype(&nvrtcGetProgramLogSize) log_size;
  decltype(&nvrtcGetProgramLog) log;
  decltype(&nvrtcGetCUBINSize) code_size;
  decltype(&nvrtcGetCUBIN) code;
  int number = 0;  // of its version
};

bool FindAll(FunctionFinder finder, Nvrtc& nvrtc) {
  return finder.Find("nvrtcVersion", nvrtc.version)
      .Find("nvrtcGetErrorString", nvrtc.error_string)
      .Find("nvrtcCreateProgram", nvrtc.create)
      .Find("nvrtcDestroyProgram", nvrtc.destroy)
      .Find("nvrtcCompileProgram", nvrtc.compile)
      .Find("nvrtcGetProgramLogSize", nvrtc.log_size)
      .Find("nvrtcGetProgramLog", nvrtc.log)
      .Find("nvrtcGetCUBINSize", nvrtc.code_size)
      .Find("nvrtcGetCUBIN", nvrtc.code)
      .has_all();
}

void* Open(const char* folders, char* text, uint64_t text_bytes) {
  text[0] = 0;
  char file[32];
  std::snprintf(file, sizeof file, "libnvrtc.so.%d", CUDART_VERSION / 1000);
  void* const opened = OpenSharedLibrary(file, folders, text, text_bytes);
  if (opened == nullptr) return nullptr;
  auto* nvrtc = new Nvrtc;
  int major = 0, minor = 0;
  if (FindAll({opened, text, text_bytes}, *nvrtc) &&
      nvrtc->version(&major, &minor) == NVRTC_SUCCESS) {
    nvrtc->number = 1000 * major + 10 * minor;
    return nvrtc;
  }
  delete nvrtc;
  CloseSharedLibrary(opened);
  return nullptr;
}

int32_t Version(const void* compiler) { return static_cast<const Nvrtc*>(compiler)->number; }

// What the compiler says of a program that it does not compile.
void ReadLog(const Nvrtc& nvrtc, nvrtcProgram program, nvrtcResult result, char* text,
             uint64_t text_bytes) {
  size_t bytes = 0;
  std::string log;
  if (nvrtc.log_size(program, &bytes) == NVRTC_SUCCESS && bytes > 1) {
    log.resize(bytes);
    if (nvrtc.log(program, log.data()) != NVRTC_SUCCESS) log.clear();
  }
  std::snprintf(text, text_bytes, "%s: %s", nvrtc.error_string(result), log.c_str());
}

Error Compile(const void* compiler, int32_t major, int32_t minor, const ProgramSource* source,
              MachineCode* code, char* text, uint64_t text_bytes) {
  const Nvrtc& nvrtc = *static_cast<const Nvrtc*>(compiler);
  text[0] = 0;
  nvrtcProgram program = nullptr;
  nvrtcResult result = nvrtc.create(&program, source->text, "braid.cu", source->headers,
                                    source->header_texts, source->header_names);
  if (result != NVRTC_SUCCESS) {
    std::snprintf(text, text_bytes, "%s", nvrtc.error_string(result));
    return kLibraryFailed;
  }
  char architecture[40];
  std::snprintf(architecture, sizeof architecture, "--gpu-architecture=sm_%d%d", major, minor);
  const char* const options[] = {architecture, "--std=c++20", "--device-as-default-execution-space",
                                 "--pre-include=runtime/kernels/cuda/nvrtc_words.h"};
  result = nvrtc.compile(program, sizeof options / sizeof options[0], options);
  auto* const bytes = new std::string;
  size_t size = 0;
  if (result == NVRTC_SUCCESS) result = nvrtc.code_size(program, &size);
  if (result == NVRTC_SUCCESS) {
    bytes->resize(size);
    result = nvrtc.code(program, bytes->data());
  }
  if (result == NVRTC_SUCCESS) {
    *code = {.bytes = bytes->data(), .size = size, .owner = bytes};
  } else {
    ReadLog(nvrtc, program, result, text, text_bytes);
    delete bytes;
  }
  nvrtc.destroy(&program);
  return result == NVRTC_SUCCESS ? kDone : kLibraryFailed;
}

void FreeCode(MachineCode* code) {
  delete static_cast<std::string*>(code->owner);
  *code = {};
}

}  // namespace

CompilerTable MakeCompilerTable() {
  return {.open = Open, .version = Version, .compile = Compile, .free_code = FreeCode};
}

}  // namespace braid::cuda
