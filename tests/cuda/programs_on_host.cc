// Programs that are compiled when a job is loaded, by the host's compiler in NVRTC's place: a file
// that is opened and whose kernels run as those of cuda_on_host.h do.
//   BRAID_FAKE_NVRTC=1        there is one
//   BRAID_FAKE_NVRTC_FAILS=1  it compiles nothing; 2: what it makes cannot be loaded
#include "tests/cuda/programs_on_host.h"

#include <dlfcn.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/kernels/cuda/fused_operands.h"
#include "tests/cuda/engine_on_host.h"
#include "tests/support/cuda_on_host.h"

extern char** environ;

namespace braid::cuda {
namespace {

namespace fs = std::filesystem;

std::atomic<int64_t> compiled = 0, launched = 0;

// A folder of its own, removed with it.
class Folder {
 public:
  Folder() {
    std::string name = fs::temp_directory_path() / "braid-program-XXXXXX";
    path_ = mkdtemp(name.data()) == nullptr ? "" : name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& file) const { return path_ + "/" + file; }

 private:
  std::string path_;
};

// "": all went well.
std::string Execute(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  int status = 0;
  if (posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ) != 0 ||
      waitpid(child, &status, 0) != child || status != 0) {
    return words[0] + " failed";
  }
  return "";
}

// This module's file, whose functions programs call.
std::string ThisFile() {
  Dl_info info = {};
  dladdr(reinterpret_cast<const void*>(&Execute), &info);
  return info.dli_fname;
}

void* Open(const char* /*folders*/, char* text, uint64_t text_bytes) {
  static int compiler = 13000;
  if (Setting("BRAID_FAKE_NVRTC", 0) != 0) return &compiler;
  std::snprintf(text, text_bytes, "libnvrtc.so.13 was looked for");
  return nullptr;
}

Error Compile(const void* /*compiler*/, int32_t /*major*/, int32_t /*minor*/,
              const ProgramSource* source, MachineCode* code, char* text, uint64_t text_bytes) {
  const Folder folder;
  ++compiled;
  std::ofstream(folder / "program.cc") << source->text;
  const std::string words =
      Setting("BRAID_FAKE_NVRTC_FAILS", 0) == 1
          ? "a machine that compiles nothing"
          : Execute({BRAID_CXX, "-std=c++20", "-O1", "-w", "-fPIC", "-shared", "-I",
                     BRAID_SOURCE_DIR, "-include", BRAID_SOURCE_DIR "/tests/support/cuda_on_host.h",
                     folder / "program.cc", ThisFile(), "-o", folder / "program.so"});
  if (!words.empty()) {
    std::snprintf(text, text_bytes, "%s", words.c_str());
    return kLibraryFailed;
  }
  std::ifstream file(folder / "program.so", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  // Its size stands before it, which machine code of a card says itself.
  const uint64_t size = bytes.size();
  auto* const owner = new std::string(reinterpret_cast<const char*>(&size), sizeof size);
  *owner += bytes;
  *code = {.bytes = owner->data(), .size = owner->size(), .owner = owner};
  return kDone;
}

Error Load(int32_t /*card*/, const void* code, void** program) {
  if (Setting("BRAID_FAKE_NVRTC_FAILS", 0) == 2) return kLibraryFailed;
  uint64_t size = 0;
  std::memcpy(&size, code, sizeof size);
  const Folder folder;
  std::ofstream(folder / "program.so", std::ios::binary)
      .write(static_cast<const char*>(code) + sizeof size, static_cast<std::streamsize>(size));
  *program = dlopen((folder / "program.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (*program == nullptr) std::fprintf(stderr, "%s\n", dlerror());
  return *program == nullptr ? kLibraryFailed : kDone;
}

Error Launch(const Queue& queue, void* kernel, uint32_t blocks, uint32_t threads,
             const void* operands) {
  ++launched;
  const auto function = reinterpret_cast<void (*)(FusedOperands)>(kernel);
  FusedOperands copy = {};
  std::memcpy(&copy, operands, sizeof copy);
  cuda_on_host::Do(queue.stream,
                   [=] { cuda_on_host::RunApart(blocks, threads, [&] { function(copy); }); });
  return kDone;
}

}  // namespace

CompilerTable MakeCompilerTable() {
  return {.open = Open,
          .version = [](const void* compiler) { return *static_cast<const int*>(compiler); },
          .compile = Compile,
          .free_code =
              [](MachineCode* code) {
                delete static_cast<std::string*>(code->owner);
                *code = {};
              }};
}

ProgramTable MakeProgramTable() {
  return {.load = Load,
          .unload = [](int32_t, void* program) { dlclose(program); },
          .find =
              [](void* program, const char* name, void** kernel) {
                *kernel = dlsym(program, name);
                return *kernel == nullptr ? kLibraryFailed : kDone;
              },
          .launch = Launch};
}

}  // namespace braid::cuda

extern "C" __attribute__((visibility("default"))) int64_t BraidFakeProgramsCompiled() {
  return braid::cuda::compiled;
}
extern "C" __attribute__((visibility("default"))) int64_t BraidFakeProgramLaunches() {
  return braid::cuda::launched;
}
