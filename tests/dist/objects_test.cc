// Objects of every kind as bytes and back, whatever is done to the bytes, and the calls that move
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "api/dist_objects.h"
#include "api/object_format.h"
#include "runtime/base/status.h"
#include "runtime/control.pb.h"
#include "tests/dist/dist_case.h"

namespace braid {
namespace {

using dist::DecodeObject;
using dist::EncodeObject;
using dist::ObjectReader;
using dist::ObjectWriter;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

enum class Color : uint8_t { kRed, kGreen };

struct Measurement {
  double value;
  int32_t count;
  bool operator==(const Measurement&) const = default;
};

// A user's own type, which holds others of itself.
struct Tree {
  std::string label;
  std::vector<Tree> children;
  bool operator==(const Tree&) const = default;
};

// Not everything can be written.
struct Sulky {
  enum class Mood { kGood, kBad, kThrows, kSilent } mood = Mood::kGood;
};

// As protoc's of a message with fields that must be there.
struct Incomplete {
  std::string text;
  std::string GetTypeName() const { return "test.Incomplete"; }
  std::string InitializationErrorString() const { return "text"; }
  bool IsInitialized() const { return !text.empty(); }
  size_t ByteSizeLong() const { return text.size(); }
  bool AppendPartialToString(std::string* out) const {
    *out += text;
    return true;
  }
  bool ParsePartialFromArray(const void* bytes, int size) {
    text.assign(static_cast<const char*>(bytes), static_cast<size_t>(size));
    return true;
  }
};

// What is largest of all that vectors ask for.
struct Asked {
  static inline size_t bytes = 0;
};

template <typename T>
struct CountingAllocator {
  using value_type = T;
  CountingAllocator() = default;
  template <typename U>
  CountingAllocator(const CountingAllocator<U>&) {}  // NOLINT(google-explicit-constructor)
  T* allocate(size_t n) {
    Asked::bytes = std::max(Asked::bytes, n * sizeof(T));
    return std::allocator<T>().allocate(n);
  }
  void deallocate(T* memory, size_t n) { std::allocator<T>().deallocate(memory, n); }
  bool operator==(const CountingAllocator&) const { return true; }
};
template <typename T>
using Counted = std::vector<T, CountingAllocator<T>>;

}  // namespace

namespace dist {

template <>
struct ObjectFormat<Tree> {
  static std::string Name() { return "Tree"; }
  static absl::Status Write(const Tree& object, ObjectWriter& writer) {
    BRAID_RETURN_IF_ERROR(writer.Write(object.label));
    return writer.Write(object.children);
  }
  static absl::Status Read(ObjectReader& reader, Tree& object) {
    BRAID_RETURN_IF_ERROR(reader.Read(object.label));
    return reader.Read(object.children);
  }
};

template <>
struct ObjectFormat<Sulky> {
  static std::string Name() { return "Sulky"; }
  static absl::Status Write(const Sulky& object, ObjectWriter& writer) {
    if (object.mood == Sulky::Mood::kBad) return absl::InvalidArgumentError("not today");
    if (object.mood == Sulky::Mood::kThrows) throw std::runtime_error("never");
    return object.mood == Sulky::Mood::kGood ? writer.Write(true) : absl::OkStatus();
  }
  static absl::Status Read(ObjectReader& reader, Sulky&) {
    bool good = false;
    return reader.Read(good);
  }
};

}  // namespace dist

namespace {

// What cannot be sent as it lies in memory is told at compile time.
static_assert(dist::PlainObject<Measurement> && dist::PlainObject<Color> &&
              dist::PlainObject<std::complex<float>>);
static_assert(!dist::PlainObject<int*> && !dist::PlainObject<int Measurement::*> &&
              !dist::PlainObject<std::string_view> && !dist::PlainObject<std::span<int>> &&
              !dist::PlainObject<std::reference_wrapper<int>> && !dist::PlainObject<int[3]> &&
              !dist::PlainObject<std::variant<int, float>> && !dist::PlainObject<std::string> &&
              !dist::PlainObject<std::vector<int>::iterator>);
static_assert(!dist::MapObject<std::multimap<int, int>> && !dist::MapObject<std::set<int>>);

control::Hello MakeHello(int node) {
  control::Hello hello;
  hello.set_node(static_cast<uint32_t>(node));
  for (int i = 0; i < node % 4; ++i) hello.add_addresses(absl::StrFormat("10.0.0.%d", i));
  return hello;
}

control::PlanChunk MakeChunk(int bytes) {
  control::PlanChunk chunk;
  chunk.set_job(7);
  chunk.set_bytes(std::string(static_cast<size_t>(bytes), 'b'));
  return chunk;
}

template <typename T>
bool SameObject(const T& a, const T& b) {
  if constexpr (dist::MessageObject<T>) {
    return a.SerializeAsString() == b.SerializeAsString();
  } else {
    return a == b;
  }
}

// `name`: what ranks compare.
template <typename T>
void ExpectRoundTrip(const T& object, const std::string& name) {
  SCOPED_TRACE(name);
  EXPECT_THAT(dist::ObjectFormat<T>::Name(), HasSubstr(name));
  const auto bytes = EncodeObject(object);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const absl::StatusOr<T> read = DecodeObject<T>(*bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(SameObject(*read, object));
}

TEST(ObjectFormatTest, EveryKindComesBack) {
  ExpectRoundTrip(int64_t{-5}, "i64");
  ExpectRoundTrip(2.5f, "f32");
  ExpectRoundTrip(std::complex<double>(1, 2), "c128");
  ExpectRoundTrip('x', "i8");
  ExpectRoundTrip(true, "bool");
  ExpectRoundTrip(Color::kGreen, "Color (1 bytes)");
  ExpectRoundTrip(Measurement{1.5, 3}, "Measurement (16 bytes)");
  ExpectRoundTrip(std::string(), "string");
  ExpectRoundTrip(std::string("a\0b", 3), "string");
  ExpectRoundTrip(std::vector<double>{1, 2, 3}, "vector of f64");
  ExpectRoundTrip(std::vector<double>(), "vector of f64");
  ExpectRoundTrip(std::vector<Measurement>{{1, 2}, {3, 4}}, "Measurement (16 bytes)");
  ExpectRoundTrip(std::vector<std::string>{"", "b", "cc"}, "vector of string");
  for (size_t count : {0, 1, 7, 8, 9, 100}) {
    std::vector<bool> bits(count);
    for (size_t i = 0; i < count; ++i) bits[i] = i % 3 == 0;
    ExpectRoundTrip(bits, "vector of bool");
  }
  ExpectRoundTrip(std::vector<std::vector<bool>>{{true}, {}, {false, true}},
                  "vector of vector of bool");
  ExpectRoundTrip(std::array<int32_t, 3>{1, 2, 3}, "array of 3 i32");
  ExpectRoundTrip(std::array<bool, 2>{true, false}, "array of 2 bool");
  ExpectRoundTrip(std::vector<std::array<float, 2>>{{1, 2}, {3, 4}}, "vector of array of 2 f32");
  ExpectRoundTrip(std::array<std::string, 2>{"a", "b"}, "array of 2 string");
  ExpectRoundTrip(std::pair<std::string, int>("a", 1), "pair of string and i32");
  ExpectRoundTrip(std::optional<int64_t>(), "optional i64");
  ExpectRoundTrip(std::optional<std::string>("s"), "optional string");
  ExpectRoundTrip(std::map<std::string, int64_t>{{"a", 1}, {"b", 2}}, "map of string to i64");
  ExpectRoundTrip(std::unordered_map<int, std::vector<std::string>>{{1, {"a"}}, {2, {}}},
                  "unordered_map of i32 to vector of string");
  ExpectRoundTrip(
      std::vector<std::map<std::string, std::optional<std::vector<Measurement>>>>{
          {}, {{"x", std::nullopt}, {"y", {{{1, 2}}}}}},
      "vector of map of string to optional vector of ");
  ExpectRoundTrip(MakeHello(3), "braid.control.Hello");
  ExpectRoundTrip(MakeHello(0), "braid.control.Hello");
  ExpectRoundTrip(Tree{"a", {{"b", {}}, {"c", {{"d", {}}}}}}, "Tree");
}

TEST(ObjectFormatTest, MessagesTravelInContainers) {
  const std::map<std::string, control::Hello> hellos = {{"a", MakeHello(1)}, {"b", MakeHello(7)}};
  const auto read = DecodeObject<std::map<std::string, control::Hello>>(*EncodeObject(hellos));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->at("b").addresses_size(), 3);
  EXPECT_EQ(dist::ObjectFormat<std::vector<control::Hello>>::Name(),
            "vector of braid.control.Hello");
}

// Errors of what is written.
TEST(ObjectFormatTest, WhatCannotBeWrittenSaysWhy) {
  const auto error = [](const auto& object) { return EncodeObject(object).status().ToString(); };
  EXPECT_THAT(error(std::vector<Incomplete>(1)),
              AllOf(HasSubstr("message test.Incomplete lacks"), HasSubstr("text")));
  EXPECT_THAT(error(std::vector<Sulky>{{Sulky::Mood::kGood}, {Sulky::Mood::kBad}}),
              HasSubstr("not today"));
  EXPECT_THAT(error(Sulky{Sulky::Mood::kThrows}), HasSubstr("threw std::runtime_error: never"));
  EXPECT_THAT(error(Sulky{Sulky::Mood::kSilent}),
              HasSubstr("an object of type Sulky wrote no byte"));
}

std::string ReadError(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  return std::string(status.message());
}

// Bytes behind a type's hash.
template <typename T>
std::string Bytes(const std::function<void(ObjectWriter&)>& write) {
  ObjectWriter writer;
  writer.PutSize(dist::ObjectTypeHash<T>());
  write(writer);
  return writer.bytes();
}

TEST(ObjectFormatTest, BytesOfAnotherTypeAreNotRead) {
  EXPECT_THAT(ReadError(DecodeObject<double>(*EncodeObject(int64_t{1})).status()),
              HasSubstr("another type than f64"));
  EXPECT_THAT(ReadError(DecodeObject<double>("abc").status()), HasSubstr("8 bytes were expected"));
}

TEST(ObjectFormatTest, LengthsAreNotBelieved) {
  for (const uint64_t count : {uint64_t{5}, uint64_t{1} << 31, uint64_t{1} << 61, ~uint64_t{0}}) {
    const auto put = [count](ObjectWriter& writer) {
      writer.PutSize(count);
      writer.PutSize(0);
    };
    Asked::bytes = 0;
    ReadError(DecodeObject<Counted<double>>(Bytes<Counted<double>>(put)).status());
    ReadError(DecodeObject<Counted<bool>>(Bytes<Counted<bool>>(put)).status());
    using Nested = Counted<Counted<std::string>>;
    ReadError(DecodeObject<Nested>(Bytes<Nested>(put)).status());
    EXPECT_LT(Asked::bytes, 1000u);
    using Map = std::map<int64_t, double>;
    ReadError(DecodeObject<Map>(Bytes<Map>(put)).status());
    if (count > 8) ReadError(DecodeObject<std::string>(Bytes<std::string>(put)).status());
    if (count > 8) ReadError(DecodeObject<control::Hello>(Bytes<control::Hello>(put)).status());
  }
}

TEST(ObjectFormatTest, ValuesThatThereAreNotAreErrors) {
  const auto bytes = [](const std::string& text) {
    return [text](ObjectWriter& writer) { writer.bytes() += text; };
  };
  EXPECT_THAT(ReadError(DecodeObject<bool>(Bytes<bool>(bytes("\2"))).status()),
              HasSubstr("a bool is 2"));
  using Optional = std::optional<bool>;
  EXPECT_THAT(ReadError(DecodeObject<Optional>(Bytes<Optional>(bytes("\1\3"))).status()),
              HasSubstr("a bool is 3"));
  using Map = std::map<int32_t, bool>;
  const auto twice = [](ObjectWriter& writer) {
    writer.PutSize(2);
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(writer.Write(7).ok());
      EXPECT_TRUE(writer.Write(true).ok());
    }
  };
  EXPECT_THAT(ReadError(DecodeObject<Map>(Bytes<Map>(twice)).status()),
              HasSubstr("a map of i32 to bool has a key twice"));
  const auto no_message = [](ObjectWriter& writer) {
    EXPECT_TRUE(writer.Write(std::string("\xff\xff\xff")).ok());
  };
  EXPECT_THAT(ReadError(DecodeObject<control::Hello>(Bytes<control::Hello>(no_message)).status()),
              HasSubstr("3 bytes are no message braid.control.Hello"));
  EXPECT_THAT(ReadError(DecodeObject<Incomplete>(Bytes<Incomplete>([](ObjectWriter& writer) {
                          writer.PutSize(0);
                        })).status()),
              HasSubstr("0 bytes are no message test.Incomplete"));
  EXPECT_THAT(ReadError(DecodeObject<int32_t>(*EncodeObject(1) + "x").status()),
              HasSubstr("the object ends at byte 12, and there are 13 bytes"));
}

TEST(ObjectFormatTest, TypesThatHoldThemselvesAreBoundedInDepth) {
  const auto chain = [](int depth) {
    Tree tree;
    for (int i = 1; i < depth; ++i) {
      Tree above;
      above.children.push_back(std::move(tree));
      tree = std::move(above);
    }
    return *EncodeObject(tree);
  };
  // Each is in a vector, which counts, too; so does the string of the last.
  EXPECT_TRUE(DecodeObject<Tree>(chain(ObjectReader::kMostNested / 2)).ok());
  EXPECT_THAT(ReadError(DecodeObject<Tree>(chain(ObjectReader::kMostNested)).status()),
              HasSubstr("more than 100 deep"));
}

// Whatever happens to the bytes, they are an object or DATA_LOSS, in memory as their number says.
template <typename T>
void ExpectNoHarm(const T& object) {
  SCOPED_TRACE(dist::ObjectFormat<T>::Name());
  const std::string bytes = *EncodeObject(object);
  Asked::bytes = 0;
  for (size_t size = 0; size < bytes.size(); ++size) {
    ReadError(DecodeObject<T>(std::string_view(bytes).substr(0, size)).status());
  }
  const auto check = [](const std::string& changed) {
    const absl::StatusOr<T> read = DecodeObject<T>(changed);
    if (!read.ok()) ReadError(read.status());
  };
  for (size_t at = 8; at < bytes.size(); ++at) {
    for (const int change : {1, 2, 16, 128, 255}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ change);
      check(changed);
    }
  }
  std::mt19937 random(17);
  for (int round = 0; round < 2000; ++round) {
    std::string changed = bytes;
    for (unsigned i = 0; i <= random() % 4; ++i) {
      const size_t at = 8 + random() % (bytes.size() - 8);
      switch (random() % 3) {
        case 0:
          changed[std::min(at, changed.size() - 1)] = static_cast<char>(random());
          break;
        case 1:
          changed.insert(std::min(at, changed.size()), random() % 9, static_cast<char>(random()));
          break;
        default:
          if (at < changed.size()) changed.erase(at, random() % 9);
      }
    }
    check(changed);
  }
  EXPECT_LE(Asked::bytes, 64 * (bytes.size() + 64));
}

