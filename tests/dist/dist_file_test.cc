// Worlds whose ranks meet by a file.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "api/dist.h"
#include "api/dist_init.h"
#include "comm/control/meeting_file.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/status.h"
#include "tests/multiprocess/program_run.h"
#include "tests/runtime/temp_dir.h"

namespace braid {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

dist::InitOptions OptionsOf(const std::string& path, int rank, int ranks) {
  dist::InitOptions options;
  options.init_method = "file://" + path;
  options.rank = rank;
  options.world_size = ranks;
  options.timeout = absl::Seconds(30);
  options.environment = [](const std::string&) { return std::optional<std::string>(); };
  return options;
}

absl::Status SumRanks(const dist::InitOptions& options) {
  auto world = dist::World::Init(options);
  if (!world.ok()) return world.status();
  std::vector<int> sum = {(*world)->rank() + 1};
  BRAID_RETURN_IF_ERROR((*world)->AllReduce(sum));
  const int ranks = (*world)->size();
  EXPECT_EQ(sum[0], ranks * (ranks + 1) / 2);
  return (*world)->Close();
}

// All ranks as threads, the last first, so that rank 0 comes when the others wait.
std::vector<absl::Status> SumAll(const std::string& path, int ranks,
                                 const std::function<void(dist::InitOptions&)>& change = {}) {
  std::vector<absl::Status> statuses(ranks);
  std::vector<std::thread> threads;
  for (int rank = ranks - 1; rank >= 0; --rank) {
    threads.emplace_back([&, rank] {
      dist::InitOptions options = OptionsOf(path, rank, ranks);
      if (change) change(options);
      statuses[rank] = SumRanks(options);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

void ExpectGood(const std::vector<absl::Status>& statuses) {
  for (size_t rank = 0; rank < statuses.size(); ++rank) {
    EXPECT_EQ(statuses[rank], absl::OkStatus()) << "rank " << rank;
  }
}

void ExpectEmpty(const std::string& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) ADD_FAILURE() << entry.path();
}

TEST(DistFileTest, RanksMeetAndLeaveNothing) {
  const TempDir folder;
  for (const int ranks : {1, 2, 4}) {
    ExpectGood(SumAll(folder / "world", ranks));
    ExpectEmpty(folder.path());
  }
}

// The same path again, by ranks that do not wait for each other between the two worlds.
TEST(DistFileTest, APathServesOneWorldAfterAnother) {
  const TempDir folder;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(SumRanks(OptionsOf(folder / "world", rank, 3)), absl::OkStatus());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ExpectEmpty(folder.path());
}

TEST(DistFileTest, TheFileIsItsUsersAlone) {
  const TempDir folder;
  const mode_t before = umask(0777);
  const absl::StatusOr<MeetingFile> file =
      MeetingFile::Write(folder / "world", {*SocketAddress::Parse("127.0.0.1:4711")});
  umask(before);
  ASSERT_EQ(file.status(), absl::OkStatus());
  struct stat status = {};
  ASSERT_EQ(stat((folder / "world").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  EXPECT_EQ(status.st_nlink, 1u);
  const absl::StatusOr<MeetingPlace> place = ReadMeetingFile(folder / "world");
  ASSERT_EQ(place.status(), absl::OkStatus());
  EXPECT_EQ(place->nonce, file->nonce());
  EXPECT_TRUE(place->is_on_this_machine);
  EXPECT_TRUE(place->is_held);
  EXPECT_EQ(place->addresses, std::vector{*SocketAddress::Parse("127.0.0.1:4711")});
}

// What rank 0 of an earlier run leaves when it is killed.
std::string StaleText(const std::string& port) {
  const TempDir folder;
  const absl::StatusOr<MeetingFile> file =
      MeetingFile::Write(folder / "world", {*SocketAddress::Parse("127.0.0.1:" + port)});
  EXPECT_EQ(file.status(), absl::OkStatus());
  return GetFile(folder / "world");
}

void PutMeeting(const std::string& path, const std::string& text, mode_t mode = 0600) {
  PutFile(path, text);
  EXPECT_EQ(chmod(path.c_str(), mode), 0);
}

TEST(DistFileTest, WhatAnEarlierRunLeftIsReplaced) {
  const TempDir folder;
  const std::string path = folder / "world";
  // A port where nobody is; one where another world is, which must not be joined; a last start of
  // this machine long ago; one of another version; an empty file, as mktemp makes it.
  const int port = FreePort();
  std::atomic<bool> is_over = false;
  dist::InitOptions other = OptionsOf("", 0, 2);
  other.init_method = absl::StrFormat("tcp://127.0.0.1:%d", port);
  other.timeout = absl::Seconds(20);
  absl::Status of_other;
  std::thread waiting([&] {
    of_other = dist::World::Init(other).status();
    is_over = true;
  });
  const std::string stale = StaleText(absl::StrFormat("%d", port));
  const size_t boot = stale.find("machine ") + 8;
  std::string of_earlier_start = stale;
  of_earlier_start.replace(boot, 8, "01234567");
  for (const std::string& text : {StaleText("1"), stale, of_earlier_start,
                                  std::string("braid world 0\nport 7\n"), std::string()}) {
    PutMeeting(path, text);
    if (!text.starts_with("braid world 0")) {
      ExpectGood(SumAll(path, 3));
    } else {
      EXPECT_EQ(SumRanks(OptionsOf(path, 0, 1)), absl::OkStatus());
    }
    ExpectEmpty(folder.path());
  }
  EXPECT_FALSE(is_over) << "the other world was disturbed: " << of_other;
  other.rank = 1;
  EXPECT_EQ(dist::World::Init(other).status(), absl::OkStatus());
  waiting.join();
  EXPECT_EQ(of_other, absl::OkStatus());
}

// Its port may be another world's by now, and that it was left may not be seen.
TEST(DistFileTest, TheNonceKeepsRanksOutOfAnotherWorld) {
  const TempDir folder;
  absl::Status of_zero;
  std::thread zero([&] { of_zero = SumRanks(OptionsOf(folder / "world", 0, 2)); });
  absl::StatusOr<MeetingPlace> place = absl::UnavailableError("not yet");
  while (!place.ok()) place = ReadMeetingFile(folder / "world");
  {
    const absl::StatusOr<MeetingFile> file =
        MeetingFile::Write(folder / "another", place->addresses);
    ASSERT_EQ(file.status(), absl::OkStatus());
    const absl::Status status = SumRanks(OptionsOf(folder / "another", 1, 2));
    EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
  }
  EXPECT_EQ(SumRanks(OptionsOf(folder / "world", 1, 2)), absl::OkStatus());
  zero.join();
  EXPECT_EQ(of_zero, absl::OkStatus()) << "it was not disturbed";
}

TEST(DistFileTest, WhoComesEarlyDoesNotJoinAnEarlierRun) {
  const TempDir folder;
  const std::string path = folder / "world";
  PutMeeting(path, StaleText("1"));
  dist::InitOptions options = OptionsOf(path, 1, 2);
  options.timeout = absl::Seconds(1);
  const absl::Status status = SumRanks(options);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("rank 1: joining: "), HasSubstr("within 1.0 s (InitOptions::timeout"),
                    HasSubstr(absl::StrFormat("'%s' was left by an earlier run, process %d on ",
                                              path, getpid())),
                    HasSubstr("which has ended: rank 0 has not come yet")));
  EXPECT_TRUE(fs::exists(path)) << "only rank 0 replaces it";
}

TEST(DistFileTest, ARankZeroThatDoesNotComeIsNamedWithThePath) {
  const TempDir folder;
  const std::string path = folder / "world";
  dist::InitOptions options = OptionsOf(path, 1, 2);
  options.timeout = absl::Seconds(1);
  const absl::Status status = SumRanks(options);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrFormat("'%s' is not there: rank 0, which writes its address "
                                        "there, has not come yet",
                                        path)));
}

TEST(DistFileTest, AWorldThatRunsKeepsItsPath) {
  const TempDir folder;
  const std::string path = folder / "world";
  absl::StatusOr<std::unique_ptr<dist::World>> world = dist::World::Init(OptionsOf(path, 0, 1));
  ASSERT_EQ(world.status(), absl::OkStatus());
  const std::string text = GetFile(path);
  const absl::Status second = SumRanks(OptionsOf(path, 0, 1));
  EXPECT_TRUE(absl::IsAlreadyExists(second)) << second;
  EXPECT_THAT(std::string(second.message()),
              AllOf(HasSubstr(path), HasSubstr(absl::StrFormat("rank 0 is process %d", getpid())),
                    HasSubstr("give each world a path of its own")));
  EXPECT_EQ(GetFile(path), text);
  EXPECT_EQ((*world)->Close(), absl::OkStatus());
  ExpectEmpty(folder.path());
}

// A rank that looks while rank 0 replaces the file does not take it for one that counts.
TEST(DistFileTest, WhatIsBeingReplacedIsStillOfAnEarlierRun) {
  const TempDir folder;
  const std::string path = folder / "world";
  PutMeeting(path, StaleText("1"));
  const Descriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct flock second_byte = {};
  second_byte.l_type = F_WRLCK;
  second_byte.l_start = 1;
  second_byte.l_len = 1;
  ASSERT_EQ(fcntl(file.number(), F_OFD_SETLK, &second_byte), 0);
  EXPECT_TRUE(absl::IsUnavailable(ReadMeetingFile(path).status()));
  const absl::Status status =
      MeetingFile::Write(path, {*SocketAddress::Parse("127.0.0.1:4711")}).status();
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("about to make it as rank 0"));
}

// Of many that find what an earlier run left there, one gets the path.
TEST(DistFileTest, OneOfManyGetsThePath) {
  const TempDir folder;
  const std::string path = folder / "world";
  PutMeeting(path, StaleText("1"));
  std::atomic<int> good = 0;
  std::atomic<int> tried = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const auto file = MeetingFile::Write(path, {*SocketAddress::Parse("127.0.0.1:4711")});
      good += file.ok();
      EXPECT_TRUE(file.ok() || absl::IsAlreadyExists(file.status())) << file.status();
      ++tried;
      while (tried < 8) std::this_thread::yield();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 1);
  ExpectEmpty(folder.path());
}

