#include "tests/cuda/engine_on_host.h"

#include <cstdlib>

namespace braid::cuda {

int64_t Setting(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

Engine& TheEngine() {
  static Engine engine;
  return engine;
}

FakeStream* StreamOf(void* stream) { return static_cast<FakeStream*>(stream); }

void Later(void* stream, std::function<void()> work) {
  TheEngine().Push(StreamOf(stream), {.work = std::move(work)});
}

}  // namespace braid::cuda
