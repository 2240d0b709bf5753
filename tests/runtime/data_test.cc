#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "runtime/array.h"
#include "runtime/data/dataset_kinds.h"
#include "runtime/data/text_dataset.h"
#include "tests/runtime/temp_dir.h"

namespace braid {
namespace {

absl::StatusOr<std::shared_ptr<const Dataset>> OpenDataset(const DatasetSpec& spec) {
  return DatasetKinds().Open(spec);
}

bool DataSays(const absl::Status& status, const std::string& text) {
  return std::string(status.message()).find(text) != std::string::npos;
}

std::string Gzip(const std::string& plain) {
  std::string out(plain.size() + 100, '\0');
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

std::string Idx(const std::vector<int>& dims, const std::string& values) {
  std::string out = {'\0', '\0', '\x08', static_cast<char>(dims.size())};
  for (int dim : dims) {
    for (int shift : {24, 16, 8, 0}) out += static_cast<char>(dim >> shift);
  }
  return out + values;
}

// Three images of 2 x 2: pixel p of image i is 85 * ((i + p) % 4), label i + 4.
std::string Images() {
  std::string values;
  for (int i = 0; i < 3; ++i) {
    for (int p = 0; p < 4; ++p) values += static_cast<char>(85 * ((i + p) % 4));
  }
  return Idx({3, 2, 2}, values);
}
std::string Labels() { return Idx({3}, "\x04\x05\x06"); }

template <typename T>
std::vector<T> ReadField(const Dataset& dataset, const std::vector<int64_t>& samples, int field) {
  const int64_t elements = dataset.fields()[static_cast<size_t>(field)].shape.num_elements();
  Array out(kDTypeOf<T>, {static_cast<int64_t>(samples.size()), elements});
  const absl::Status status = dataset.Read(samples, field, kDTypeOf<T>, out.mutable_bytes());
  EXPECT_TRUE(status.ok()) << status;
  return {out.data<T>().begin(), out.data<T>().end()};
}

TEST(DatasetSpec, TravelsAsText) {
  const DatasetSpec specs[] = {Mnist("/data/a b/tr%äin?&="),
                               Mnist("x", {.first = 9000, .count = 1000}),
                               DrawnDigits({.seed = UINT64_MAX}),
                               TextFile("t.txt", {.context = 7, .end = 0.1 + 0.2}),
                               NpyFiles({{"x", "a.npy"}, {"y", "b.npy"}}),
                               DatasetSpec{"own", {}}};
  for (const DatasetSpec& spec : specs) {
    absl::StatusOr<DatasetSpec> parsed = DatasetSpec::Parse(spec.Serialize());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, spec);
  }
  EXPECT_EQ(Mnist("a/b", {.first = 1}).Serialize(), "mnist?files=a/b&first=1");
}

TEST(DatasetSpec, MalformedTextIsExplained) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "the kind is empty"},          {"a b", "not percent-encoded"},
      {"a?", "'=' is missing"},           {"a?x", "'=' is missing"},
      {"a?=1", "the name is empty"},      {"a?x=%4", "not percent-encoded"},
      {"a?x=%zz", "not percent-encoded"}, {"a?x=1&x=2", "occurs twice"},
      {"a?x=1&", "'=' is missing"}};
  for (const auto& [text, expected] : cases) {
    const absl::Status status = DatasetSpec::Parse(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_TRUE(DataSays(status, expected)) << status;
  }
}

