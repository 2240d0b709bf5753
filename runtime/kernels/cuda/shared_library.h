// Opening a library of CUDA when the program runs.
#pragma once

#include <cstddef>

// For names of files, which end in a version that a header says as a number.
#define BRAID_TEXT_OF_NUMBER(number) #number
#define BRAID_TEXT_OF(macro) BRAID_TEXT_OF_NUMBER(macro)

namespace braid::cuda {

// `name` from each of the folders, a list with colons between, which may be null; then from where
// the system looks. Null: not found, and the text says where it was looked for and why it failed.
void* OpenSharedLibrary(const char* name, const char* folders, char* text, size_t text_bytes);
void CloseSharedLibrary(void* file);

// Null: the library has no such function; the text says so.
void* FindFunction(void* file, const char* name, char* text, size_t text_bytes);

// Functions that are looked for one after the other until one is missing.
class FunctionFinder {
 public:
  FunctionFinder(void* file, char* text, size_t text_bytes)
      : file_(file), text_(text), text_bytes_(text_bytes) {}

  template <class F>
  FunctionFinder& Find(const char* name, F& function) {
    if (has_all_) function = reinterpret_cast<F>(FindFunction(file_, name, text_, text_bytes_));
    has_all_ = has_all_ && function != nullptr;
    return *this;
  }
  bool has_all() const { return has_all_; }

 private:
  void* file_;
  char* text_;
  size_t text_bytes_;
  bool has_all_ = true;
};

}  // namespace braid::cuda