TEST(ObjectFormatTest, DamagedBytesDoNoHarm) {
  ExpectNoHarm(Counted<double>{1, 2, 3});
  ExpectNoHarm(Counted<std::string>{"one", "", "three"});
  ExpectNoHarm(Counted<bool>{true, false, true});
  ExpectNoHarm(Counted<Counted<Measurement>>{{{1, 2}}, {}, {{3, 4}, {5, 6}}});
  ExpectNoHarm(Counted<std::optional<std::array<bool, 3>>>{{{true, false, true}}, {}});
  ExpectNoHarm(std::map<std::string, std::pair<int64_t, Counted<int8_t>>>{{"a", {1, {1, 2}}},
                                                                          {"b", {2, {}}}});
  ExpectNoHarm(std::unordered_map<int16_t, std::string>{{1, "a"}, {2, "b"}});
  ExpectNoHarm(Counted<control::PlanChunk>{MakeChunk(3), MakeChunk(0)});
  ExpectNoHarm(Tree{"a", {{"b", {}}, {"c", {{"d", {}}}}}});
}

// ---- calls --------------------------------------------------------------------------------------

absl::Status Expected(bool is_so, const std::string& what) {
  return is_so ? absl::OkStatus() : absl::DataLossError("wrong: " + what);
}

// Every call with what `make(rank, i)` makes.
template <typename Make>
absl::Status CheckCalls(dist::Group& group, const Make& make) {
  using T = decltype(make(0, 0));
  const int rank = group.rank(), p = group.size(), root = p / 2;
  const auto same = [&](const std::vector<T>& got, const auto& wanted) {
    bool is_same = static_cast<int>(got.size()) == p;
    for (int r = 0; is_same && r < p; ++r) is_same = SameObject<T>(got[r], wanted(r));
    return is_same;
  };
  T object = make(rank, 0);
  BRAID_RETURN_IF_ERROR(dist::BroadcastObject(group, object, root));
  BRAID_RETURN_IF_ERROR(Expected(SameObject<T>(object, make(root, 0)), "broadcast"));
  const auto of_rank = [&](int r) { return make(r, 0); };
  BRAID_ASSIGN_OR_RETURN(const auto all, dist::AllGatherObject<T>(group, make(rank, 0)));
  BRAID_RETURN_IF_ERROR(Expected(same(all, of_rank), "all_gather"));
  BRAID_ASSIGN_OR_RETURN(const auto some, dist::GatherObject<T>(group, make(rank, 0), root));
  BRAID_RETURN_IF_ERROR(Expected(rank == root ? same(some, of_rank) : some.empty(), "gather"));
  std::vector<T> parts;
  for (int r = 0; r < p; ++r) parts.push_back(make(rank, r));
  BRAID_ASSIGN_OR_RETURN(const std::vector<T> each, dist::AllToAllObjects(group, parts));
  BRAID_RETURN_IF_ERROR(Expected(same(each, [&](int r) { return make(r, rank); }), "all_to_all"));
  if (rank != root) parts.clear();
  BRAID_ASSIGN_OR_RETURN(const T part, dist::ScatterObjects(group, parts, root));
  return Expected(SameObject<T>(part, make(root, rank)), "scatter");
}