TEST(DatasetSpec, WrongParametersAreExplained) {
  const std::pair<DatasetSpec, const char*> cases[] = {
      {{"mnits", {}},
       "kind 'mnits' is unknown; this program has digits, mnist, npy, patterns, text"},
      {{"mnist", {}}, "files is missing"},
      {{"mnist", {{"files", "x"}, {"first", "one"}}}, "first is 'one', expected an integer"},
      {{"mnist", {{"files", "x"}, {"first", "-1"}}}, "first is '-1', expected 0 or more"},
      {{"mnist", {{"files", "x"}, {"colour", "1"}}}, "does not have a parameter 'colour'"},
      {{"text", {{"path", "x"}, {"windows", "odd"}}}, "expected one of strided, every"},
      {{"text", {{"path", "x"}, {"begin", "0.5x"}}}, "begin is '0.5x', expected a number"},
      {{"text", {{"path", "x"}, {"begin", "0.5"}, {"end", "0.2"}}}, "from 0.5 to 0.2"},
      {{"npy", {{"fields", "999999999999"}}}, "name0 is missing"},
      {{"npy", {}}, "at least one file"},
      {{"digits", {{"count", "0"}}}, "count is '0', expected 1 to 16777216"}};
  for (const auto& [spec, expected] : cases) {
    const absl::Status status = OpenDataset(spec).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_TRUE(DataSays(status, expected)) << status;
  }
}

TEST(Mnist, PlainAndCompressed) {
  TempDir dir;
  for (bool compressed : {false, true}) {
    const std::string name = dir / (compressed ? "z" : "p");
    const std::string end = compressed ? ".gz" : "";
    PutFile(name + "-images-idx3-ubyte" + end, compressed ? Gzip(Images()) : Images());
    PutFile(name + "-labels-idx1-ubyte" + end, compressed ? Gzip(Labels()) : Labels());
    auto dataset = OpenDataset(Mnist(name));
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ((*dataset)->num_samples(), 3);
    EXPECT_EQ((*dataset)->fields()[0].name, "image");
    EXPECT_EQ((*dataset)->fields()[0].shape, Shape({4}));
    EXPECT_EQ((*dataset)->fields()[1].name, "label");
    EXPECT_EQ((*dataset)->fields()[1].dtype, DType::kI32);
    EXPECT_EQ(
        ReadField<float>(**dataset, {2, 0}, 0),
        (std::vector<float>{170 / 255.0f, 1, 0, 85 / 255.0f, 0, 85 / 255.0f, 170 / 255.0f, 1}));
    EXPECT_EQ(ReadField<double>(**dataset, {0}, 0)[1], 85 / 255.0);
    EXPECT_EQ(static_cast<float>(ReadField<BFloat16>(**dataset, {0}, 0)[1]),
              static_cast<float>(BFloat16(85 / 255.0f)));
    EXPECT_EQ(ReadField<Float16>(**dataset, {0}, 0)[3].bits, 0x3c00);
    EXPECT_EQ(ReadField<uint8_t>(**dataset, {0}, 0)[1], 85);
    EXPECT_EQ(ReadField<int32_t>(**dataset, {2, 2, 0}, 1), (std::vector<int32_t>{6, 6, 4}));
    EXPECT_EQ(ReadField<int64_t>(**dataset, {1}, 1), (std::vector<int64_t>{5}));
    int32_t out[4];
    EXPECT_TRUE(
        DataSays((*dataset)->Read(std::vector<int64_t>{0}, 0, DType::kI32, out), "not as i32"));
    EXPECT_TRUE(absl::IsOutOfRange((*dataset)->Read(std::vector<int64_t>{3}, 1, DType::kI32, out)));
    EXPECT_TRUE(absl::IsOutOfRange((*dataset)->Read(std::vector<int64_t>{0}, 2, DType::kI32, out)));

    auto part = OpenDataset(Mnist(name, {.first = 1, .count = 2}));
    ASSERT_TRUE(part.ok()) << part.status();
    EXPECT_EQ(ReadField<int32_t>(**part, {0, 1}, 1), (std::vector<int32_t>{5, 6}));
    EXPECT_EQ((*OpenDataset(Mnist(name, {.first = 2})))->num_samples(), 1);
    const absl::Status beyond = OpenDataset(Mnist(name, {.first = 2, .count = 2})).status();
    EXPECT_TRUE(DataSays(beyond, "holds 3 images; samples from 2, 2 of them")) << beyond;
    EXPECT_FALSE(OpenDataset(Mnist(name, {.first = 3})).ok());
  }
}

