#include "runtime/files/checkpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/files/checkpoint_part.h"
#include "tests/runtime/temp_dir.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

bool Says(const absl::Status& status, const std::string& text) {
  return std::string(status.message()).find(text) != std::string::npos;
}

// [rows, columns] of i32: value = base + index.
struct Numbers {
  std::string name;
  Shape shape;
  int32_t base;

  StoredTensor stored() const { return {name, DType::kI32, shape}; }
  std::vector<int32_t> values() const {
    std::vector<int32_t> out(static_cast<size_t>(shape.num_elements()));
    std::iota(out.begin(), out.end(), base);
    return out;
  }
};

CheckpointOptions OptionsFor(const std::string& directory, std::vector<StoredTensor> tensors) {
  CheckpointOptions options;
  options.directory = directory;
  options.tensors = std::move(tensors);
  return options;
}

absl::StatusOr<std::string> Save(const std::string& directory, int64_t step,
                                 const std::vector<Numbers>& tensors,
                                 CheckpointOptions options = {}) {
  options.directory = directory;
  options.state.step = step;
  for (const Numbers& tensor : tensors) options.tensors.push_back(tensor.stored());
  auto writer = CheckpointWriter::Begin(std::move(options));
  if (!writer.ok()) return writer.status();
  for (const Numbers& tensor : tensors) {
    const std::vector<int32_t> values = tensor.values();
    const absl::Status status =
        (*writer)->Write(tensor.name, 0, values.data(), values.size() * sizeof(int32_t));
    if (!status.ok()) return status;
  }
  return (*writer)->Commit();
}

