// Programs of process groups that tests start and break. The first argument says which; without
// one, a rank that sums without end.
#include <braid/braid.h>
#include <braid/dist.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "runtime/base/thread_limit.h"
#include "tests/dist/mismatches.h"

namespace {

using braid::dist::Spawn;
using braid::dist::World;

absl::Status SumWithoutEnd(World& world) {
  std::vector<float> data(4 << 20);  // some of it is always on its way
  for (bool is_first = true;; is_first = false) {
    BRAID_RETURN_IF_ERROR(world.AllReduce(data));
    if (is_first) std::cout << "summing" << std::endl;
  }
}

absl::Status Sum(const std::string& init_method) {
  BRAID_ASSIGN_OR_RETURN(const std::unique_ptr<World> world,
                         World::Init({.init_method = init_method}));
  return SumWithoutEnd(*world);
}

// Waits in the store for what does not come.
absl::Status WaitInStore() {
  BRAID_ASSIGN_OR_RETURN(const std::unique_ptr<World> world, World::Init());
  BRAID_RETURN_IF_ERROR(world->Barrier());
  std::cout << "waiting" << std::endl;
  return world->store().Get("what does not come").status();
}

// Rank 1 waits in another group than the others, each for the others.
absl::Status WaitInGroups() {
  BRAID_ASSIGN_OR_RETURN(const std::unique_ptr<World> world, World::Init());
  BRAID_ASSIGN_OR_RETURN(const auto group, world->NewGroup({0, 1}));
  BRAID_RETURN_IF_ERROR(world->Barrier());
  std::cout << "at " << std::getenv("MASTER_PORT") << std::endl;
  return world->rank() == 1 ? group->Barrier() : world->Barrier();
}

// Rank 1 computes without end while the others wait for it.
absl::Status WaitForOne() {
  BRAID_ASSIGN_OR_RETURN(const std::unique_ptr<World> world,
                         World::Init({.stall_timeout = absl::Seconds(1)}));
  BRAID_RETURN_IF_ERROR(world->Barrier());
  if (world->rank() == 1) std::this_thread::sleep_for(std::chrono::hours(1));
  return world->Barrier();
}

// Does nothing for a while, the second time it acts.
class Nap final : public braid::Kernel {
 public:
  explicit Nap(bool is_late) : is_late_(is_late) {}
  absl::Status Run(const braid::KernelRun& run) override {
    if (is_late_ && ++acts_ == 2) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    *static_cast<float*>(run.outputs[0]) = *static_cast<const float*>(run.inputs[0]);
    return absl::OkStatus();
  }