TEST(Mnist, ErrorsNameFilesAndValues) {
  TempDir dir;
  const std::string images = dir / "m-images-idx3-ubyte", labels = dir / "m-labels-idx1-ubyte";
  const auto error = [&] { return OpenDataset(Mnist(dir / "m")).status(); };
  EXPECT_TRUE(absl::IsNotFound(error()));
  EXPECT_TRUE(DataSays(error(), images + "', '" + images + ".gz'")) << error();
  PutFile(images, Images());
  EXPECT_TRUE(DataSays(error(), labels)) << error();
  PutFile(labels, Idx({2}, "\x04\x05"));
  EXPECT_TRUE(DataSays(error(), "holds 3 images but '" + labels + "' holds 2 labels")) << error();
  PutFile(labels, Images());
  EXPECT_TRUE(DataSays(error(), "begins with 0x00000803, expected 0x00000801")) << error();
  PutFile(labels, Gzip(Labels()));
  EXPECT_TRUE(DataSays(error(), "name it .gz")) << error();
  PutFile(labels, Labels().substr(0, 10));
  EXPECT_TRUE(
      DataSays(error(), "is truncated: its header says [3], so 3 bytes follow, but there are 2"))
      << error();
  PutFile(labels, Labels() + "x");
  EXPECT_TRUE(DataSays(error(), "is too long")) << error();
  PutFile(labels, "ab");
  EXPECT_TRUE(DataSays(error(), "it has 2 bytes")) << error();
  PutFile(images, Idx({-1, -1, -1}, "x"));
  EXPECT_TRUE(DataSays(error(), "over 2^64")) << error();
}

TEST(Mnist, DamagedGzip) {
  TempDir dir;
  const std::string images = dir / "m-images-idx3-ubyte.gz";
  PutFile(dir / "m-labels-idx1-ubyte", Labels());
  const std::string whole = Gzip(Images());
  for (size_t size = 0; size < whole.size(); ++size) {
    PutFile(images, whole.substr(0, size));
    const absl::Status status = OpenDataset(Mnist(dir / "m")).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << size;
    EXPECT_TRUE(DataSays(status, "gzip stops at byte " + std::to_string(size))) << status;
  }
  int passed = 0;
  for (size_t at = 10; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    PutFile(images, damaged);
    // A few bits of padding mean nothing; whatever else is damaged must not pass.
    auto dataset = OpenDataset(Mnist(dir / "m"));
    if (dataset.ok()) {
      ++passed;
      EXPECT_EQ(ReadField<uint8_t>(**dataset, {0}, 0), (std::vector<uint8_t>{0, 85, 170, 255}));
    }
  }
  EXPECT_LE(passed, 1);
}

TEST(Mnist, TheRealFiles) {
  const char* folder = std::getenv("BRAID_TEST_DATA");
  if (folder == nullptr) GTEST_SKIP() << "BRAID_TEST_DATA does not name a folder with mnist/";
  auto test = OpenDataset(Mnist(std::string(folder) + "/mnist/t10k", {.first = 9000}));
  ASSERT_TRUE(test.ok()) << test.status();
  EXPECT_EQ((*test)->num_samples(), 1000);
  auto all = OpenDataset(Mnist(std::string(folder) + "/mnist/t10k"));
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(ReadField<int32_t>(**all, {0, 1, 2, 3}, 1), (std::vector<int32_t>{7, 2, 1, 0}));
  EXPECT_EQ(ReadField<float>(**all, {9123}, 0), ReadField<float>(**test, {123}, 0));
}