std::vector<int32_t> ReadAll(const CheckpointReader& reader, const std::string& name) {
  const absl::StatusOr<StoredTensor> info = reader.Info(name);
  EXPECT_TRUE(info.ok()) << info.status();
  std::vector<int32_t> out(static_cast<size_t>(info->shape.num_elements()));
  const absl::Status status = reader.ReadBytes(name, 0, out.data(), out.size() * sizeof(int32_t));
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

TEST(Checkpoint, RoundTripOverSeveralFiles) {
  TempDir dir;
  const std::vector<Numbers> tensors = {{"a", {10, 10}, 0},
                                        {"b", {1 << 20, 3}, 7},  // 12 MiB: three blocks and a bit
                                        {"c", {5}, 100},
                                        {"d", {0, 4}, 0},
                                        {"e", Shape{}, 42}};
  CheckpointOptions options;
  options.max_file_bytes = 1000;
  options.state.values = {{"train.reader", int64_t{1} << 40}, {"negative", -3}};
  absl::StatusOr<std::string> path = Save(dir / "ckpt/deep", 12, tensors, std::move(options));
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(*path, dir / "ckpt/deep/step-12");
  EXPECT_EQ(GetFile(dir / "ckpt/deep/latest"), "step-12\n");
  EXPECT_TRUE(fs::exists(*path + "/model-00001-of-00003.safetensors"));
  EXPECT_TRUE(fs::exists(*path + "/model-00003-of-00003.safetensors"));
  EXPECT_FALSE(fs::exists(dir / "ckpt/deep/step-12.tmp"));

  for (const std::string& name : {dir / "ckpt/deep", *path}) {
    auto reader = CheckpointReader::Open(name);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ((*reader)->path(), *path);
    EXPECT_EQ((*reader)->state().step, 12);
    EXPECT_EQ((*reader)->state().values.at("train.reader"), int64_t{1} << 40);
    EXPECT_EQ((*reader)->state().values.at("negative"), -3);
    EXPECT_EQ((*reader)->tensors().size(), tensors.size());
    for (const Numbers& tensor : tensors) {
      EXPECT_EQ(*(*reader)->Info(tensor.name), tensor.stored());
      EXPECT_EQ(ReadAll(**reader, tensor.name), tensor.values());
    }
  }
}

TEST(Checkpoint, PiecesInAnyOrder) {
  TempDir dir;
  const Numbers tensor{"w", {3'000'000}, 5};
  const std::vector<int32_t> values = tensor.values();
  auto writer = CheckpointWriter::Begin(OptionsFor(dir.path(), {tensor.stored()}));
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (const size_t part : {2, 0, 1}) {
    ASSERT_TRUE((*writer)
                    ->Write("w", static_cast<int64_t>(part) * 4'000'000,
                            values.data() + part * 1'000'000, 4'000'000)
                    .ok());
  }
  ASSERT_TRUE((*writer)->Commit().ok());
  auto reader = CheckpointReader::Open(dir.path());
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(ReadAll(**reader, "w"), values);
}

TEST(Checkpoint, Boxes) {
  TempDir dir;
  const Numbers cube{"cube", {3, 4, 5}, 0};
  const Numbers wide{"wide", {300, 8192}, 0};  // rows over several blocks
  ASSERT_TRUE(Save(dir.path(), 1, {cube, wide}).ok());
  auto reader = CheckpointReader::Open(dir.path());
  ASSERT_TRUE(reader.ok()) << reader.status();
  const std::vector<int32_t> values = cube.values();
  // Every box of the cube.
  for (int64_t a = 0; a <= 3; ++a)
    for (int64_t an = 0; a + an <= 3; ++an)
      for (int64_t b = 0; b <= 4; ++b)
        for (int64_t bn = 0; b + bn <= 4; ++bn)
          for (int64_t c = 0; c <= 5; ++c)
            for (int64_t cn = 0; c + cn <= 5; ++cn) {
              std::vector<int32_t> expected;
              for (int64_t i = a; i < a + an; ++i) {
                for (int64_t j = b; j < b + bn; ++j) {
                  for (int64_t k = c; k < c + cn; ++k) {
                    expected.push_back(values[static_cast<size_t>((i * 4 + j) * 5 + k)]);
                  }
                }
              }
              std::vector<int32_t> out(expected.size() + 1, -1);
              ASSERT_TRUE(
                  (*reader)
                      ->ReadBox("cube", {.begin = {a, b, c}, .sizes = {an, bn, cn}}, out.data())
                      .ok());
              EXPECT_EQ(out.back(), -1);
              out.pop_back();
              ASSERT_EQ(out, expected);
            }
  std::vector<int32_t> columns(300 * 4096);
  ASSERT_TRUE(
      (*reader)->ReadBox("wide", {.begin = {0, 4096}, .sizes = {300, 4096}}, columns.data()).ok());
  for (int32_t row = 0; row < 300; ++row) {
    for (int32_t column = 0; column < 4096; ++column) {
      ASSERT_EQ(columns[static_cast<size_t>(row * 4096 + column)], row * 8192 + 4096 + column);
    }
  }
  int32_t one;
  const absl::Status outside =
      (*reader)->ReadBox("cube", {.begin = {0, 0, 5}, .sizes = {1, 1, 1}}, &one);
  EXPECT_TRUE(absl::IsOutOfRange(outside));
  EXPECT_TRUE(Says(outside, "shape [3, 4, 5]; the box of size [1, 1, 1] at [0, 0, 5]")) << outside;
  EXPECT_FALSE((*reader)->ReadBox("cube", {.begin = {0}, .sizes = {1}}, &one).ok());
  EXPECT_FALSE((*reader)->ReadBytes("cube", 240, &one, 4).ok());
}

// A copy of the directory before each step of Commit is what a crash there leaves. Every one of
// them must load as the old or the new checkpoint, and the next save must work on it.
void CheckCrashes(int64_t old_step, int64_t new_step) {
  TempDir dir;
  const Numbers old_tensor{"w", {100}, 0}, new_tensor{"w", {100}, 1000};
  ASSERT_TRUE(Save(dir / "d", old_step, {old_tensor}).ok());
  std::vector<std::string> steps;
  CheckpointOptions options;
  options.before_step = [&](std::string_view step) {
    fs::copy(dir / "d", dir / ("crash" + std::to_string(steps.size())),
             fs::copy_options::recursive);
    steps.emplace_back(step);
  };
  ASSERT_TRUE(Save(dir / "d", new_step, {new_tensor}, options).ok());
  ASSERT_GE(steps.size(), 6u);
  int loads_new = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string crashed = dir / ("crash" + std::to_string(i));
    auto reader = CheckpointReader::Open(crashed);
    ASSERT_TRUE(reader.ok()) << "crash before '" << steps[i] << "': " << reader.status();
    const std::vector<int32_t> values = ReadAll(**reader, "w");
    const bool is_new = values == new_tensor.values();
    EXPECT_TRUE(is_new || values == old_tensor.values()) << steps[i];
    EXPECT_EQ((*reader)->state().step, is_new ? new_step : old_step);
    EXPECT_GE(is_new, loads_new > 0) << "never back to the old one: " << steps[i];
    loads_new += is_new ? 1 : 0;

    ASSERT_TRUE(Save(crashed, new_step, {new_tensor}).ok()) << steps[i];
    for (const auto& entry : fs::directory_iterator(crashed)) {
      EXPECT_FALSE(entry.path().string().ends_with(".tmp")) << entry.path();
    }
    reader = CheckpointReader::Open(crashed);
    ASSERT_TRUE(reader.ok());
    EXPECT_EQ(ReadAll(**reader, "w"), new_tensor.values());
  }
  EXPECT_GE(loads_new, 1);
  EXPECT_LT(loads_new, static_cast<int>(steps.size()));
}

