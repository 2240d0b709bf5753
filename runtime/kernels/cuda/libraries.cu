// Opens the libraries.
#include "runtime/kernels/cuda/cublas_lt.h"
#include "runtime/kernels/cuda/libraries.h"

namespace braid::cuda {

void* OpenLibraries(const char* folders) {
  auto* libraries = new Libraries;
  libraries->cublas_lt = OpenCublasLt(folders, libraries->missing, sizeof libraries->missing);
  return libraries;
}

void CloseLibraries(void* libraries) {
  auto* open = static_cast<Libraries*>(libraries);
  CloseCublasLt(open->cublas_lt);
  delete open;
}

const char* MissingLibraries(const void* libraries) {
  return static_cast<const Libraries*>(libraries)->missing;
}

}  // namespace braid::cuda