TEST(Text, WindowsAndTargets) {
  TempDir dir;
  PutFile(dir / "t.txt", "hello world");  // " dehlorw": space 0, d 1, e 2, h 3, l 4, o 5, r 6, w 7
  auto strided = OpenDataset(TextFile(dir / "t.txt", {.context = 3}));
  ASSERT_TRUE(strided.ok()) << strided.status();
  EXPECT_EQ((*strided)->num_samples(), 3);
  EXPECT_EQ(ReadField<int32_t>(**strided, {1, 0}, 0), (std::vector<int32_t>{4, 5, 0, 3, 2, 4}));
  EXPECT_EQ(ReadField<int32_t>(**strided, {1, 0}, 1), (std::vector<int32_t>{5, 0, 7, 2, 4, 4}));
  auto every = OpenDataset(TextFile(dir / "t.txt", {.context = 3, .windows = TextWindows::kEvery}));
  ASSERT_TRUE(every.ok());
  EXPECT_EQ((*every)->num_samples(), 8);
  EXPECT_EQ(ReadField<int64_t>(**every, {7}, 1), (std::vector<int64_t>{6, 4, 1}));
  auto bytes =
      OpenDataset(TextFile(dir / "t.txt", {.context = 3, .alphabet = TextAlphabet::kBytes}));
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(ReadField<int32_t>(**bytes, {0}, 0), (std::vector<int32_t>{'h', 'e', 'l'}));
}

TEST(Text, PartsShareAVocabularyAndDoNotOverlap) {
  TempDir dir;
  PutFile(dir / "t.txt", "aaaaabbbbbc");
  const TextOptions train{.context = 1, .end = 0.5}, held_out{.context = 1, .begin = 0.5};
  auto a = OpenDataset(TextFile(dir / "t.txt", train));
  auto b = OpenDataset(TextFile(dir / "t.txt", held_out));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ((*a)->num_samples(), 4);  // 5 characters
  EXPECT_EQ((*b)->num_samples(), 5);  // 6 characters
  EXPECT_EQ(ReadField<int32_t>(**b, {0, 4}, 1), (std::vector<int32_t>{1, 2}));
  const absl::Status shortage =
      OpenDataset(TextFile(dir / "t.txt", {.context = 6, .end = 0.5})).status();
  EXPECT_TRUE(DataSays(shortage, "has 5 of its 11 characters, a sample of context 6")) << shortage;
  EXPECT_TRUE(absl::IsNotFound(OpenDataset(TextFile(dir / "none")).status()));

  auto text = TextDataset::Open(TextFile(dir / "t.txt", train));
  ASSERT_TRUE(text.ok());
  const TextVocabulary& vocabulary = (*text)->vocabulary();
  EXPECT_EQ(vocabulary.size(), 3);
  EXPECT_EQ(*vocabulary.Encode("cab"), (std::vector<int32_t>{2, 0, 1}));
  EXPECT_EQ(*vocabulary.Decode(std::vector<int32_t>{2, 0, 1}), "cab");
  EXPECT_TRUE(DataSays(vocabulary.Encode("ab!").status(), "'!' at position 2"));
  EXPECT_TRUE(DataSays(vocabulary.Decode(std::vector<int32_t>{3}).status(), "3 is no character"));
}

