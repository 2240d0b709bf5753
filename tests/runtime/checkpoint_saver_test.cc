#include "runtime/checkpoint_saver.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <utility>

#include "runtime/files/checkpoint.h"
#include "runtime/files/checkpoint_part.h"
#include "tests/runtime/temp_dir.h"

namespace braid {
namespace {

// A node that ends destroys its saver while its control thread still has other things to do.
TEST(CheckpointSaverTest, TellsOfThePartThatItEndedWithWhenItIsGone) {
  const TempDir dir;
  auto writer = CheckpointWriter::Begin(
      {.directory = dir.path(), .name = "a", .tensors = {{"x", DType::kF32, Shape({4})}}});
  ASSERT_TRUE(writer.ok()) << writer.status();
  const auto save = (*writer)->Share();
  ASSERT_TRUE(save.ok()) << save.status();
  auto part = CheckpointPart::Open(
      {.directory = (*writer)->temporary(), .save = *save, .name = PartName(1)});
  ASSERT_TRUE(part.ok()) << part.status();

  const std::unique_ptr<Environment> environment = MakeRealEnvironment();
  std::promise<void> is_busy, may_go_on;
  std::promise<std::pair<int64_t, absl::Status>> told;
  std::unique_ptr<Reactor> control = environment->StartReactor("control");
  control->Post([&] {
    is_busy.set_value();
    may_go_on.get_future().wait();
  });
  is_busy.get_future().wait();
  // So long that it is memory of its own that the saver has.
  const std::string words(1000, 'x');
  auto saver = std::make_unique<CheckpointSaver>(CheckpointSaver::Options{
      .environment = environment.get(),
      .control = control.get(),
      .on_saved = [&told, words](int64_t number, const absl::Status& status) {
        EXPECT_EQ(words, std::string(1000, 'x'));
        told.set_value({number, status});
      }});
  saver->Finish(*std::move(part));
  saver.reset();
  may_go_on.set_value();
  EXPECT_EQ(told.get_future().get(), std::pair(*save, absl::OkStatus()));
}

}  // namespace
}  // namespace braid
