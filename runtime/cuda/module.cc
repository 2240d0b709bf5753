#include "runtime/cuda/module.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"

namespace braid::cuda {
namespace {

constexpr char kFile[] = "braid_cuda.so";
constexpr char kEntry[] = "BraidCudaModule";
constexpr int kLeastMajor = 8;  // compute capability
constexpr char kRemedy[] = "--devices=cpu:1 works here";

// A file that is named so is the only one.
std::vector<std::string> PlacesOf(const std::string& file) {
  if (!file.empty()) return {file};
  std::vector<std::string> places;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    const std::filesystem::path folder = program.parent_path();
    places.push_back(folder / kFile);
    places.push_back((folder / "../lib" / kFile).lexically_normal());
  }
  places.push_back(kFile);
  return places;
}

std::string VersionText(int version) {
  return absl::StrFormat("%d.%d", version / 1000, version % 1000 / 10);
}

absl::Status NoCards(const ModuleTable& module, Error error) {
  if (error == kDone) {
    return absl::FailedPreconditionError(
        absl::StrFormat("this machine has no card for CUDA; %s", kRemedy));
  }
  int driver = 0, runtime = 0;
  const Error unknown = module.versions(&driver, &runtime);
  if (unknown == kDone && driver > 0 && driver < runtime) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the driver here knows CUDA up to %s, and the module was built with %s; install a newer "
        "driver, or %s",
        VersionText(driver), VersionText(runtime), kRemedy));
  }
  return absl::FailedPreconditionError(
      absl::StrFormat("CUDA finds no card here (%s)%s; %s", ErrorWords(module, error),
                      driver == 0 ? ": no driver is installed" : "", kRemedy));
}

}  // namespace

std::string ErrorWords(const ModuleTable& module, Error error) {
  if (error == kNoSuchType) return "a kernel was given a type that it does not have";
  if (error == kLibraryFailed) return "a library of CUDA refused its call";
  return absl::StrFormat("%s, %s", module.error_name(error), module.error_text(error));
}

absl::StatusOr<const ModuleTable*> OpenModule(const std::string& file) {
  std::vector<std::string> tried;
  for (const std::string& place : PlacesOf(file)) {
    void* const library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      tried.push_back(dlerror());
      continue;
    }
    using Entry = const ModuleTable* (*)();
    const auto entry = reinterpret_cast<Entry>(dlsym(library, kEntry));
    if (entry == nullptr) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "'%s' is no module of Braid for CUDA: it has no function %s; give another --cuda_module, "
          "or %s",
          place, kEntry, kRemedy));
    }
    const ModuleTable* const table = entry();
    if (std::string(table->fingerprint) != BRAID_CUDA_FINGERPRINT) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "the module '%s' is of the build %s, and this program of %s; build both from the same "
          "sources, or %s",
          place, table->fingerprint, BRAID_CUDA_FINGERPRINT, kRemedy));
    }
    return table;
  }
  return absl::NotFoundError(
      absl::StrFormat("there is no module for CUDA here (%s); build Braid with -DBRAID_CUDA=ON, or "
                      "give the file by --cuda_module; %s",
                      absl::StrJoin(tried, "; "), kRemedy));
}

absl::StatusOr<std::vector<int>> ChooseCards(const ModuleTable& module, int devices, int card) {
  Error error = kDone;
  const int cards = module.count_cards(&error);
  if (cards == 0) return NoCards(module, error);
  if (card >= cards) {
    return absl::FailedPreconditionError(
        absl::StrFormat("cuda:%d@%d wants card %d, and this machine has %d, numbered from 0; "
                        "cuda:%d@0 works here",
                        devices, card, card, cards, devices));
  }
  if (card < 0 && devices > cards) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "cuda:%d wants %d cards, and this machine has %d; cuda:%d works here, and cuda:%d@0 puts "
        "all devices on card 0",
        devices, devices, cards, cards, devices));
  }
  std::vector<int> chosen;
  for (int device = 0; device < devices; ++device) {
    chosen.push_back(card < 0 ? device : card);
    CardInfo info = {};
    error = module.describe(chosen.back(), &info);
    if (error != kDone) return NoCards(module, error);
    if (info.major < kLeastMajor) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "card %d (%s) has compute capability %d.%d, and %d.0 or newer is needed; %s",
          chosen.back(), info.name, info.major, info.minor, kLeastMajor, kRemedy));
    }
  }
  return chosen;
}

}  // namespace braid::cuda
