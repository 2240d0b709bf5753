#include "runtime/array.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/runtime/temp_dir.h"

namespace braid {
namespace {

// A version 1 .npy file with this dictionary and these bytes.
std::string Npy(std::string dict, const std::string& data, char version = 1) {
  dict += "\n";
  std::string out("\x93NUMPY", 6);
  out += version;
  out += '\0';
  out += static_cast<char>(dict.size() & 0xff);
  out += static_cast<char>(dict.size() >> 8);
  if (version > 1) out += std::string(2, '\0');
  return out + dict + data;
}

std::string ErrorOf(const absl::Status& status) { return std::string(status.message()); }

TEST(Array, ValueSemantics) {
  Array a = Array::FromVector<float>({2, 2}, {1, 2, 3, 4});
  Array b = a;
  b.mutable_data<float>()[0] = 9;
  EXPECT_EQ(a.data<float>()[0], 1);
  Array c = std::move(b);
  EXPECT_EQ(c.data<float>()[0], 9);
  EXPECT_EQ(c.shape(), Shape({2, 2}));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(c.bytes()) % 64, 0u);
  EXPECT_EQ(Array::Scalar(int32_t{5}).data<int32_t>()[0], 5);
  EXPECT_EQ(Array::Scalar(int32_t{5}).num_elements(), 1);
}

TEST(Array, MistakesAreKeptAndHarmless) {
  Array a = Array::FromVector<float>({2}, {5, 6});
  EXPECT_EQ(a.mistake(), absl::OkStatus());
  EXPECT_EQ(a.data<int64_t>().size(), 2u);
  for (const int64_t number : a.data<int64_t>()) EXPECT_EQ(number, 0);
  EXPECT_EQ(a.mistake().message(),
            "an Array f32[2] was asked for elements of i64; ask for its own type, or for "
            "As(another) (array_test.cc:45)");
  a.mutable_data<double>()[1] = 7;
  EXPECT_EQ(a.data<float>()[1], 6);
  EXPECT_EQ(Array(a).mistake(), a.mistake());
  EXPECT_EQ(a.As(DType::kF64).mistake(), a.mistake());
  EXPECT_EQ(a.WriteNpy("/tmp/never"), a.mistake());

  const Array few = Array::FromVector<float>({3}, {1});
  EXPECT_EQ(few.data<float>()[2], 0);
  EXPECT_EQ(few.mistake().message(),
            "1 values were given for an Array [3], which has 3 (array_test.cc:56)");
  const Array many = Array::FromVector<float>({1}, {1, 2});
  EXPECT_EQ(many.data<float>()[0], 1);
  EXPECT_FALSE(many.mistake().ok());
  const Array negative(DType::kF32, {2, -1});
  EXPECT_EQ(negative.num_elements(), 0);
  EXPECT_FALSE(negative.mistake().ok());
}

TEST(Array, Conversions) {
  const float inf = std::numeric_limits<float>::infinity();
  const Array a = Array::FromVector<float>({7}, {0, -1.5f, 300, 3e9f, -inf, NAN, 1.00390625f});
  const Array i = a.As(DType::kI32);
  EXPECT_EQ(std::vector(i.data<int32_t>().begin(), i.data<int32_t>().end()),
            (std::vector<int32_t>{0, -1, 300, INT32_MAX, INT32_MIN, 0, 1}));
  const Array u = a.As(DType::kU8);
  EXPECT_EQ(std::vector(u.data<uint8_t>().begin(), u.data<uint8_t>().end()),
            (std::vector<uint8_t>{0, 0, 255, 255, 0, 0, 1}));
  EXPECT_EQ(a.As(DType::kBF16).data<BFloat16>()[6].bits, 0x3f80);  // the tie goes to even
  EXPECT_EQ(a.As(DType::kBF16).As(DType::kF32).data<float>()[2], 300.0f);
  EXPECT_EQ(a.As(DType::kF16).data<Float16>()[3].bits, 0x7c00);
  EXPECT_FALSE(a.As(DType::kBool).data<bool>()[0]);
  EXPECT_TRUE(a.As(DType::kBool).data<bool>()[1]);
  const Array big = Array::FromVector<int64_t>({2}, {int64_t{1} << 40, -5});
  EXPECT_EQ(big.As(DType::kI32).data<int32_t>()[0], INT32_MAX);
  EXPECT_EQ(big.As(DType::kU8).data<uint8_t>()[1], 0);
  EXPECT_EQ(big.As(DType::kF64).data<double>()[0], 0x1p40);
}

TEST(Npy, RoundTripsEveryType) {
  TempDir dir;
  for (DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kI32, DType::kI64, DType::kU8,
                      DType::kBool}) {
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 3}, Shape{0, 4}}) {
      Array a(DType::kI32, shape);
      for (int64_t i = 0; i < a.num_elements(); ++i) {
        a.mutable_data<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(i % 3);
      }
      const Array written = a.As(dtype);
      ASSERT_TRUE(written.WriteNpy(dir / "a.npy").ok());
      absl::StatusOr<Array> read = Array::ReadNpy(dir / "a.npy");
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(read->dtype(), dtype);
      EXPECT_EQ(read->shape(), shape);
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(read->bytes()), read->num_bytes()),
                std::string(reinterpret_cast<const char*>(written.bytes()), written.num_bytes()));
      const std::string file = GetFile(dir / "a.npy");
      EXPECT_EQ((file.size() - written.num_bytes()) % 64, 0u);
    }
  }
}

