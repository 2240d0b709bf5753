// The libraries that kernels of a device call where they can be opened. They are looked for when
// the program runs: the module links none of them, and has kernels of its own for what they do.
#pragma once

namespace braid::cuda {

struct CublasLt;  // cublas_lt.cu
struct Cudnn;     // cudnn_convolution.cu

// What Queue::libraries points to.
struct Libraries {
  CublasLt* cublas_lt = nullptr;  // null: not opened
  Cudnn* cudnn = nullptr;         // the same
  char missing[4096] = {};        // what was not opened, where it was looked for, and why; or ""
};

// For the device that is current on the calling thread. `folders` is a list with colons between,
// looked through before the places where the system does; it may be empty. Never null.
void* OpenLibraries(const char* folders);
void CloseLibraries(void* libraries);
// "": nothing. As long as `libraries` is open.
const char* MissingLibraries(const void* libraries);

}  // namespace braid::cuda