// Where rank 0 cannot write or a file is not what it should be: rank 0 and another, with what both
// are told.
TEST(DistFileTest, WhatCannotBeUsedIsNamed) {
  const TempDir folder;
  const std::string path = folder / "world";
  PutMeeting(folder / "letter", "Dear Anne,\n");
  PutMeeting(folder / "cut", StaleText("1").substr(0, 60));
  PutMeeting(folder / "open", StaleText("1"), 0644);
  fs::create_directory(folder / "folder");
  fs::create_symlink(folder / "letter", folder / "link");
  struct Case {
    std::string path;
    std::vector<int> ranks;
    std::string says;
  };
  std::vector<Case> cases = {
      {folder / "none/world", {0, 1}, "cannot open the folder '" + folder.path() + "/none'"},
      {folder / "letter/world", {0, 1}, "Not a directory"},
      {"/sys/kernel/world", {0}, "cannot make a file in its folder"},
      {folder / "letter", {0, 1}, "begins with 'Dear Anne,', not with 'braid world 1'"},
      {folder / "cut", {1}, "is cut off; remove it"},
      {folder / "folder", {0, 1}, "is no regular file"},
      {folder / "link", {0, 1}, "is no regular file"},
      {folder / "open", {1}, "has mode 0644, and this process is user"},
      {folder / std::string(300, 'x'), {0, 1}, "File name too long"},
  };
  if (geteuid() == 0) {
    PutMeeting(folder / "foreign", StaleText("1"));
    ASSERT_EQ(chown((folder / "foreign").c_str(), 12345, 12345), 0);
    cases.push_back({folder / "foreign", {0, 1}, "belongs to user 12345"});
  }
  for (const auto& [where, ranks, says] : cases) {
    for (const int rank : ranks) {
      dist::InitOptions options = OptionsOf(where, rank, 2);
      options.timeout = absl::Seconds(20);
      const absl::Status status = SumRanks(options);
      EXPECT_FALSE(absl::IsDeadlineExceeded(status)) << where << ", rank " << rank;
      EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(where), HasSubstr(says)));
    }
  }
  EXPECT_EQ(GetFile(folder / "letter"), "Dear Anne,\n");
  // A damaged or open one of its own is replaced by rank 0.
  for (const char* name : {"cut", "open"}) {
    EXPECT_EQ(SumRanks(OptionsOf(folder / name, 0, 1)), absl::OkStatus());
  }
}

