#include "runtime/files/safetensors.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/runtime/temp_dir.h"

namespace braid {
namespace {

std::string WithHeader(const std::string& json, const std::string& data) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(uint64_t{json.size()} >> (8 * i));
  return out + json + data;
}

TEST(Safetensors, BytesOfAFile) {
  TempDir dir;
  const float values[] = {1.0f, 2.0f};
  ASSERT_TRUE(WriteSafetensors(dir / "a", {{{"w", DType::kF32, {2}}, values}}, {{"k", "v"}}).ok());
  const std::string json =
      R"({"__metadata__":{"k":"v"},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::string file = GetFile(dir / "a");
  const size_t padded = (json.size() + 7) / 8 * 8;
  ASSERT_EQ(file.size(), 8 + padded + 8);
  EXPECT_EQ(file.substr(0, 8), std::string(1, static_cast<char>(padded)) + std::string(7, '\0'));
  EXPECT_EQ(file.substr(8, padded), json + std::string(padded - json.size(), ' '));
  EXPECT_EQ(file.substr(8 + padded), std::string(reinterpret_cast<const char*>(values), 8));
}

TEST(Safetensors, RoundTrip) {
  TempDir dir;
  const std::vector<double> a = {1, 2, 3, 4, 5, 6};
  const std::vector<uint8_t> b = {7, 8, 9};
  const bool flag = true;
  const std::vector<StoredTensor> tensors = {{"a", DType::kF64, {2, 3}},
                                             {"naïve \"b\"\n", DType::kU8, {3}},
                                             {"empty", DType::kI64, {0, 5}},
                                             {"flag", DType::kBool, Shape{}}};
  ASSERT_TRUE(WriteSafetensors(dir / "x",
                               {{tensors[0], a.data()},
                                {tensors[1], b.data()},
                                {tensors[2], nullptr},
                                {tensors[3], &flag}},
                               {})
                  .ok());
  absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(dir / "x");
  ASSERT_TRUE(reader.ok()) << reader.status();
  ASSERT_EQ(reader->tensors().size(), 4u);
  for (const StoredTensor& tensor : tensors) {
    ASSERT_NE(reader->Find(tensor.name), nullptr) << tensor.name;
    EXPECT_EQ(*reader->Find(tensor.name), tensor);
  }
  double part[2];
  ASSERT_TRUE(reader->ReadBytes("a", 24, part, 16).ok());
  EXPECT_EQ(part[0], 4);
  EXPECT_EQ(part[1], 5);
  EXPECT_TRUE(absl::IsOutOfRange(reader->ReadBytes("a", 40, part, 16)));
  EXPECT_TRUE(absl::IsOutOfRange(reader->ReadBytes("a", -1, part, 1)));
  EXPECT_TRUE(absl::IsNotFound(reader->ReadBytes("c", 0, part, 1)));
}

TEST(Safetensors, RefusesNames) {
  EXPECT_FALSE(LayOutSafetensors({{"__metadata__", DType::kU8, {1}}}, {}).ok());
  EXPECT_FALSE(LayOutSafetensors({{"a\xff", DType::kU8, {1}}}, {}).ok());
  EXPECT_FALSE(LayOutSafetensors({{"a", DType::kU8, {1}}, {"a", DType::kU8, {1}}}, {}).ok());
}

TEST(Safetensors, ErrorsSayWhatIsWrong) {
  TempDir dir;
  struct Case {
    std::string contents;
    std::string expected;
  };
  const std::string data(8, '\0');
  const auto tensor = [&](const std::string& member) {
    return WithHeader("{\"w\":" + member + "}", data);
  };
  const Case cases[] = {
      {"abc", "it has 3 bytes"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8),
       "its header claims 18446744073709551615"},
      {WithHeader("{", ""), "not valid JSON"},
      {WithHeader("[]", ""), "no JSON object"},
      {WithHeader("[[[[[[[[[[[[]]]]]]]]]]]]", ""), "nested deeper than 8"},
      {WithHeader(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                  R"("a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                  data),
       "\"a\" occurs twice"},
      {tensor(R"({"dtype":"F32","shape":[2]})"), "expected exactly"},
      {tensor(R"({"dtype":"F8","shape":[8],"data_offsets":[0,8]})"), "dtype is \"F8\""},
      {tensor(R"({"dtype":3,"shape":[8],"data_offsets":[0,8]})"), "dtype is 3"},
      {tensor(R"({"dtype":"U8","shape":[-8],"data_offsets":[0,8]})"), "shape is [-8]"},
      {tensor(R"({"dtype":"U8","shape":[8.0],"data_offsets":[0,8]})"), "shape is [8.0]"},
      {tensor(R"({"dtype":"U8","shape":[8],"data_offsets":[8,0]})"), "data_offsets is [8,0]"},
      {tensor(R"({"dtype":"F32","shape":[4],"data_offsets":[0,8]})"), "takes 16 bytes"},
      {tensor(R"({"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]})"),
       "over 2^63"},
      {tensor(R"({"dtype":"U8","shape":[4],"data_offsets":[4,8]})"), "there is a gap"},
      {tensor(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})"), "end at byte 4"},
      {tensor(R"({"dtype":"U8","shape":[16],"data_offsets":[0,16]})"), "truncated"},
      {WithHeader(R"({"a":{"dtype":"U8","shape":[6],"data_offsets":[0,6]},)"
                  R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                  data),
       "they overlap"},
      {WithHeader(R"({"__metadata__":{"a":1}})", ""), "is no string"},
  };
  for (const Case& c : cases) {
    PutFile(dir / "x", c.contents);
    const absl::Status status = SafetensorsReader::Open(dir / "x").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.expected;
    EXPECT_NE(std::string(status.message()).find(c.expected), std::string::npos)
        << c.expected << " not in " << status;
    EXPECT_NE(std::string(status.message()).find(dir / "x"), std::string::npos) << status;
  }
}

// No flipped bit and no cut of a file crashes the reader.
TEST(Safetensors, DamagedEverywhere) {
  TempDir dir;
  const float values[] = {1.0f, 2.0f};
  ASSERT_TRUE(WriteSafetensors(dir / "a", {{{"w", DType::kF32, {2}}, values}}, {{"k", "v"}}).ok());
  const std::string whole = GetFile(dir / "a");
  for (size_t size = 0; size < whole.size(); ++size) {
    PutFile(dir / "b", whole.substr(0, size));
    EXPECT_FALSE(SafetensorsReader::Open(dir / "b").ok()) << size;
  }
  int refused = 0;
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    PutFile(dir / "b", flipped);
    refused += SafetensorsReader::Open(dir / "b").ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace braid