TEST(Checkpoint, CrashBetweenSteps) { CheckCrashes(5, 6); }
TEST(Checkpoint, CrashWhenSavingTheSameStepAgain) { CheckCrashes(5, 5); }

TEST(Checkpoint, SameStepAgainReplaces) {
  TempDir dir;
  ASSERT_TRUE(Save(dir.path(), 12, {{"w", {3}, 9}}).ok());  // must survive: 1 is a prefix of 12
  for (int32_t round = 0; round < 3; ++round) {
    ASSERT_TRUE(Save(dir.path(), 1, {{"w", {3}, round}}).ok());
    auto reader = CheckpointReader::Open(dir.path());
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ(ReadAll(**reader, "w")[0], round);
    const auto entries =
        std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator());
    EXPECT_EQ(entries, 3);  // step-12, one of step 1, latest
  }
  EXPECT_TRUE(CheckpointReader::Open(dir / "step-12").ok());
  // It is step-1 or a revision of it now; and a crash may leave both.
  for (const char* name : {"step-1", "step-1/"}) {
    auto reader = CheckpointReader::Open(dir / name);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ(ReadAll(**reader, "w")[0], 2);
  }
  fs::copy(dir / "step-12", dir / "step-12.3");
  fs::copy(dir / "step-12", dir / "step-12.10");
  fs::remove_all(dir / "step-12");
  EXPECT_EQ((*CheckpointReader::Open(dir / "step-12"))->path(), dir / "step-12.10");
}

// What is called as a checkpoint and is none is not ours.
TEST(Checkpoint, OnlyOldCheckpointsGo) {
  TempDir dir;
  fs::create_directories(dir / "step-1");
  PutFile(dir / "step-1/notes", "mine");
  for (int64_t step = 2; step < 5; ++step) {
    CheckpointOptions options;
    options.keep = 1;
    ASSERT_TRUE(Save(dir.path(), step, {{"w", {3}, 0}}, std::move(options)).ok());
  }
  EXPECT_TRUE(fs::exists(dir / "step-1/notes"));
  EXPECT_FALSE(fs::exists(dir / "step-3"));
  EXPECT_TRUE(CheckpointReader::Open(dir / "step-4").ok());
}

