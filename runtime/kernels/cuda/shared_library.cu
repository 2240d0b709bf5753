// The loader's part of it.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "runtime/kernels/cuda/shared_library.h"

namespace braid::cuda {
namespace {

const char* LoaderError() {
  const char* const why = dlerror();
  return why == nullptr ? "" : why;
}

}  // namespace

void* OpenSharedLibrary(const char* name, const char* folders, char* text, size_t text_bytes) {
  char path[4096];
  char found[1024] = "";  // why a file that is there does not open
  for (const char* at = folders; at != nullptr && *at != 0;) {
    const size_t length = std::strcspn(at, ":");
    if (length > 0 && length + std::strlen(name) + 2 <= sizeof path) {
      std::snprintf(path, sizeof path, "%.*s/%s", static_cast<int>(length), at, name);
      if (void* file = dlopen(path, RTLD_NOW | RTLD_LOCAL)) return file;
      if (found[0] == 0 && access(path, F_OK) == 0) {
        std::snprintf(found, sizeof found, "%s", LoaderError());
      }
    }
    at += length + (at[length] == ':' ? 1 : 0);
  }
  void* const file = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr) {
    std::snprintf(text, text_bytes, "%s was looked for in \"%s\" and where the system does: %s",
                  name, folders == nullptr ? "" : folders, found[0] != 0 ? found : LoaderError());
  }
  return file;
}

void CloseSharedLibrary(void* file) { dlclose(file); }

void* FindFunction(void* file, const char* name, char* text, size_t text_bytes) {
  void* const function = dlsym(file, name);
  if (function == nullptr) {
    std::snprintf(text, text_bytes, "a library lacks the function %s: %s", name, LoaderError());
  }
  return function;
}

}  // namespace braid::cuda