class ObjectCallTest : public RanksAndTransportTest {};

TEST_P(ObjectCallTest, MovesObjectsOfEveryKind) {
  ExpectAllWell(RunWorld([](dist::World& world) -> absl::Status {
    BRAID_RETURN_IF_ERROR(CheckCalls(world, [](int r, int i) { return 10 * r + i; }));
    BRAID_RETURN_IF_ERROR(CheckCalls(world, [](int r, int i) { return r == i; }));
    BRAID_RETURN_IF_ERROR(
        CheckCalls(world, [](int r, int i) { return std::string(3 * r + i, 'x'); }));
    BRAID_RETURN_IF_ERROR(CheckCalls(world, [](int r, int i) {
      return std::map<std::string, std::vector<Measurement>>{
          {absl::StrFormat("%d", r), std::vector<Measurement>(i, {1.0 * r, i})}, {"", {}}};
    }));
    return CheckCalls(world, [](int r, int i) { return MakeHello(r + i); });
  }));
}

INSTANTIATE_TEST_SUITE_P(Ranks, ObjectCallTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::ValuesIn(kTransports)));

TEST(ObjectCallTest, ObjectsMayBeLarge) {
  ExpectAllWell(RunWorld(3, [](dist::World& world) -> absl::Status {
    return CheckCalls(world, [](int r, int i) {
      return std::vector<int64_t>(static_cast<size_t>(700'000 * r + i), r);
    });
  }));
}

TEST(ObjectCallTest, WorksInPartOfTheWorld) {
  ExpectAllWell(RunWorld(3, [](dist::World& world) -> absl::Status {
    if (world.rank() == 1) return absl::OkStatus();
    BRAID_ASSIGN_OR_RETURN(const auto pair, world.NewGroup({2, 0}));
    BRAID_ASSIGN_OR_RETURN(const auto names,
                           dist::AllGatherObject(*pair, absl::StrFormat("%d", world.rank())));
    return Expected(names == std::vector<std::string>{"2", "0"}, "order");
  }));
}

// All ranks get an error with `words`, and the next call works.
void ExpectErrorAndGoOn(const RankProgram& program, const std::vector<std::string>& words) {
  const WorldEnd end = RunWorld(3, [&](dist::World& world) -> absl::Status {
    const absl::Status status = program(world);
    BRAID_ASSIGN_OR_RETURN(const auto ranks, dist::AllGatherObject(world, world.rank()));
    BRAID_RETURN_IF_ERROR(Expected(ranks == std::vector<int>{0, 1, 2}, "the next call"));
    return status;
  });
  EXPECT_THAT(end.worlds, Each(absl::OkStatus()));
  for (const absl::Status& status : end.programs) {
    for (const std::string& word : words) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(word)) << status;
    }
  }
}

