#include "runtime/files/folder_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>

#include "absl/strings/str_format.h"
#include "tests/runtime/temp_dir.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Refusal(const std::string& folder) {
  return std::string(FolderLock::Take(folder).status().message());
}

TEST(FolderLock, SaysWhoHasIt) {
  TempDir dir;
  const std::string folder = dir / "deep/folder";
  {
    auto lock = FolderLock::Take(folder);
    ASSERT_TRUE(lock.ok()) << lock.status();
    std::optional<FolderLock> moved(*std::move(lock));
    EXPECT_THAT(Refusal(folder), AllOf(HasSubstr("'" + folder + "' is in use: "),
                                       HasSubstr(absl::StrFormat("process %d of ", getpid())),
                                       HasSubstr("since 20")));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_EQ(Refusal(folder), "");
}

TEST(FolderLock, EndsWithItsProcess) {
  TempDir dir;
  const pid_t child = fork();
  if (child == 0) {
    auto lock = FolderLock::Take(dir.path());
    if (!lock.ok()) _exit(1);
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(std::filesystem::exists(dir / "lock"));
  EXPECT_EQ(Refusal(dir.path()), "");
}

TEST(FolderLock, NamesAFolderThatCannotBe) {
  TempDir dir;
  PutFile(dir / "file", "");
  EXPECT_THAT(Refusal(dir / "file"), HasSubstr("create directory '" + dir / "file"));
}

}  // namespace
}  // namespace braid