// As nodes do that have not heard yet that the save has ended.
TEST(Checkpoint, AnAbandonedOneGoesWhileOthersMakeFilesInIt) {
  TempDir dir;
  for (int round = 0; round < 20; ++round) {
    auto writer = CheckpointWriter::Begin(OptionsFor(dir.path(), {{"w", DType::kU8, {4}}}));
    ASSERT_TRUE(writer.ok());
    std::atomic<int> files = 0;
    std::vector<std::thread> others;
    for (int node = 1; node < 4; ++node) {
      others.emplace_back([&] {
        while (files < 100'000 && std::ofstream(dir / ("step-0.tmp/" + std::to_string(++files)))) {
        }
      });
    }
    while (files < 20) std::this_thread::yield();
    writer->reset();
    for (std::thread& other : others) other.join();
    EXPECT_LT(files, 100'000);
    ASSERT_TRUE(fs::is_empty(dir.path())) << "round " << round;
  }
}

TEST(Checkpoint, AbandonedAndLeftoversGo) {
  TempDir dir;
  {
    auto writer = CheckpointWriter::Begin(OptionsFor(dir.path(), {{"w", DType::kU8, {4}}}));
    ASSERT_TRUE(writer.ok());
    EXPECT_TRUE(fs::exists(dir / "step-0.tmp"));
    ASSERT_TRUE((*writer)->Write("w", 0, "ab", 2).ok());
    EXPECT_TRUE(absl::IsAlreadyExists((*writer)->Write("w", 1, "ab", 2)));
    EXPECT_TRUE(absl::IsOutOfRange((*writer)->Write("w", 3, "ab", 2)));
    EXPECT_TRUE(absl::IsNotFound((*writer)->Write("v", 0, "ab", 2)));
    const absl::Status incomplete = (*writer)->Commit().status();
    EXPECT_TRUE(absl::IsFailedPrecondition(incomplete));
    EXPECT_TRUE(Says(incomplete, "'w' was not written from its byte 2 on (of 4)")) << incomplete;
  }
  EXPECT_FALSE(fs::exists(dir / "step-0.tmp"));
  fs::create_directories(dir / "step-9.tmp/x");
  fs::create_directories(dir / "mine.tmp");
  PutFile(dir / "latest.tmp", "step-9");
  EXPECT_TRUE(absl::IsNotFound(CheckpointReader::Open(dir.path()).status()));
  ASSERT_TRUE(Save(dir.path(), 3, {{"w", {3}, 0}}).ok());
  EXPECT_FALSE(fs::exists(dir / "step-9.tmp"));
  EXPECT_FALSE(fs::exists(dir / "latest.tmp"));
  EXPECT_TRUE(fs::exists(dir / "mine.tmp"));  // not ours
}

TEST(Checkpoint, DamagedBlockIsNamed) {
  TempDir dir;
  const Numbers tensor{"w", {3 << 20}, 1};  // 12 MiB
  absl::StatusOr<std::string> path = Save(dir.path(), 1, {tensor});
  ASSERT_TRUE(path.ok());
  const std::string file = *path + "/model-00001-of-00001.safetensors";
  std::string contents = GetFile(file);
  contents[5 << 20] = static_cast<char>(contents[5 << 20] ^ 1);  // in block 1
  PutFile(file, contents);
  auto reader = CheckpointReader::Open(dir.path());
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<int32_t> out(3 << 20);
  const absl::Status whole = (*reader)->ReadBytes("w", 0, out.data(), out.size() * 4);
  EXPECT_TRUE(absl::IsDataLoss(whole)) << whole;
  EXPECT_TRUE(Says(whole, "'" + file + "' is damaged in block 1 (bytes from 4194304)")) << whole;
  EXPECT_TRUE(absl::IsDataLoss((*reader)->ReadBytes("w", 5 << 20, out.data(), 4)));
  // The other blocks still serve.
  EXPECT_TRUE((*reader)->ReadBytes("w", 9 << 20, out.data(), 1 << 20).ok());
  EXPECT_EQ(out[0], 1 + (9 << 18));
}

TEST(Checkpoint, VerifyReadsWhatABoxNeeds) {
  TempDir dir;
  // 12 MiB each: rows of 4 KiB in blocks of 4 MiB, which begin a bit before rows.
  absl::StatusOr<std::string> path =
      Save(dir.path(), 1, {{"v", {3 << 10, 1 << 10}, 1}, {"w", {3 << 10, 1 << 10}, 1}});
  ASSERT_TRUE(path.ok());
  const std::string file = *path + "/model-00001-of-00001.safetensors";
  std::string contents = GetFile(file);
  contents[17 << 20] = static_cast<char>(contents[17 << 20] ^ 1);  // in block 4, "w"
  PutFile(file, contents);
  auto reader = CheckpointReader::Open(dir.path());
  ASSERT_TRUE(reader.ok()) << reader.status();
  const TensorBox whole{{0, 0}, {3 << 10, 1 << 10}};
  EXPECT_EQ((*reader)->Verify("v", whole), absl::OkStatus());
  EXPECT_EQ((*reader)->Verify("w", {{0, 0}, {900, 1 << 10}}), absl::OkStatus());
  // Any column has a part in each block.
  for (const TensorBox& box :
       {whole, TensorBox{{0, 7}, {3 << 10, 1}}, TensorBox{{1024, 0}, {1, 1 << 10}}}) {
    const absl::Status status = (*reader)->Verify("w", box);
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_TRUE(Says(status, "is damaged in block 4")) << status;
  }
  EXPECT_TRUE(absl::IsOutOfRange((*reader)->Verify("w", {{0, 0}, {3 << 10, 1 + (1 << 10)}})));
  EXPECT_TRUE(absl::IsNotFound((*reader)->Verify("u", whole)));
}

TEST(Checkpoint, ManyThreadsReadByOneReader) {
  TempDir dir;
  const Numbers tensor{"w", {5 << 10, 1 << 10}, 1};  // 20 MiB
  ASSERT_TRUE(Save(dir.path(), 1, {tensor}).ok());
  auto reader = CheckpointReader::Open(dir.path());
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {  // 128 columns of each
      std::vector<int32_t> out((5 << 10) * 128);
      if (!(*reader)->ReadBox("w", {{0, 128 * t}, {5 << 10, 128}}, out.data()).ok()) ++wrong;
      for (int i = 0; i < 5 << 10; ++i) {
        if (out[i * 128] != 1 + (i << 10) + 128 * t) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Checkpoint, TheIdentityIsThatOfTheContent) {
  TempDir dir;
  const auto identity = [&](const std::string& folder, int32_t base, int64_t step) {
    auto path = Save(dir / folder, step, {{"w", {100}, base}});
    EXPECT_TRUE(path.ok()) << path.status();
    auto reader = CheckpointReader::Open(dir / folder);
    EXPECT_TRUE(reader.ok()) << reader.status();
    return (*reader)->identity();
  };
  const uint32_t first = identity("a", 1, 1);
  EXPECT_EQ(identity("b", 1, 1), first);
  EXPECT_NE(identity("c", 2, 1), first);
  EXPECT_NE(identity("d", 1, 2), first);
}

// Half of it is written by another node, and that half may be wrong.
TEST(Checkpoint, NodesWriteParts) {
  const TempDir dir;
  const std::vector<float> values = {1, 2, 3, 4};
  const StoredTensor tensor{"x", DType::kF32, Shape({4})};
  const auto begin = [&]() {
    auto writer =
        CheckpointWriter::Begin({.directory = dir.path(), .name = "a", .tensors = {tensor}});
    EXPECT_TRUE(writer.ok()) << writer.status();
    return *std::move(writer);
  };
  int node = 0;
  const auto write = [&](CheckpointWriter& writer, int64_t save, int64_t first) -> absl::Status {
    const CheckpointWriter::Position position = writer.PositionOf("x");
    const std::string name = PartName(++node);
    auto part = CheckpointPart::Open({.directory = writer.temporary(), .save = save, .name = name});
    BRAID_RETURN_IF_ERROR(part.status());
    BRAID_RETURN_IF_ERROR((*part)->Expect(position.file));
    BlockChecksums written;
    BRAID_RETURN_IF_ERROR(
        (*part)->Write(position.file, position.offset + first * 4, &values[first], 8, written));
    BRAID_RETURN_IF_ERROR((*part)->End(position.file, written));
    BRAID_RETURN_IF_ERROR((*part)->Finish());
    return writer.AddPart(name);
  };
  {
    const auto writer = begin();
    ASSERT_EQ(writer->Write("x", 0, values.data(), 8), absl::OkStatus());
    const auto save = writer->Share();
    ASSERT_TRUE(save.ok()) << save.status();
    const absl::Status other = write(*writer, *save + 1, 2);
    EXPECT_TRUE(absl::IsNotFound(other)) << other;
    EXPECT_TRUE(Says(other, "/a.tmp")) << other;
    EXPECT_TRUE(absl::IsAlreadyExists(write(*writer, *save, 1)));
    ASSERT_EQ(write(*writer, *save, 2), absl::OkStatus());
    ASSERT_TRUE(writer->Commit().ok());
  }
  const auto reader = CheckpointReader::Open(dir.path());
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<float> read(4);
  ASSERT_EQ((*reader)->ReadBytes("x", 0, read.data(), 16), absl::OkStatus());
  EXPECT_EQ(read, values);
  // What nobody wrote is named.
  const auto writer = begin();
  const auto save = writer->Share();
  ASSERT_TRUE(save.ok()) << save.status();
  ASSERT_EQ(write(*writer, *save, 2), absl::OkStatus());
  const absl::Status committed = writer->Commit().status();
  EXPECT_TRUE(Says(committed, "tensor 'x' was not written from its byte 0 on")) << committed;
}

TEST(Checkpoint, PartsThatAreDamagedAreNamed) {
  EXPECT_TRUE(ParseStretches("part", "model 0 8 1234abcd\nend\n").ok());
  EXPECT_TRUE(ParseStretches("part", "end\n").ok());
  const std::pair<std::string, std::string> cases[] = {
      {"", "is cut"},
      {"model 0 8 1234abcd\n", "is cut"},
      {"model 0 8 1234abcd\nend", "is cut"},
      {"model 0 8\nend\n", "FILE OFFSET BYTES CRC32C"},
      {"model -1 8 1234abcd\nend\n", "no part of a block"},
      {"model 0 0 1234abcd\nend\n", "no part of a block"},
      {"model 4194300 8 1234abcd\nend\n", "no part of a block"},
      {"model 0 8 1234abcd\nmodel 4 8 1234abcd\nend\n", "written before"},
  };
  for (const auto& [text, error] : cases) {
    const auto parsed = ParseStretches("part-1-0", text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_TRUE(Says(parsed.status(), "part-1-0") && Says(parsed.status(), error))
        << parsed.status();
  }
}

TEST(Checkpoint, NamesHaveRevisions) {
  for (const char* name : {"best", "a.b", "2024-01-01", "step-5", "v1.2-final", "7"}) {
    EXPECT_TRUE(IsCheckpointName(name)) << name;
    EXPECT_EQ(BaseOf(name), name);
    EXPECT_EQ(RevisionOf(name), 1);
    EXPECT_EQ(BaseOf(std::string(name) + ".12"), name);
    EXPECT_EQ(RevisionOf(std::string(name) + ".12"), 12);
  }
  for (const char* name : {"", "latest", "lock", "a.tmp", "v1.2", ".a", "a/b", "a b", "..", "-a"}) {
    EXPECT_FALSE(IsCheckpointName(name)) << name;
  }
  EXPECT_EQ(StepOf("step-12"), 12);
  EXPECT_EQ(StepOf("step-12.3"), 12);
  EXPECT_EQ(StepOf("step-"), std::nullopt);
  EXPECT_EQ(StepOf("step-1x"), std::nullopt);
  EXPECT_EQ(StepOf("best"), std::nullopt);
}

TEST(Checkpoint, DamagedFilesAreRefused) {
  TempDir dir;
  absl::StatusOr<std::string> path = Save(dir.path(), 1, {{"w", {100}, 1}});
  ASSERT_TRUE(path.ok());
  for (const char* name :
       {"model-00001-of-00001.safetensors", kIndexFile, kStateFile, kChecksumsFile}) {
    const std::string file = *path + "/" + name;
    const std::string whole = GetFile(file);
    for (size_t at : {size_t{0}, size_t{10}, whole.size() / 3}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ 4);
      PutFile(file, damaged);
      const absl::Status status = CheckpointReader::Open(dir.path()).status();
      EXPECT_FALSE(status.ok()) << name << " byte " << at;
    }
    PutFile(file, whole.substr(0, whole.size() / 2));
    absl::Status status = CheckpointReader::Open(dir.path()).status();
    EXPECT_FALSE(status.ok()) << name;
    EXPECT_TRUE(Says(status, name)) << status;
    fs::remove(file);
    status = CheckpointReader::Open(dir.path()).status();
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    EXPECT_TRUE(Says(status, name)) << status;
    PutFile(file, whole);
    EXPECT_TRUE(CheckpointReader::Open(dir.path()).ok());
  }
}

TEST(Checkpoint, NamesAreHelpful) {
  TempDir dir;
  ASSERT_TRUE(
      Save(dir.path(), 1, {{"fc1.weight", {1}, 0}, {"fc1.bias", {1}, 0}, {"out", {1}, 0}}).ok());
  auto reader = CheckpointReader::Open(dir.path());
  ASSERT_TRUE(reader.ok());
  const absl::Status unknown = (*reader)->Info("fc1.wieght").status();
  EXPECT_TRUE(absl::IsNotFound(unknown));
  EXPECT_TRUE(Says(unknown, "the nearest of its 3: fc1.weight, fc1.bias, out")) << unknown;

  EXPECT_TRUE(absl::IsNotFound(CheckpointReader::Open(dir / "none").status()));
  fs::remove(dir / "latest");
  EXPECT_TRUE(Says(CheckpointReader::Open(dir.path()).status(), "to be named in full: step-1"));
  PutFile(dir / "latest", "step-7\n");
  EXPECT_TRUE(Says(CheckpointReader::Open(dir.path()).status(), "names 'step-7', which is not"));
  PutFile(dir / "latest", "../../etc\n");
  EXPECT_TRUE(Says(CheckpointReader::Open(dir.path()).status(), "expected a line like step-12"));
  EXPECT_FALSE(Save("/proc/braid", 1, {{"w", {1}, 0}}).ok());
}

// A limit on file sizes stands in for a full disk: the write fails, the old checkpoint stays.
TEST(Checkpoint, FailedWriteKeepsTheOldOne) {
  TempDir dir;
  ASSERT_TRUE(Save(dir.path(), 1, {{"w", {100}, 1}}).ok());
  struct sigaction ignore = {}, before;
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGXFSZ, &ignore, &before);
  rlimit old_limit;
  getrlimit(RLIMIT_FSIZE, &old_limit);
  const rlimit small{100'000, old_limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const absl::Status status = Save(dir.path(), 2, {{"w", {1'000'000}, 1}}).status();
  setrlimit(RLIMIT_FSIZE, &old_limit);
  sigaction(SIGXFSZ, &before, nullptr);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_TRUE(Says(status, "step-2.tmp/model-00001-of-00001.safetensors")) << status;
  EXPECT_FALSE(fs::exists(dir / "step-2.tmp"));
  auto reader = CheckpointReader::Open(dir.path());
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ((*reader)->state().step, 1);
}

}  // namespace
}  // namespace braid