TEST(ObjectCallTest, SizesAreBounded) {
  const dist::ObjectOptions options = {.max_bytes = 100};
  const std::vector<std::string> words = {
      "objects_test.cc:", "an object of rank 1 takes 1016 bytes", "at most 100 are allowed",
      "max_bytes"};
  const auto text = [](dist::World& world) {
    return std::string(world.rank() == 1 ? 1000 : 10, 'x');
  };
  ExpectErrorAndGoOn(
      [&](dist::World& world) {
        return dist::AllGatherObject(world, text(world), options).status();
      },
      words);
  ExpectErrorAndGoOn(
      [&](dist::World& world) {
        return dist::GatherObject(world, text(world), 2, options).status();
      },
      words);
  ExpectErrorAndGoOn(
      [&](dist::World& world) {
        std::string object = text(world);
        return dist::BroadcastObject(world, object, 1, options);
      },
      words);
  const auto texts = [&](dist::World& world) {
    return std::vector<std::string>{"a", text(world), "b"};
  };
  ExpectErrorAndGoOn(
      [&](dist::World& world) {
        return dist::ScatterObjects(world, texts(world), 1, options).status();
      },
      words);
  ExpectErrorAndGoOn(
      [&](dist::World& world) {
        return dist::AllToAllObjects(world, texts(world), options).status();
      },
      words);
}