TEST(Npy, ReadsOtherWriters) {
  TempDir dir;
  const std::string data("\1\0\0\0\2\0\0\0", 8);
  const char* dicts[] = {"{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }",
                         "{\"shape\":(2L,),\"fortran_order\":False,\"descr\":\"=i4\"}",
                         "{'descr':'<i4','fortran_order':True,'shape':(2)}"};
  for (const char* dict : dicts) {
    for (char version : {1, 2, 3}) {
      PutFile(dir / "a.npy", Npy(dict, data, version));
      absl::StatusOr<Array> read = Array::ReadNpy(dir / "a.npy");
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(read->data<int32_t>()[1], 2);
    }
  }
}

TEST(Npy, ErrorsNameFileAndValues) {
  TempDir dir;
  struct Case {
    std::string contents;
    std::string expected;
  };
  const std::string data(24, '\0');
  const Case cases[] = {
      {"", "it has 0 bytes"},
      {std::string(20, 'x'), "begins with \"xxxxxx\""},
      {Npy("{}", "", 4), "version 4.0"},
      {Npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", data),
       "[2, 3] is in Fortran order"},
      {Npy("{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }", data),
       "dtype '>f4': it is big endian"},
      {Npy("{'descr': '<c8', 'fortran_order': False, 'shape': (3,), }", data), "dtype '<c8'"},
      {Npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }", data), "records"},
      {Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }", data),
       "needs 32 bytes of data, the file has 24"},
      {Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8), }", data),
       "more than 2^63"},
      {Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", data),
       "its header is"},
      {Npy("{'descr': '<f4', 'shape': (2,), }", data), "its header is"},
      {Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, }", data), "its header is"},
  };
  for (const Case& c : cases) {
    PutFile(dir / "a.npy", c.contents);
    const absl::Status status = Array::ReadNpy(dir / "a.npy").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.expected;
    EXPECT_NE(ErrorOf(status).find(c.expected), std::string::npos) << status;
    EXPECT_NE(ErrorOf(status).find(dir / "a.npy"), std::string::npos) << status;
  }
  // A file that ends anywhere inside is an error, never a crash.
  const std::string whole =
      Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", data);
  for (size_t size = 0; size < whole.size(); ++size) {
    PutFile(dir / "a.npy", whole.substr(0, size));
    EXPECT_FALSE(Array::ReadNpy(dir / "a.npy").ok()) << size;
  }
  EXPECT_TRUE(absl::IsNotFound(Array::ReadNpy(dir / "none.npy").status()));
  EXPECT_NE(ErrorOf(Array::ReadNpy(dir.path()).status()).find("a directory"), std::string::npos);
  EXPECT_NE(ErrorOf(Array(DType::kBF16, {1}).WriteNpy(dir / "b.npy")).find("no bf16"),
            std::string::npos);
  EXPECT_NE(ErrorOf(Array(DType::kF32, {1}).WriteNpy(dir / "no/b.npy")).find("no/b.npy"),
            std::string::npos);
}

}  // namespace
}  // namespace braid
