// Reads the source tree and holds the house rules: who may include and link whom, what may not be
// written where, how files are called and how long they are.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/source_tree.h"

namespace braid {
namespace {

namespace fs = std::filesystem;
using house::Include;
using house::Source;

// One place, one line of a failure: "graph/sbp.cc:12: ...".
using Violations = std::vector<std::string>;

std::string Join(const Violations& violations) {
  std::string text;
  for (const std::string& violation : violations) text += "\n  " + violation;
  return text;
}

// The folders of the house, in the order of the arrows.
const std::vector<std::string> kFolders = {"graph",   "compiler", "actor",    "comm",
                                           "runtime", "api",      "examples", "tests"};

// Where the folder part of `path` ends for the arrows: some inner folders are rooms of their own.
std::string RoomOf(const std::string& path) {
  for (const char* room : {"runtime/base", "runtime/device", "compiler/plan"}) {
    if (path.starts_with(std::string(room) + "/")) return room;
  }
  return path.substr(0, path.find('/'));
}

// Rooms and single files that a room may include, itself aside.
const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"runtime/base", {}},
    {"runtime/device", {"runtime/base", "graph"}},
    {"graph", {"runtime/base"}},
    {"compiler/plan", {"graph", "runtime/base"}},
    {"compiler", {"compiler/plan", "graph", "runtime/base"}},
    {"actor", {"runtime/base"}},
    {"comm", {"runtime/base"}},
    {"runtime", {"runtime/base", "runtime/device", "graph", "actor", "comm", "compiler/plan"}},
    {"api",
     {"compiler", "compiler/plan", "graph", "runtime", "runtime/base", "runtime/device", "actor",
      "comm"}},
    {"examples", {"api"}},
    {"tests",
     {"api", "compiler", "compiler/plan", "graph", "runtime", "runtime/base", "runtime/device",
      "actor", "comm", "examples"}},
};

// The same inside of some rooms: their folders, and the files that lie in them themselves.
const std::map<std::string, std::set<std::string>> kMayIncludeInside = {
    {"graph", {"graph/functions"}},
    {"graph/functions", {"graph", "graph/ops/window.h"}},
    {"graph/ops", {"graph"}},
    {"compiler", {"compiler/boxing", "compiler/logical", "compiler/physical", "compiler/plan"}},
    {"compiler/logical", {"compiler/boxing", "compiler/plan", "compiler/cost.h"}},
    {"compiler/physical", {"compiler/plan", "compiler/collective_methods.h"}},
    {"compiler/boxing", {"compiler/plan", "compiler/machine.h", "compiler/collective_methods.h"}},
    {"compiler/plan", {}},
    {"comm", {"comm/network", "comm/rdma", "comm/shm", "comm/tcp"}},
    {"comm/network", {}},
    {"comm/cluster", {"comm/network"}},
    {"comm/control", {"comm", "comm/network", "comm/cluster"}},
    {"comm/joining", {"comm", "comm/network"}},
    {"comm/rdma", {"comm", "comm/network", "comm/joining"}},
    {"comm/shm", {"comm", "comm/network", "comm/control", "comm/joining"}},
    {"comm/tcp", {"comm", "comm/network", "comm/joining"}},
    {"comm/collective", {"comm"}},
    {"comm/peers", {"comm"}},
    {"runtime",
     {"runtime/actions", "runtime/base", "runtime/data", "runtime/device", "runtime/files",
      "runtime/group", "runtime/kernels", "runtime/reports"}},
    {"runtime/actions",
     {"runtime/base", "runtime/device", "runtime/kernels", "runtime/plan_read.h",
      "runtime/variable_store.h"}},
    {"runtime/base", {}},
    {"runtime/data", {"runtime/base", "runtime/files", "runtime/array.h"}},
    {"runtime/device", {"runtime/base"}},
    {"runtime/files", {"runtime/base", "runtime/array.h"}},
    {"runtime/group",
     {"runtime/base", "runtime/device", "runtime/control.pb.h",
      "runtime/reports/control_status.h"}},
    {"runtime/kernels",
     {"runtime/base", "runtime/device", "runtime/coded_elements.h", "runtime/dtype_traits.h",
      "runtime/kernels/functions/op_lists.h", "runtime/kernels/functions/update_parameters.h"}},
    {"runtime/kernels/cpu",
     {"runtime/base", "runtime/kernels", "runtime/kernels/cpu/simd", "runtime/kernels/functions",
      "runtime/coded_elements.h", "runtime/dtype_traits.h"}},
    {"runtime/kernels/cpu/simd", {"runtime/base", "runtime/kernels/functions"}},
    {"runtime/kernels/cuda",
     {"runtime/base", "runtime/device", "runtime/coded_elements.h", "runtime/dtype_traits.h",
      "runtime/kernels", "runtime/kernels/functions"}},
    {"runtime/kernels/functions", {"runtime/base/independent.h"}},
    {"runtime/cuda", {"runtime/base", "runtime/device", "runtime/kernels", "runtime/kernels/cuda"}},
    {"runtime/reports",
     {"runtime/base", "runtime/data", "runtime/files", "runtime/control.pb.h", "runtime/executor.h",
      "runtime/kernels/kernel_memory.h", "runtime/plan_read.h"}},
};