// A limit on file sizes stands in for a full disk.
TEST(DistFileTest, AFullDiskIsNamed) {
  const TempDir folder;
  rlimit old_limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t bytes : {0, 20}) {
    const rlimit small = {.rlim_cur = bytes, .rlim_max = old_limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const absl::Status status =
        MeetingFile::Write(folder / "world", {*SocketAddress::Parse("127.0.0.1:1")}).status();
    setrlimit(RLIMIT_FSIZE, &old_limit);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(folder / "world"), HasSubstr("cannot write it")));
    ExpectEmpty(folder.path());
  }
  signal(SIGXFSZ, old_handler);
}

TEST(DistFileTest, MistakesInTheMethodAreNamed) {
  const auto with = [](const std::string& method, int rank, int ranks) {
    dist::InitOptions options = OptionsOf("", rank, ranks);
    options.init_method = method;
    return options;
  };
  const std::pair<dist::InitOptions, std::string> mistakes[] = {
      {with("file://world", 0, 2), "'world' is no absolute path of a file; file:///FOLDER/NAME"},
      {with("file://", 0, 2), "'' is no absolute path"},
      {with("file:///tmp/", 0, 2), "'/tmp/' is no absolute path of a file"},
      {with("file:///tmp/w", -1, 2),
       "does not say the rank of this process, nor do InitOptions and the variable RANK"},
      {with("file:///tmp/w?rank=1", -1, -1),
       "the variable WORLD_SIZE; file:///tmp/w?rank=R&world_size=N does"},
      {with("file:///tmp/w?rank=2&world_size=2", -1, -1), "rank 2 (rank in file:///tmp/w"},
      {with("file:///tmp/w?node=2", 0, 2), "node in file:///tmp/w?node=2 is not known"},
  };
  for (const auto& [options, words] : mistakes) {
    const absl::Status status = dist::FindWorld(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << words;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }
  dist::InitOptions options = with("file:///tmp/w", -1, -1);
  options.environment = [](const std::string& name) {
    return std::optional<std::string>(name == "RANK" ? "3" : "5");
  };
  const auto found = dist::FindWorld(options);
  ASSERT_EQ(found.status(), absl::OkStatus());
  EXPECT_EQ((*found)->cluster.rank, 3);
  EXPECT_EQ((*found)->cluster.nodes.size(), 5u);
  EXPECT_EQ((*found)->meeting_file, "/tmp/w");
}

TEST(DistFileTest, OtherMachinesReachItOnlyWithASecret) {
  const TempDir folder;
  const std::string path = folder / "world";
  // Rank 0 listens everywhere, and the others take an address that other machines would take.
  ExpectGood(SumAll(path, 3, [](dist::InitOptions& options) { options.secret = "s3cret"; }));
  absl::StatusOr<std::unique_ptr<dist::World>> world = dist::World::Init(OptionsOf(path, 0, 1));
  ASSERT_EQ(world.status(), absl::OkStatus());
  const std::string text = GetFile(path);
  EXPECT_THAT(text, HasSubstr("\naddress 127.0.0.1:"));
  // As a rank of another machine sees it, by the folder that they share.
  std::string elsewhere = text;
  elsewhere.replace(elsewhere.find("machine ") + 8, 8, "01234567");
  PutMeeting(folder / "elsewhere", elsewhere);
  dist::InitOptions options = OptionsOf(folder / "elsewhere", 1, 2);
  options.timeout = absl::Seconds(1);
  EXPECT_THAT(std::string(SumRanks(options).message()),
              AllOf(HasSubstr("which is another machine"), HasSubstr("the same BRAID_AUTH_TOKEN")));
}

TEST(DistFileTest, AnotherSecretIsToldAtOnce) {
  const TempDir folder;
  std::atomic<bool> has_failed = false;
  std::thread rank_0([&] {
    dist::InitOptions options = OptionsOf(folder / "world", 0, 2);
    options.timeout = absl::Seconds(3);
    EXPECT_TRUE(absl::IsDeadlineExceeded(SumRanks(options)));
    EXPECT_TRUE(has_failed);
  });
  dist::InitOptions options = OptionsOf(folder / "world", 1, 2);
  options.secret = "other";
  const absl::Status status = SumRanks(options);
  has_failed = true;
  EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
  rank_0.join();
  ExpectEmpty(folder.path());
}

// Also where nothing is destroyed: rank 0 is killed, and the next run takes its place.
TEST(DistFileTest, AKilledRankZeroLeavesAPathThatServesAgain) {
  const TempDir folder;
  const std::string path = folder / "world";
  const auto start = [&](int rank) {
    return std::make_unique<ProgramRun>(
        std::vector<std::string>{BRAID_DIST_PROGRAM, "meets", "file://" + path},
        ProgramRun::Options{
            .environment = {{"RANK", absl::StrFormat("%d", rank)}, {"WORLD_SIZE", "2"}}});
  };
  for (int round = 0; round < 2; ++round) {
    const auto other = start(1);
    const auto zero = start(0);
    zero->AwaitOutput("summing");
    zero->Signal(SIGKILL);
    EXPECT_EQ(other->Wait().code, 1);
    EXPECT_THAT(other->LastErrorLine(), HasSubstr("error: master lost"));
    zero->Wait();
    EXPECT_TRUE(fs::exists(path));
  }
}

}  // namespace
}  // namespace braid
