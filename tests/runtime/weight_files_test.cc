#include "runtime/files/weight_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/files/checkpoint_format.h"
#include "tests/runtime/temp_dir.h"

namespace braid {
namespace {

constexpr float kNumbers[] = {1, 2, 3, 4, 5, 6};

void PutShard(const std::string& path, const std::vector<std::string>& names) {
  std::vector<TensorBytes> tensors;
  for (const std::string& name : names) tensors.push_back({{name, DType::kF32, {2, 3}}, kNumbers});
  ASSERT_TRUE(WriteSafetensors(path, tensors, {}).ok());
}

std::vector<std::string> NamesIn(const std::string& path) {
  const auto files = WeightFiles::Open(path);
  if (!files.ok()) return {std::string(files.status().message())};
  std::vector<std::string> names;
  for (const StoredTensor& tensor : files->tensors()) names.push_back(tensor.name);
  return names;
}

using Names = std::vector<std::string>;

TEST(WeightFiles, ReadsOneFile) {
  TempDir dir;
  PutShard(dir / "a.safetensors", {"w", "b"});
  const auto files = WeightFiles::Open(dir / "a.safetensors");
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_NE(files->Find("w"), nullptr);
  EXPECT_EQ(files->Find("w")->shape, (Shape{2, 3}));
  EXPECT_EQ(files->Find("x"), nullptr);
  const auto w = files->Read("w");
  ASSERT_TRUE(w.ok()) << w.status();
  EXPECT_EQ(w->data<float>()[5], 6);
  EXPECT_TRUE(absl::IsNotFound(files->Read("x").status()));
}

TEST(WeightFiles, ReadsFoldersOfShardsAndNotWhatLiesBeside) {
  TempDir dir;
  PutShard(dir / "model-00001-of-00002.safetensors", {"b", "a"});
  PutShard(dir / "model-00002-of-00002.safetensors", {"c"});
  ASSERT_TRUE(Array::FromVector<double>({2}, {7, 8}).WriteNpy(dir / "input_0.npy").ok());
  EXPECT_EQ(NamesIn(dir.path()), (Names{"a", "b", "c"}));
  const auto files = WeightFiles::Open(dir.path());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->ignored(), Names{dir / "input_0.npy"});
  EXPECT_EQ(files->Read("c")->data<float>()[1], 2);
}

TEST(WeightFiles, ReadsFoldersOfArrays) {
  TempDir dir;
  const Array array = Array::FromVector<double>({2}, {7, 8});
  ASSERT_TRUE(array.WriteNpy(dir / "h.0.weight.npy").ok());
  EXPECT_EQ(NamesIn(dir.path()), Names{"h.0.weight"});
  EXPECT_EQ(NamesIn(dir / "h.0.weight.npy"), Names{"h.0.weight"});
  const auto files = WeightFiles::Open(dir.path());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_TRUE(files->ignored().empty());
  const auto read = files->Read("h.0.weight");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->dtype(), DType::kF64);
  EXPECT_EQ(read->data<double>()[1], 8);
  ASSERT_TRUE(Array::FromVector<double>({1}, {7}).WriteNpy(dir / "h.0.weight.npy").ok());
  EXPECT_NE(files->Read("h.0.weight").status().message().find("it was f64[2] and is f64[1]"),
            std::string::npos);
}

TEST(WeightFiles, TakesTheShardsThatAnIndexLists) {
  TempDir dir;
  PutShard(dir / "one.safetensors", {"a"});
  PutShard(dir / "two.safetensors", {"b"});
  PutShard(dir / "old.safetensors", {"a"});
  PutFile(dir / kIndexFile,
          FormatIndex({48, {{"a", "one.safetensors"}, {"b", "two.safetensors"}}}));
  EXPECT_EQ(NamesIn(dir.path()), (Names{"a", "b"}));
  PutFile(dir / kIndexFile,
          FormatIndex({48, {{"a", "one.safetensors"}, {"c", "two.safetensors"}}}));
  EXPECT_EQ(NamesIn(dir.path())[0], "'" + dir / kIndexFile +
                                        "' says that tensor 'c' is in 'two.safetensors', which "
                                        "does not hold it");
}

TEST(WeightFiles, SaysWhatIsWrong) {
  TempDir dir;
  EXPECT_EQ(NamesIn(dir.path())[0],
            "the folder '" + dir.path() + "' holds no .safetensors and no .npy file");
  PutShard(dir / "one.safetensors", {"a"});
  PutShard(dir / "two.safetensors", {"a"});
  EXPECT_EQ(NamesIn(dir.path())[0], "tensor 'a' is in '" + dir / "one.safetensors" + "' and in '" +
                                        dir / "two.safetensors" + "'; leave one of the files away");
  PutFile(dir / "model.bin", "x");
  EXPECT_EQ(NamesIn(dir / "model.bin")[0],
            "'" + dir / "model.bin" +
                "' is neither a .safetensors nor an .npy file nor a folder of such");
  EXPECT_TRUE(absl::IsNotFound(WeightFiles::Open(dir / "none.safetensors").status()));
  PutFile(dir / "three.safetensors", "short");
  EXPECT_NE(NamesIn(dir / "three.safetensors")[0].find("no whole safetensors"), std::string::npos);
}

}  // namespace
}  // namespace braid