TEST(ObjectCallTest, WhoCannotSendTellsTheOthers) {
  const auto sulky = [](dist::World& world) {
    return Sulky{world.rank() == 1 ? Sulky::Mood::kBad : Sulky::Mood::kGood};
  };
  const auto own_or = [](dist::World& world, const std::string& own) {
    return world.rank() == 1 ? own : std::string("rank 1 cannot send; its own error says why");
  };
  const auto check = [&](const std::function<absl::Status(dist::World&)>& call,
                         const std::string& own) {
    ExpectErrorAndGoOn(
        [&](dist::World& world) -> absl::Status {
          const absl::Status status = call(world);
          BRAID_RETURN_IF_ERROR(Expected(
              status.message().find(own_or(world, own)) != std::string::npos, status.ToString()));
          return absl::InvalidArgumentError("as expected");
        },
        {"as expected"});
  };
  check([&](auto& world) { return dist::AllGatherObject(world, sulky(world)).status(); },
        "all_gather_object of Sulky (objects_test.cc:");
  check([&](auto& world) { return dist::GatherObject(world, sulky(world), 0).status(); },
        "not today");
  check(
      [&](auto& world) {
        Sulky object = sulky(world);
        return dist::BroadcastObject(world, object, 1);
      },
      "not today");
  check(
      [&](auto& world) {
        return dist::AllToAllObjects(world, std::vector<Sulky>(3, sulky(world))).status();
      },
      "not today");
  check(
      [&](auto& world) {
        return dist::ScatterObjects(world, std::vector<int>(world.rank() == 1 ? 2 : 0), 1).status();
      },
      "rank 1 has 2 objects; one for each of 3 ranks was expected");
}

TEST(ObjectCallTest, WrongArgumentsAreSaidAndForgotten) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    int object = 0;
    const std::vector<std::pair<absl::Status, std::string>> mistakes = {
        {dist::BroadcastObject(world, object, 2), "root is 2, and the group has ranks 0 to 1"},
        {dist::GatherObject(world, object, -1).status(), "root is -1"},
        {dist::ScatterObjects(world, std::vector<int>{1, 2}, 5).status(), "root is 5"},
        {dist::BroadcastObject(world, object, 0, {.max_bytes = 0}),
         "broadcast_object of i32 (objects_test.cc:"},
        {dist::AllGatherObject(world, object, {.max_bytes = -1}).status(), "max_bytes is -1"},
    };
    for (const auto& [status, words] : mistakes) {
      BRAID_RETURN_IF_ERROR(Expected(
          absl::IsInvalidArgument(status) && status.message().find(words) != std::string::npos,
          status.ToString()));
    }
    return world.Barrier();
  }));
}

}  // namespace
}  // namespace braid