TEST(NpyFiles, FieldsAndRanges) {
  TempDir dir;
  const Array x = Array::FromVector<float>({4, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
  const Array y = Array::FromVector<int64_t>({4}, {10, 11, 12, 13});
  ASSERT_TRUE(x.WriteNpy(dir / "x.npy").ok());
  ASSERT_TRUE(y.WriteNpy(dir / "y.npy").ok());
  ASSERT_TRUE(Array(DType::kF32, {3, 2}).WriteNpy(dir / "z.npy").ok());
  auto dataset = OpenDataset(NpyFiles({{"x", dir / "x.npy"}, {"y", dir / "y.npy"}}, {.first = 1}));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->num_samples(), 3);
  EXPECT_EQ((*dataset)->fields()[0].shape, Shape({2}));
  EXPECT_EQ((*dataset)->fields()[1].dtype, DType::kI64);
  EXPECT_EQ(ReadField<float>(**dataset, {2, 0, 1}, 0), (std::vector<float>{6, 7, 2, 3, 4, 5}));
  EXPECT_EQ(ReadField<double>(**dataset, {0}, 0), (std::vector<double>{2, 3}));
  EXPECT_EQ(ReadField<int32_t>(**dataset, {2, 1}, 1), (std::vector<int32_t>{13, 12}));
  const absl::Status unequal =
      OpenDataset(NpyFiles({{"x", dir / "x.npy"}, {"z", dir / "z.npy"}})).status();
  EXPECT_TRUE(DataSays(unequal, "x.npy' holds 4 samples but")) << unequal;
  EXPECT_TRUE(DataSays(unequal, "z.npy' holds 3")) << unequal;
  EXPECT_TRUE(absl::IsOutOfRange(
      OpenDataset(NpyFiles({{"x", dir / "x.npy"}}, {.first = 3, .count = 2})).status()));
}

// The same where the same is; another for an element more, for one that differs, for two that have
// changed places.
TEST(Fingerprint, IsOfTheContent) {
  TempDir dir;
  std::vector<float> numbers(200000);
  std::iota(numbers.begin(), numbers.end(), 0.0f);
  const auto fingerprint = [&](const char* name) {
    EXPECT_EQ(Array::FromVector<float>({static_cast<int64_t>(numbers.size())}, numbers)
                  .WriteNpy(dir / name),
              absl::OkStatus());
    auto dataset = OpenDataset(NpyFiles({{"x", dir / name}}));
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return (*dataset)->fingerprint();
  };
  const uint64_t first = fingerprint("a.npy");
  EXPECT_EQ(fingerprint("b.npy"), first);
  numbers[99999] += 1;
  EXPECT_NE(fingerprint("c.npy"), first);
  numbers[99999] -= 1;
  std::swap(numbers[20000], numbers[150000]);
  EXPECT_NE(fingerprint("d.npy"), first);
  std::swap(numbers[20000], numbers[150000]);
  numbers.push_back(0);
  EXPECT_NE(fingerprint("e.npy"), first);

  const auto text = [&](const std::string& content, TextOptions options) {
    PutFile(dir / "t.txt", content);
    auto dataset = OpenDataset(TextFile(dir / "t.txt", options));
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return (*dataset)->fingerprint();
  };
  EXPECT_EQ(text("abcabc", {.context = 2}), text("abcabc", {.context = 2}));
  EXPECT_NE(text("abcabc", {.context = 2}), text("abcacb", {.context = 2}));
  EXPECT_NE(text("abcabc", {.context = 2}), text("abdabd", {.context = 2}));  // the same numbers
}

TEST(DrawnDigits, DependOnSeedAndSampleOnly) {
  auto a = OpenDataset(DrawnDigits({.first = 0, .count = 90}));
  auto b = OpenDataset(DrawnDigits({.first = 20, .count = 70}));
  auto c = OpenDataset(DrawnDigits({.first = 20, .count = 70, .seed = 2}));
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  for (int64_t i = 0; i < 70; ++i) {
    EXPECT_EQ(ReadField<uint8_t>(**a, {20 + i}, 0), ReadField<uint8_t>(**b, {i}, 0));
    EXPECT_EQ(ReadField<int32_t>(**a, {20 + i}, 1), ReadField<int32_t>(**b, {i}, 1));
    EXPECT_NE(ReadField<uint8_t>(**c, {i}, 0), ReadField<uint8_t>(**b, {i}, 0));
  }
}

// As many as are allowed, of which one is read: drawing all would take minutes and 12 GB.
TEST(DrawnDigits, AreDrawnWhenRead) {
  constexpr int64_t kCount = int64_t{1} << 24;
  auto many = OpenDataset(DrawnDigits({.count = kCount}));
  auto last = OpenDataset(DrawnDigits({.first = kCount - 1, .count = 1}));
  ASSERT_TRUE(many.ok() && last.ok());
  EXPECT_EQ((*many)->num_samples(), kCount);
  EXPECT_EQ(ReadField<uint8_t>(**many, {kCount - 1}, 0), ReadField<uint8_t>(**last, {0}, 0));
}

// They must be worth training on: two layers with plain gradient descent pass 95 % on unseen ones.
TEST(DrawnDigits, CanBeLearned) {
  constexpr int kPixels = 784, kHidden = 64, kTrain = 3000, kTest = 500;
  auto dataset = OpenDataset(DrawnDigits({.count = kTrain + kTest}));
  ASSERT_TRUE(dataset.ok());
  std::vector<int64_t> samples(kTrain + kTest);
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<int64_t>(i);
  const std::vector<float> images = ReadField<float>(**dataset, samples, 0);
  const std::vector<int32_t> labels = ReadField<int32_t>(**dataset, samples, 1);
  std::vector<float> w1(kPixels * kHidden), b1(kHidden), w2(kHidden * 10), b2(10);
  for (size_t i = 0; i < w1.size(); ++i) w1[i] = 0.05f * std::sin(static_cast<float>(i) * 12.9898f);
  for (size_t i = 0; i < w2.size(); ++i) w2[i] = 0.1f * std::sin(static_cast<float>(i) * 78.233f);
  const auto forward = [&](const float* x, float* h, float* p) {
    for (int j = 0; j < kHidden; ++j) h[j] = b1[j];
    for (int k = 0; k < kPixels; ++k) {
      for (int j = 0; j < kHidden; ++j) h[j] += x[k] * w1[k * kHidden + j];
    }
    float sum = 0;
    for (int j = 0; j < kHidden; ++j) h[j] = std::max(h[j], 0.0f);
    for (int c = 0; c < 10; ++c) {
      p[c] = b2[c];
      for (int j = 0; j < kHidden; ++j) p[c] += h[j] * w2[j * 10 + c];
      p[c] = std::exp(p[c]);
      sum += p[c];
    }
    for (int c = 0; c < 10; ++c) p[c] /= sum;
  };
  float h[kHidden], p[10], dh[kHidden];
  for (int epoch = 0; epoch < 6; ++epoch) {
    const float rate = 0.02f;
    for (int i = 0; i < kTrain; ++i) {
      const float* x = images.data() + i * kPixels;
      forward(x, h, p);
      p[labels[i]] -= 1;
      for (int j = 0; j < kHidden; ++j) {
        dh[j] = 0;
        for (int c = 0; c < 10; ++c) {
          dh[j] += p[c] * w2[j * 10 + c];
          w2[j * 10 + c] -= rate * h[j] * p[c];
        }
        dh[j] = h[j] > 0 ? rate * dh[j] : 0;
        b1[j] -= dh[j];
      }
      for (int c = 0; c < 10; ++c) b2[c] -= rate * p[c];
      for (int k = 0; k < kPixels; ++k) {
        for (int j = 0; j < kHidden; ++j) w1[k * kHidden + j] -= x[k] * dh[j];
      }
    }
  }
  int right = 0;
  for (int i = kTrain; i < kTrain + kTest; ++i) {
    forward(images.data() + i * kPixels, h, p);
    right += std::max_element(p, p + 10) - p == labels[i] ? 1 : 0;
  }
  EXPECT_GT(right, kTest * 95 / 100) << "of " << kTest;
}

TEST(DrawnPatterns, DependOnSeedAndSampleOnly) {
  auto a = OpenDataset(DrawnPatterns({.count = 12, .side = 9}));
  auto b = OpenDataset(DrawnPatterns({.first = 7, .count = 5, .side = 9}));
  auto c = OpenDataset(DrawnPatterns({.first = 7, .count = 5, .seed = 2, .side = 9}));
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  EXPECT_EQ((*a)->fields()[0].shape, Shape({3, 9, 9}));
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(ReadField<float>(**a, {7 + i}, 0), ReadField<float>(**b, {i}, 0));
    EXPECT_EQ(ReadField<int32_t>(**a, {7 + i}, 1), ReadField<int32_t>(**b, {i}, 1));
    EXPECT_NE(ReadField<float>(**c, {i}, 0), ReadField<float>(**b, {i}, 0));
  }
}

