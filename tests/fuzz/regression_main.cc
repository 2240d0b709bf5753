// Runs every target over its files in the corpus: what a fuzzer has found once stays fixed. Named
// after where it is: `fuzz_regression CORPUS [TARGET FILE...]`.
#include <glog/logging.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/target.h"

namespace {

namespace fs = std::filesystem;

// False if the file is a seed of another version.
bool RunFile(const braid::fuzz::Target& target, const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // Of its exact size on the heap, so that a sanitizer sees a read past the end.
  const std::vector<uint8_t> input(bytes.begin(), bytes.end());
  target.run(input);
  return target.is_current == nullptr || target.is_current(input);
}

}  // namespace

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  // GLOG_minloglevel=0 GLOG_v=1 shows what is said to each input.
  if (std::getenv("GLOG_minloglevel") == nullptr) FLAGS_minloglevel = google::GLOG_FATAL;
  FLAGS_logtostderr = true;
  google::protobuf::SetLogHandler(nullptr);
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDER [TARGET FILE...]\n", argv[0]);
    return 2;
  }
  if (argc > 2) {
    const braid::fuzz::Target* target = braid::fuzz::FindTarget(argv[2]);
    if (target == nullptr) {
      std::fprintf(stderr, "unknown target '%s'\n", argv[2]);
      return 2;
    }
    for (int i = 3; i < argc; ++i) RunFile(*target, argv[i]);
    return 0;
  }
  for (const braid::fuzz::Target& target : braid::fuzz::Targets()) {
    std::vector<fs::path> files;
    const fs::path folder = fs::path(argv[1]) / target.name;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    if (files.empty()) {
      std::fprintf(stderr, "no corpus in %s\n", folder.c_str());
      return 1;
    }
    for (const fs::path& file : files) {
      std::fprintf(stderr, "%s %s\n", std::string(target.name).c_str(), file.filename().c_str());
      if (RunFile(target, file)) continue;
      std::fprintf(stderr,
                   "it is of another version, of which nothing is read; make_fuzz_seeds writes the "
                   "seeds of this one\n");
      return 1;
    }
    std::printf("%s: %zu inputs\n", std::string(target.name).c_str(), files.size());
  }
}