 private:
  const bool is_late_;
  int acts_ = 0;
};

// A session on the ranks, in whose second step rank 1 takes its time.
absl::Status StandStill() {
  BRAID_ASSIGN_OR_RETURN(const std::unique_ptr<World> world,
                         World::Init({.stall_timeout = absl::Seconds(1)}));
  BRAID_ASSIGN_OR_RETURN(const auto session, braid::Session::Start(*world, {}));
  BRAID_RETURN_IF_ERROR(
      session->operators().Register(braid::OpDef("nap")
                                        .Rule("...->...")
                                        .NoGradient()
                                        .Sample({.inputs = {{braid::DType::kF32, {1}}}})));
  BRAID_RETURN_IF_ERROR(session->kernels().Register(
      "nap",
      [is_late = world->rank() ==
                 1](const braid::KernelSpec&) -> absl::StatusOr<std::unique_ptr<braid::Kernel>> {
        return std::make_unique<Nap>(is_late);
      }));
  BRAID_ASSIGN_OR_RETURN(auto job, session->Compile("naps", [](braid::Job& job) {
    job.Fetch("sum", SumMirrored(
                         job.Mirrored([&] { return braid::Apply("nap", {job.Input("x", {1})}); })));
  }));
  const auto x = braid::Array::FromVector<float>({1}, {1});
  for (int step = 0; step < 3; ++step) {
    BRAID_RETURN_IF_ERROR(job.Run({.feeds = {{"x", x}}}).status());
  }
  return session->Close(absl::OkStatus());
}

std::vector<braid::Mismatch> AllMismatches() {
  std::vector<braid::Mismatch> all = braid::PlainMismatches();
  for (braid::Mismatch& mismatch : braid::BatchMismatches()) all.push_back(std::move(mismatch));
  for (braid::Mismatch& mismatch : braid::ObjectMismatches()) {
    mismatch.name = "Object" + mismatch.name;
    all.push_back(std::move(mismatch));
  }
  return all;
}

// What dist_mismatch.py tries: a line each, name, seconds and words, tabs between.
absl::Status ListMismatches() {
  for (const braid::Mismatch& mismatch : AllMismatches()) {
    std::cout << mismatch.name << "\t" << absl::ToDoubleSeconds(mismatch.limit);
    for (const std::string& words : mismatch.words) std::cout << "\t" << words;
    std::cout << "\n";
  }
  return absl::OkStatus();
}

absl::Status MakeMismatch(const std::string& name) {
  BRAID_ASSIGN_OR_RETURN(const std::unique_ptr<World> world, World::Init());
  for (const braid::Mismatch& mismatch : AllMismatches()) {
    if (mismatch.name != name) continue;
    const braid::MismatchEnd end = braid::RunMismatch(*world, mismatch);
    std::cout << absl::StrFormat("took %.3f s\n", absl::ToDoubleSeconds(end.took));
    return end.status;
  }
  return absl::NotFoundError("there is no mismatch '" + name + "'");
}

// Rank 0 puts to the others without end and gets from them, and these wait for a signal.
absl::Status PutWithoutEnd() {
  BRAID_ASSIGN_OR_RETURN(const std::unique_ptr<World> world, World::Init());
  std::vector<float> memory(4 << 20), data(4 << 20);
  BRAID_ASSIGN_OR_RETURN(const auto window, world->MakeWindow(memory));
  std::cout << "putting" << std::endl;
  if (world->rank() != 0) return window->WaitSignal(0, 1).status();
  while (true) {
    for (int rank = 1; rank < world->size(); ++rank) {
      BRAID_RETURN_IF_ERROR(window->Put(memory, rank, 0));
      BRAID_RETURN_IF_ERROR(window->Get(data, rank, 0));
    }
  }
}

void SleepWithoutEnd() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

// Joins and says who came, without an end of line that would empty the buffers.
absl::Status SayRank(int rank) {
  BRAID_ASSIGN_OR_RETURN(const std::unique_ptr<World> world, World::Init());
  std::vector<int> sum = {rank + 1};
  BRAID_RETURN_IF_ERROR(world->AllReduce(sum));
  std::printf("[rank %d of %d: sum %d, %d of %d here]", world->rank(), world->size(), sum[0],
              world->local_rank(), world->local_size());
  std::cout << "[done]";
  return world->Close();
}

// Rank 1 does `fail` while the others sum without end, and they return what they get.
absl::Status WhileOthersSum(int rank, const std::function<absl::Status(World&)>& fail) {
  BRAID_ASSIGN_OR_RETURN(const std::unique_ptr<World> world, World::Init());
  std::vector<float> data(100);
  BRAID_RETURN_IF_ERROR(world->AllReduce(data));
  return rank == 1 ? fail(*world) : SumWithoutEnd(*world);
}

int OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

// What is said at the end of main, once.
struct LastWord {
  ~LastWord() { std::puts("[last word]"); }
};

absl::Status Say() {
  static const LastWord last_word;
  std::atexit([] { std::puts("[at exit]"); });
  std::printf("[before]");
  std::cout << "[and]";
  const absl::Status status = Spawn(SayRank, 3);
  std::printf("[after]");
  return status;
}

// Worlds of this process are closed by then, and their threads have ended; the thread sanitizer has
// one that stays.
absl::Status SpawnAgain() {
  {
    BRAID_ASSIGN_OR_RETURN(const std::unique_ptr<World> alone, World::Init());
    BRAID_RETURN_IF_ERROR(alone->Close());
  }
  const absl::Status first = Spawn(SayRank, 2);
  if (absl::IsFailedPrecondition(first)) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    if (braid::CountThreads() > 1) return absl::UnavailableError("a thread stays");
  }
  BRAID_RETURN_IF_ERROR(first);
  const int before = OpenDescriptors();
  BRAID_RETURN_IF_ERROR(Spawn(SayRank, 2));
  BRAID_RETURN_IF_ERROR(Spawn([](int) { return absl::OkStatus(); }, 1));
  if (OpenDescriptors() == before) return absl::OkStatus();
  return absl::InternalError("descriptors were left open");
}