// The wave of its class is the strongest one in an image without the noise: of all classes' waves
// and phases, it correlates most.
TEST(DrawnPatterns, ImagesShowTheirClass) {
  constexpr int kSide = 300;  // drawn in two pieces a row
  auto dataset = OpenDataset(DrawnPatterns({.count = 40, .side = kSide, .classes = 6}));
  ASSERT_TRUE(dataset.ok());
  std::vector<int> seen(6);
  for (int64_t sample = 0; sample < 40; ++sample) {
    const std::vector<float> image = ReadField<float>(**dataset, {sample}, 0);
    const int label = ReadField<int32_t>(**dataset, {sample}, 1)[0];
    ASSERT_GE(label, 0);
    ASSERT_LT(label, 6);
    ++seen[static_cast<size_t>(label)];
    std::vector<double> power;
    for (int candidate = 0; candidate < 6; ++candidate) {
      const double angle = M_PI * candidate / 6, turns = 2 + candidate % 3;
      double sine = 0, cosine = 0;
      for (int y = 0; y < kSide; ++y) {
        for (int x = 0; x < kSide; ++x) {
          const double at = 2 * M_PI * turns * (std::cos(angle) * x + std::sin(angle) * y) / kSide;
          double value = 0;  // colours do not tell waves apart
          for (int c = 0; c < 3; ++c) value += image[(c * kSide + y) * kSide + x];
          sine += value * std::sin(at);
          cosine += value * std::cos(at);
        }
      }
      power.push_back(sine * sine + cosine * cosine);
    }
    EXPECT_EQ(std::max_element(power.begin(), power.end()) - power.begin(), label);
  }
  for (int count : seen) EXPECT_GT(count, 0);
}

