// One target as a libFuzzer program. BRAID_FUZZ_TARGET is its name.
#include <glog/logging.h>
#include <google/protobuf/stubs/logging.h>

#include <cstdlib>

#include "tests/fuzz/target.h"

namespace {

const braid::fuzz::Target& TheTarget() {
  static const braid::fuzz::Target& target = *braid::fuzz::FindTarget(BRAID_FUZZ_TARGET);
  return target;
}

}  // namespace

extern "C" {

size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

int LLVMFuzzerInitialize(int*, char*** argv) {
  google::InitGoogleLogging((*argv)[0]);
  // GLOG_minloglevel=0 GLOG_v=1 shows what is said to each input.
  if (std::getenv("GLOG_minloglevel") == nullptr) FLAGS_minloglevel = google::GLOG_FATAL;
  FLAGS_logtostderr = true;
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  TheTarget().run({data, size});
  return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  // Now and then bytes, also where there is a form: what does not parse is an input, too.
  if (TheTarget().mutate != nullptr && seed % 16 != 0) {
    const size_t mutated = TheTarget().mutate(data, size, max_size, seed / 16);
    if (mutated > 0) return mutated;
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
}
