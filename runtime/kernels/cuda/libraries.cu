// Opens the libraries.
#include <cstdio>

#include "runtime/kernels/cuda/cublas_lt.h"
#include "runtime/kernels/cuda/cudnn_convolution.h"
#include "runtime/kernels/cuda/libraries.h"

namespace braid::cuda {

void* OpenLibraries(const char* folders) {
  auto* libraries = new Libraries;
  char products[sizeof libraries->missing / 2 - 2] = {}, convolutions[sizeof products] = {};
  libraries->cublas_lt = OpenCublasLt(folders, products, sizeof products);
  libraries->cudnn = OpenCudnn(folders, convolutions, sizeof convolutions);
  const bool both = products[0] != 0 && convolutions[0] != 0;
  std::snprintf(libraries->missing, sizeof libraries->missing, "%s%s%s", products, both ? "; " : "",
                convolutions);
  return libraries;
}

void CloseLibraries(void* libraries) {
  auto* open = static_cast<Libraries*>(libraries);
  CloseCudnn(open->cudnn);
  CloseCublasLt(open->cublas_lt);
  delete open;
}

const char* MissingLibraries(const void* libraries) {
  return static_cast<const Libraries*>(libraries)->missing;
}

}  // namespace braid::cuda
