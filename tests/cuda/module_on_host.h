// The module of module_on_host.cc, beside the test program.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "glog/logging.h"

namespace braid {

inline std::string ModuleOnHost() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "braid_cuda_on_host.so";
}

// What one of its functions that count says; 0 with a real module.
inline int64_t CountedOnHost(const char* function) {
  if (std::getenv("BRAID_TEST_DEVICE") != nullptr) return 0;
  void* const module = dlopen(ModuleOnHost().c_str(), RTLD_NOW | RTLD_LOCAL);
  CHECK(module != nullptr) << dlerror();
  return reinterpret_cast<int64_t (*)()>(dlsym(module, function))();
}

}  // namespace braid