bool MayUse(const std::string& room, const std::string& path) {
  const std::string other = RoomOf(path);
  const std::set<std::string>& allowed = kMayInclude.at(room);
  return other == room || allowed.contains(other) || allowed.contains(path);
}

class House : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { sources() = house::ReadSources(Root(), kFolders); }

  static fs::path Root() { return BRAID_SOURCE_DIR; }
  static std::vector<Source>& sources() {
    static std::vector<Source> sources;
    return sources;
  }

  // Lines of code that match `pattern` in the files that `is_subject` names.
  template <typename Predicate>
  static Violations Find(const std::string& pattern, Predicate is_subject) {
    const std::regex regex(pattern);
    Violations found;
    for (const Source& source : sources()) {
      if (!is_subject(source)) continue;
      for (size_t i = 0; i < source.code.size(); ++i) {
        if (std::regex_search(source.code[i], regex)) {
          found.push_back(source.At(i) + source.lines[i]);
        }
      }
    }
    return found;
  }
  static bool IsOurs(const Source& source) { return !source.IsIn("tests"); }
};

TEST(HouseReader, SeesCodeOnly) {
  EXPECT_EQ(house::StripComments("a // b\nc /* d\ne */ f"), "a \nc \n f");
  EXPECT_EQ(house::StripComments(R"(x = "poll( \" //"; y = 'z'; n = 1'000; // 1)"),
            "x = \"\"; y = ''; n = 1'000; ");
  EXPECT_EQ(house::StripComments("a = R\"re(//\"\n)re\"; b"), "a = R\"\n\"; b");
}

TEST(HouseReader, KnowsTheArrows) {
  EXPECT_TRUE(MayUse("compiler", "graph/sbp.h"));
  EXPECT_TRUE(MayUse("runtime", "compiler/plan/expand.h"));
  EXPECT_TRUE(MayUse("actor", "runtime/base/reactor.h"));
  EXPECT_FALSE(MayUse("runtime", "compiler/compile.h"));
  EXPECT_FALSE(MayUse("runtime/base", "runtime/array.h"));
  EXPECT_FALSE(MayUse("actor", "comm/transport.h"));
  EXPECT_FALSE(MayUse("comm", "runtime/device/device.h"));
  EXPECT_FALSE(MayUse("graph", "runtime/array.h"));
  EXPECT_FALSE(MayUse("api", "tests/source_tree.h"));
}

TEST_F(House, HasEveryRoom) {
  for (const std::string& folder : kFolders) {
    EXPECT_TRUE(std::any_of(sources().begin(), sources().end(),
                            [&](const Source& source) { return source.IsIn(folder); }))
        << folder << " has no sources";
  }
}

TEST_F(House, IncludesFollowTheArrows) {
  Violations violations;
  for (const Source& source : sources()) {
    const std::string room = RoomOf(source.path);
    for (const Include& include : source.Includes()) {
      if (!kMayInclude.contains(RoomOf(include.path))) continue;  // not ours
      if (!MayUse(room, include.path)) {
        violations.push_back(source.At(include.line) + room + " may not include " + include.path);
      }
    }
  }
  EXPECT_TRUE(violations.empty()) << Join(violations);
}

TEST_F(House, IncludesInsideOfRoomsFollowTheArrows) {
  Violations violations;
  for (const Source& source : sources()) {
    const std::string top = source.path.substr(0, source.path.find('/'));
    if (!kMayIncludeInside.contains(top)) continue;
    const std::string folder = fs::path(source.path).parent_path();
    ASSERT_TRUE(kMayIncludeInside.contains(folder)) << source.path;
    const std::set<std::string>& allowed = kMayIncludeInside.at(folder);
    for (const Include& include : source.Includes()) {
      const std::string other = fs::path(include.path).parent_path();
      if (!other.starts_with(top) || other == folder || !kMayIncludeInside.contains(other)) {
        continue;  // the arrows between rooms have it
      }
      if (!allowed.contains(other) && !allowed.contains(include.path)) {
        violations.push_back(source.At(include.line) + folder + " may not include " + include.path);
      }
    }
  }
  EXPECT_TRUE(violations.empty()) << Join(violations);
}

// How tensors lie in memory is known to the compiler's tables of kinds of devices, and to kernels.
TEST_F(House, OperatorsAreOfPlainTensors) {
  const Violations violations =
      Find(R"([wW]inograd|[bB]lock(ed|s)?_?[cC]hannels?|[cC]hannel_?[bB]locks?|k?Blocked\w*)",
           [](const Source& source) { return source.IsIn("graph"); });
  EXPECT_TRUE(violations.empty()) << Join(violations);
}

// Headers in api/include are <braid/...> here as in other projects; all others are in quotes.
TEST_F(House, IncludesOfOursAreFromTheRoot) {
  Violations violations;
  for (const Source& source : sources()) {
    for (const Include& include : source.Includes()) {
      const std::string at = source.At(include.line) + include.path;
      if (kMayInclude.contains(RoomOf(include.path))) {
        // Generated headers stand for their .proto files.
        const std::string file =
            std::regex_replace(include.path, std::regex(R"(\.pb\.h$)"), ".proto");
        const bool is_public = include.path.starts_with("api/include/");
        if (include.is_quoted == is_public) {
          violations.push_back(at + (is_public ? " is public: in <>" : " is ours: in quotes"));
        }
        if (!fs::exists(Root() / file)) violations.push_back(at + " does not exist");
      } else if (fs::exists((Root() / source.path).parent_path() / include.path)) {
        violations.push_back(at + " is ours: from the root");
      }
    }
  }
  EXPECT_TRUE(violations.empty()) << Join(violations);
}

// So that it compiles in another project, too.
TEST_F(House, ProgramsOfUsersIncludePublicHeaders) {
  Violations violations;
  size_t count = 0;
  for (const Source& source : sources()) {
    const bool is_example = source.IsIn("examples");
    if (!is_example && !source.IsIn("tests/install") && !source.IsIn("tests/readme")) continue;
    for (const Include& include : source.Includes()) {
      const bool is_public = include.path.starts_with("api/include/");
      count += is_public;
      if (is_public || !kMayInclude.contains(RoomOf(include.path))) continue;
      if (is_example && include.path.starts_with("examples/")) continue;
      violations.push_back(source.At(include.line) + include.path + " is not public");
    }
  }
  EXPECT_GT(count, 10u);
  EXPECT_TRUE(violations.empty()) << Join(violations);
}

TEST_F(House, LibrariesLinkAlongTheArrows) {
  static const std::regex kLibrary(R"(braid_(library|proto|binary)\s*\(\s*(\w+))");
  static const std::regex kLink(R"(\bbraid::(\w+))");
  // The folder that makes a library, by the library's name.
  std::map<std::string, std::string> room_of;
  std::map<std::string, std::string> text_of;
  for (const std::string& folder : kFolders) {
    for (const auto& entry : fs::recursive_directory_iterator(Root() / folder)) {
      if (entry.path().filename() != "CMakeLists.txt") continue;
      const std::string path = fs::relative(entry.path(), Root());
      const std::string text =
          std::regex_replace(house::ReadFile(entry.path()), std::regex("#.*"), "");
      text_of[path] = text;
      for (std::sregex_iterator it(text.begin(), text.end(), kLibrary), end; it != end; ++it) {
        room_of[(*it)[2]] = RoomOf(path);
      }
    }
  }
  ASSERT_EQ(room_of["base"], "runtime/base");
  ASSERT_EQ(room_of["api"], "api");
  Violations violations;
  for (const auto& [path, text] : text_of) {
    // A user's project: what it links is for the package to say.
    if (path.starts_with("tests/install/")) continue;
    for (std::sregex_iterator it(text.begin(), text.end(), kLink), end; it != end; ++it) {
      const std::string library = (*it)[1];
      if (!room_of.contains(library)) {
        violations.push_back(path + ": braid::" + library + " is made nowhere");
      } else if (!MayUse(RoomOf(path), room_of[library] + "/")) {
        violations.push_back(path + " may not link braid::" + library);
      }
    }
  }
  EXPECT_TRUE(violations.empty()) << Join(violations);
}

TEST_F(House, BackendsStayInTheirRooms) {
  struct Backend {
    std::string_view name;
    std::regex header;
    std::vector<std::string_view> rooms;  // prefixes of paths
  };
  const std::vector<Backend> backends = {
      {"CUDA",
       std::regex(R"(^(cuda|cublas|cudnn|cufft|curand|nccl|nvrtc|cub/|thrust/|nvml))"),
       {"runtime/cuda/", "runtime/kernels/cuda/"}},
      {"verbs", std::regex(R"(^(infiniband|rdma)/)"), {"comm/rdma/"}},
      {"CPU math",
       std::regex(R"(^(dnnl|oneapi/dnnl|cblas|openblas|Eigen|mkl|omp\.h|immintrin|arm_))"),
       {"runtime/kernels/cpu/"}},
      {"sockets", std::regex(R"(^(sys/socket|netinet/|arpa/|netdb|sys/un\.h|net/if))"), {"comm/"}},
  };
  Violations violations;
  for (const Source& source : sources()) {
    if (!IsOurs(source)) continue;
    for (const Include& include : source.Includes()) {
      for (const Backend& backend : backends) {
        if (!std::regex_search(include.path, backend.header)) continue;
        if (std::none_of(backend.rooms.begin(), backend.rooms.end(),
                         [&](std::string_view room) { return source.path.starts_with(room); })) {
          violations.push_back(source.At(include.line) + include.path + " belongs to the room of " +
                               std::string(backend.name));
        }
      }
    }
  }
  EXPECT_TRUE(violations.empty()) << Join(violations);
}

// Loops that are compiled once per instruction set share no inline function with other sources: the
// linker could choose the copy whose instructions the machine lacks. Their includes say so.
TEST_F(House, LoopsShareNothingWithOtherSources) {
  static const std::regex kLoops(R"(runtime/kernels/cpu/\w+_loops\.(cc|h))");
  Violations violations;
  size_t families = 0;
  for (const Source& source : sources()) {
    if (!std::regex_match(source.path, kLoops)) continue;
    ++families;
    for (const Include& include : source.Includes()) {
      if (include.path == "cstdint" || include.path == "runtime/base/half.h" ||
          include.path == "runtime/base/independent.h" ||  // a macro
          include.path.starts_with("runtime/kernels/cpu/simd/") ||
          include.path.starts_with("runtime/kernels/functions/") ||
          std::regex_match(include.path, kLoops)) {
        continue;
      }
      violations.push_back(source.At(include.line) + include.path +
                           " may hold inline functions of other sources");
    }
  }
  EXPECT_GT(families, 10u);
  EXPECT_TRUE(violations.empty()) << Join(violations);
}

// An absent backend is a library opened at run time or a twin file. What a condition may ask is who
// compiles, and for which processor.
TEST_F(House, NoConditionalCompilationForBackends) {
  static const std::regex kCondition(R"(^\s*#\s*(if|ifdef|ifndef|elif)\b(.*))");
  static const std::regex kWord(R"([A-Za-z_]\w*)");
  const std::set<std::string> allowed = {"defined",       "__clang__",     "__GNUC__",
                                         "__x86_64__",    "__aarch64__",   "__cplusplus",
                                         "__has_include", "__has_feature", "__has_attribute",
                                         "BRAID_ISA",     "BRAID_INLINE",  "BRAID_EXP"};
  Violations violations;
  for (const Source& source : sources()) {
    if (source.IsIn("runtime/cuda") || source.IsIn("runtime/kernels/cuda")) continue;
    for (size_t i = 0; i < source.code.size(); ++i) {
      std::smatch match;
      if (!std::regex_search(source.code[i], match, kCondition)) continue;
      const std::string condition = match[2];
      for (std::sregex_iterator it(condition.begin(), condition.end(), kWord), end; it != end;
           ++it) {
        if (!allowed.contains(it->str())) violations.push_back(source.At(i) + source.lines[i]);
      }
    }
  }
  EXPECT_TRUE(violations.empty()) << Join(violations);
}

// Everything waits in runtime/base: so a whole cluster runs under the simulated reactor.
TEST_F(House, NobodyElseReadsAClockOrWaits) {
  const Violations violations = Find(
      R"(\b(steady_clock|system_clock|high_resolution_clock|utc_clock|this_thread|sleep_for|)"
      R"(sleep_until|usleep|nanosleep|clock_nanosleep|condition_variable\w*|epoll_\w+|)"
      R"(clock_gettime|gettimeofday|timerfd_\w+|eventfd\w*|rdtsc\w*|pthread_cond_\w+|sem_t|)"
      R"(counting_semaphore|binary_semaphore|latch|barrier|sigtimedwait|)"
      R"(SleepFor|CondVar|Notification|BlockingCounter)\b|\bstd::(promise|future|async|time)\b|)"
      R"((^|[^\w.:>])(::)?(poll|ppoll|select|pselect|sleep|time|clock|waitpid|pause)\s*\(|)"
      R"(\babsl::(Now|GetCurrentTimeNanos|Mutex)\b|#\s*include\s*<chrono>)",
      [](const Source& source) { return IsOurs(source) && !source.IsIn("runtime/base"); });
  EXPECT_TRUE(violations.empty()) << Join(violations);
}

// What maps a file to read it takes no memory of its own; and what processes share belongs to all
// of them.
TEST_F(House, MemoryComesFromDevices) {
  const Violations violations =
      Find(R"(\boperator new\b|\balign_val_t\b|\b(mmap|malloc|calloc|realloc|aligned_alloc|)"
           R"(posix_memalign|memfd_create|shm_open)\s*\()",
           [](const Source& source) {
             return IsOurs(source) && !source.IsIn("runtime/device") &&
                    source.path != "comm/cluster/build_fingerprint.cc" &&
                    source.path != "runtime/base/shared_memory.cc";
           });
  EXPECT_TRUE(violations.empty()) << Join(violations);
}

TEST_F(House, NoAbslLog) {
  Violations violations;
  for (const Source& source : sources()) {
    for (const Include& include : source.Includes()) {
      if (include.path.starts_with("absl/log")) {
        violations.push_back(source.At(include.line) + include.path);
      }
    }
  }
  EXPECT_TRUE(violations.empty()) << Join(violations);
}

TEST_F(House, NothingRegistersItselfAndNothingIsASingleton) {
  const Violations violations = Find(
      R"(#\s*define\s+\w*REGIST\w*|__attribute__\s*\(\(\s*(constructor|destructor)|)"
      R"(^(static|inline|const)?\s*(const\s+)?(bool|int|auto)\s+\w*([rR]egistered|[rR]egistrar)\w*\s*=|)"
      R"(\bthread_local\b|\b(Get)?(Instance|Singleton|Global)\s*\()",
      [](const Source& source) { return IsOurs(source); });
  EXPECT_TRUE(violations.empty()) << Join(violations);
}

// Two compiles of one program give the same bytes.
TEST_F(House, CompilerHasNoUnorderedContainers) {
  const Violations violations =
      Find(R"(\b(unordered_(multi)?(map|set)|flat_hash_(map|set)|node_hash_(map|set))\b)",
           [](const Source& source) { return source.IsIn("compiler"); });
  EXPECT_TRUE(violations.empty()) << Join(violations);
}

// <braid/braid.h> reaches no protobuf, CUDA, verbs or glog header.
TEST_F(House, PublicHeaderIsLight) {
  std::map<std::string, const Source*> by_path;
  for (const Source& source : sources()) by_path[source.path] = &source;
  std::set<std::string> seen = {"api/include/braid/braid.h"};
  std::vector<std::string> open = {"api/include/braid/braid.h"};
  Violations violations;
  while (!open.empty()) {
    const std::string path = open.back();
    open.pop_back();
    ASSERT_TRUE(by_path.contains(path)) << path;
    for (const Include& include : by_path[path]->Includes()) {
      if (std::regex_search(include.path,
                            std::regex(R"(\.pb\.h$|^(google|glog|cuda|infiniband)|dnnl)"))) {
        violations.push_back(by_path[path]->At(include.line) + include.path);
      } else if (by_path.contains(include.path) && seen.insert(include.path).second) {
        open.push_back(include.path);
      }
    }
  }
  EXPECT_GT(seen.size(), 10u);
  EXPECT_TRUE(violations.empty()) << Join(violations);
}

TEST_F(House, HeadersOpenWithASentence) {
  Violations violations;
  for (const Source& source : sources()) {
    if (!source.IsHeader()) continue;
    if (source.lines.empty() || !source.lines[0].starts_with("// ")) {
      violations.push_back(source.At(0) + "no sentence says what this is and where it stands");
    }
    const auto first = std::find_if(
        source.code.begin(), source.code.end(),
        [](const std::string& line) { return line.find_first_not_of(" \t") != std::string::npos; });
    if (first == source.code.end() || *first != "#pragma once") {
      violations.push_back(source.path + ": #pragma once is not the first line of code");
    }
  }
  EXPECT_TRUE(violations.empty()) << Join(violations);
}

TEST_F(House, NamesSayWhatThingsAre) {
  const std::set<std::string> empty_words = {"util",   "utils",   "common",   "misc",  "manager",
                                             "helper", "helpers", "managers", "stuff", "commons"};
  Violations violations;
  for (const Source& source : sources()) {
    std::string word;
    for (const char c : source.path + "/") {
      if (std::isalnum(static_cast<unsigned char>(c))) {
        word += c;
        continue;
      }
      if (empty_words.contains(word)) violations.push_back(source.path + ": '" + word + "'");
      word.clear();
    }
    if (!std::regex_match(source.path, std::regex(R"([a-z0-9_/]+\.(cc|h|cu))"))) {
      violations.push_back(source.path + ": file names are snake_case");
    }
  }
  EXPECT_TRUE(violations.empty()) << Join(violations);
}

TEST_F(House, NothingIsLeftForLater) {
  const std::regex mark(R"(\b(TODO|FIXME|XXX|HACK)\b)");
  Violations violations;
  for (const Source& source : sources()) {
    if (source.path == "tests/house_test.cc") continue;  // names the marks
    for (size_t i = 0; i < source.lines.size(); ++i) {
      if (std::regex_search(source.lines[i], mark)) {
        violations.push_back(source.At(i) + source.lines[i]);
      }
    }
  }
  EXPECT_TRUE(violations.empty()) << Join(violations);
}

// Reports files of over 400 lines and refuses those of over 600.
TEST_F(House, FilesAreReadToTheEnd) {
  constexpr size_t kLong = 400, kTooLong = 600;
  std::vector<std::pair<size_t, std::string>> lengths;
  for (const Source& source : sources()) lengths.emplace_back(source.lines.size(), source.path);
  std::sort(lengths.rbegin(), lengths.rend());
  size_t total = 0;
  for (const auto& [lines, path] : lengths) {
    total += lines;
    if (lines > kLong) std::cout << lines << " lines: " << path << "\n";
    EXPECT_LE(lines, kTooLong) << path << ": split it";
  }
  std::cout << lengths.size() << " files, " << total << " lines\n";
}

}  // namespace
}  // namespace braid