TEST(DrawnPatterns, WrongSizesAreExplained) {
  EXPECT_TRUE(
      DataSays(OpenDataset(DrawnPatterns({.count = 0})).status(), "count is '0', expected 1 to"));
  EXPECT_TRUE(DataSays(OpenDataset(DrawnPatterns({.side = 0})).status(), "0 x 0"));
  EXPECT_TRUE(DataSays(OpenDataset(DrawnPatterns({.side = int64_t{1} << 40})).status(),
                       "numbers an image"));
  EXPECT_TRUE(DataSays(OpenDataset(DrawnPatterns({.classes = -1})).status(), "-1 classes"));
}

// A program's own kind stands beside those that are built in, whose names it cannot take.
TEST(DatasetKinds, TakesAProgramsOwn) {
  TempDir dir;
  PutFile(dir / "t.txt", "some text");
  DatasetKinds kinds;
  const auto open = [&](const DatasetSpec& spec) {
    SpecReader params(spec);
    const int64_t context = params.TakeInteger("context", 1);
    return OpenDataset(TextFile(dir / "t.txt", {.context = context}));
  };
  ASSERT_TRUE(kinds.Register("own", open).ok());
  const auto dataset = kinds.Open({"own", {{"context", "4"}}});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->fields()[0].shape, Shape({4}));
  for (const char* name : {"own", "text"}) {
    const absl::Status again = kinds.Register(name, open);
    EXPECT_TRUE(absl::IsAlreadyExists(again)) << again;
    EXPECT_TRUE(DataSays(again, name)) << again;
  }
}

TEST(DatasetCache, OpensOnceForAllThreads) {
  TempDir dir;
  PutFile(dir / "t.txt", "some text");
  DatasetCache cache;
  const DatasetSpec spec = TextFile(dir / "t.txt", {.context = 2});
  EXPECT_FALSE(cache.Open(TextFile(dir / "later.txt", {.context = 2})).ok());
  std::vector<std::shared_ptr<const Dataset>> seen(4);
  std::vector<std::thread> threads;
  for (auto& slot : seen) threads.emplace_back([&] { slot = *cache.Open(spec); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& dataset : seen) EXPECT_EQ(dataset, seen[0]);
  PutFile(dir / "later.txt", "now it is here");
  EXPECT_TRUE(cache.Open(TextFile(dir / "later.txt", {.context = 2})).ok());
}

}  // namespace
}  // namespace braid