absl::Status SpawnWithThreads() {
  std::thread other(SleepWithoutEnd);
  pthread_setname_np(other.native_handle(), "the other one");
  const absl::Status status = Spawn(SayRank, 2);
  other.detach();
  return status;
}

using RankProgram = std::function<absl::Status(int rank)>;

RankProgram Failing(const std::function<absl::Status(World&)>& fail) {
  return [fail](int rank) { return WhileOthersSum(rank, fail); };
}

const std::map<std::string, RankProgram>& SpawnedPrograms() {
  static const std::map<std::string, RankProgram> programs = {
      {"own_error", Failing([](World&) { return absl::NotFoundError("no such data"); })},
      {"own_error_closed",
       Failing([](World& world) { return world.Close(absl::NotFoundError("no such data")); })},
      {"throws", Failing([](World&) -> absl::Status { throw std::out_of_range("7 of 3"); })},
      {"segv", Failing([](World&) {
         signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would exit
         raise(SIGSEGV);
         return absl::OkStatus();
       })},
      {"killed", Failing([](World&) {
         raise(SIGKILL);
         return absl::OkStatus();
       })},
      {"exits", Failing([](World&) -> absl::Status { exit(3); })},
      {"exits_well", Failing([](World&) -> absl::Status { _exit(0); })},
      {"aborts", Failing([](World&) -> absl::Status { std::abort(); })},
      // What CHECK_OK does with the error of a world.
      {"others_abort",
       [](int rank) {
         const absl::Status status = WhileOthersSum(
             rank, [](World& world) { return world.Close(absl::NotFoundError("no such data")); });
         if (rank != 1) std::abort();
         return status;
       }},
      {"deaf",
       [](int rank) {
         if (rank == 1) return absl::NotFoundError("no such data");
         signal(SIGTERM, SIG_IGN);
         SleepWithoutEnd();
         return absl::OkStatus();
       }},
      {"sleeps",
       [](int) {
         std::cout << absl::StrFormat("asleep, started by %d\n", getppid()) << std::flush;
         SleepWithoutEnd();
         return absl::OkStatus();
       }},
      {"long_error",
       [](int) { return absl::InternalError(std::string(1 << 20, 'x') + "the end"); }},
  };
  return programs;
}

absl::Status Run(const std::string& name, const std::string& argument) {
  if (name.empty() || name == "meets") return Sum(argument);
  if (name == "wait") return WaitInStore();
  if (name == "groups") return WaitInGroups();
  if (name == "absent") return WaitForOne();
  if (name == "stands") return StandStill();
  if (name == "mismatches") return ListMismatches();
  if (name == "mismatch") return MakeMismatch(argument);
  if (name == "windows") return PutWithoutEnd();
  if (name == "say") return Say();
  if (name == "again") return SpawnAgain();
  if (name == "with_threads") return SpawnWithThreads();
  if (name == "no_ranks") return Spawn(SayRank, 0);
  if (name == "no_function") return Spawn(nullptr, 2);
  if (name == "sigchld_ignored") {
    signal(SIGCHLD, SIG_IGN);
    return Spawn(SayRank, 2);
  }
  return Spawn(SpawnedPrograms().at(name), 3);
}

// What dist::Main runs: the program says in the environment what it does, so that its command line
// stays the one of any program.
absl::Status RunInMain(World& world) {
  const std::string what = std::getenv("BRAID_TEST_MAIN");
  if (what == "throws" && world.rank() == 1) throw std::out_of_range("7 of 3");
  if (what == "own_error" && world.rank() == 1) return absl::NotFoundError("no such data");
  if (what == "says") return absl::OkStatus();
  if (what == "computes" && world.rank() != 1) {
    std::cout << "computing" << std::endl;
    SleepWithoutEnd();
  }
  if (what == "computes") {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return absl::NotFoundError("no such data");
  }
  return SumWithoutEnd(world);
}

}  // namespace

int main(int argc, char** argv) {
  if (std::getenv("BRAID_TEST_MAIN") != nullptr) {
    return braid::dist::Main(argc, argv, {.about = "What tests break."}, RunInMain);
  }
  const absl::Status status = Run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "");
  if (status.ok()) return 0;
  std::cerr << "error: " << status.message() << "\n";
  return 1;
}
