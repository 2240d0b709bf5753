// Objects as bytes, as they travel between ranks (dist_objects.h) and lie in stores and files.
// Numbers, enums, plain structs, strings, protobuf messages, and vectors, arrays, maps, pairs and
// optionals of these, nested as one likes, have a format; a type of your own gets one so:
//
//   template <>
//   struct braid::dist::ObjectFormat<Vocabulary> {
//     // Part of each call that sends one, so that ranks which pass other types are told so.
//     static std::string Name() { return "Vocabulary"; }
//     // At least one byte.
//     static absl::Status Write(const Vocabulary& object, ObjectWriter& writer) {
//       BRAID_RETURN_IF_ERROR(writer.Write(object.words));
//       return writer.Write(object.counts);
//     }
//     // What Write wrote, in the same order. The bytes may be anybody's: what reader.Read reads is
//     // checked against the bytes that are left, and what it means is for you to check.
//     static absl::Status Read(ObjectReader& reader, Vocabulary& object) {
//       BRAID_RETURN_IF_ERROR(reader.Read(object.words));
//       return reader.Read(object.counts);
//     }
//   };
//
// Reading runs nothing that the bytes choose. It takes memory for what it has read, not for what a
// length promises.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/dist.h"
#include "runtime/base/catch_exceptions.h"
#include "runtime/base/philox.h"
#include "runtime/base/status.h"

namespace braid::dist {

template <typename T>
struct ObjectFormat {
  static_assert(sizeof(T) == 0,
                "T has no format: it is no number, plain struct, std::string, protobuf message, or "
                "std::vector, array, map, pair or optional of these. Specialise "
                "braid::dist::ObjectFormat for it (object_format.h shows how)");
};

class ObjectWriter {
 public:
  template <typename T>
  absl::Status Write(const T& object) {
    const size_t before = bytes_.size();
    BRAID_RETURN_IF_ERROR(ObjectFormat<T>::Write(object, *this));
    return bytes_.size() > before ? absl::OkStatus() : WroteNothing(ObjectFormat<T>::Name());
  }
  void PutBytes(const void* bytes, size_t count);
  void PutSize(uint64_t size);  // 8 bytes
  // What was written so far, to be appended to.
  std::string& bytes() { return bytes_; }

 private:
  static absl::Status WroteNothing(const std::string& name);
  std::string bytes_;
};

// Errors are DATA_LOSS.
class ObjectReader {
 public:
  // The bytes are borrowed.
  explicit ObjectReader(std::string_view bytes) : bytes_(bytes) {}

  // An object that holds others of its own type may be kMostNested deep.
  template <typename T>
  absl::Status Read(T& object) {
    if (nested_ == kMostNested) return TooDeep();
    ++nested_;
    absl::Status status = ObjectFormat<T>::Read(*this, object);
    --nested_;
    return status;
  }
  absl::Status GetBytes(void* bytes, size_t count);
  absl::StatusOr<std::string_view> Take(size_t count);
  absl::StatusOr<uint64_t> GetSize();
  // As GetSize, of so many elements as there can be of at least `element_bytes` each.
  absl::StatusOr<size_t> GetCount(size_t element_bytes);
  size_t left() const { return bytes_.size() - at_; }
  // An error if there are bytes left.
  absl::Status Finish() const;

  static constexpr int kMostNested = 100;

 private:
  static absl::Status TooDeep();
  std::string_view bytes_;
  size_t at_ = 0;
  int nested_ = 0;
};

// In front of the object's own bytes: they are read as no other type.
template <typename T>
uint64_t ObjectTypeHash() {
  return StableHash(ObjectFormat<T>::Name());
}

absl::Status OtherObjectType(const std::string& name);

// Appends the object as DecodeObject reads it.
template <typename T>
absl::Status EncodeObject(const T& object, ObjectWriter& writer) {
  return CatchExceptions("writing an object", [&]() -> absl::Status {
    writer.PutSize(ObjectTypeHash<T>());
    return writer.Write(object);
  });
}

template <typename T>
absl::StatusOr<std::string> EncodeObject(const T& object) {
  ObjectWriter writer;
  BRAID_RETURN_IF_ERROR(EncodeObject(object, writer));
  return std::move(writer.bytes());
}

// DATA_LOSS if these are not the bytes of a T as EncodeObject writes them.
template <typename T>
absl::StatusOr<T> DecodeObject(std::string_view bytes) {
  return CatchExceptions("reading an object", [&]() -> absl::StatusOr<T> {
    ObjectReader reader(bytes);
    BRAID_ASSIGN_OR_RETURN(const uint64_t type, reader.GetSize());
    if (type != ObjectTypeHash<T>()) return OtherObjectType(ObjectFormat<T>::Name());
    T object{};
    BRAID_RETURN_IF_ERROR(reader.Read(object));
    BRAID_RETURN_IF_ERROR(reader.Finish());
    return object;
  });
}

// ---- numbers and plain structs ------------------------------------------------------------------

template <typename T>
inline constexpr bool kIsReferenceWrapper = false;
template <typename T>
inline constexpr bool kIsReferenceWrapper<std::reference_wrapper<T>> = true;

// Travels as it lies in memory, padding included: all ranks are the same program. Pointers are not
// plain, nor what looks like one (spans, string views, what has an operator->) or could be invalid
// afterwards (variants). A pointer inside a struct cannot be told: such a struct needs a format of
// its own, and so does one with a bool or an enum if the bytes may be anybody's.
template <typename T>
concept PlainObject =
    std::is_trivially_copyable_v<T> && std::copyable<T> && std::default_initializable<T> &&
    !std::is_pointer_v<T> &&
    !std::is_member_pointer_v<T> && !std::is_null_pointer_v<T> && !std::ranges::range<T> &&
    !kIsReferenceWrapper<T> && !requires(const T& object) {
  object.operator->();
}
&&!requires(const T& object) { object.valueless_by_exception(); };

// "f32", or "Particle (32 bytes)".
std::string PlainObjectName(ElementType element, const std::type_info& type, size_t bytes);

template <PlainObject T>
struct ObjectFormat<T> {
  static constexpr bool kIsPlain = true;
  static std::string Name() { return PlainObjectName(ElementTypeOf<T>(), typeid(T), sizeof(T)); }
  static absl::Status Write(const T& object, ObjectWriter& writer) {
    writer.PutBytes(&object, sizeof(T));
    return absl::OkStatus();
  }
  static absl::Status Read(ObjectReader& reader, T& object) {
    return reader.GetBytes(&object, sizeof(T));
  }
};

// A byte that is 0 or 1.
template <>
struct ObjectFormat<bool> {
  static std::string Name() { return "bool"; }
  static absl::Status Write(bool object, ObjectWriter& writer);
  static absl::Status Read(ObjectReader& reader, bool& object);
};

// Many of them are copied at once.
template <typename T>
concept BulkObject = requires {
  requires ObjectFormat<T>::kIsPlain;
};

// ---- strings and messages -----------------------------------------------------------------------

template <typename Allocator>
struct ObjectFormat<std::basic_string<char, std::char_traits<char>, Allocator>> {
  using String = std::basic_string<char, std::char_traits<char>, Allocator>;
  static std::string Name() { return "string"; }
  static absl::Status Write(const String& object, ObjectWriter& writer) {
    writer.PutSize(object.size());
    writer.PutBytes(object.data(), object.size());
    return absl::OkStatus();
  }
  static absl::Status Read(ObjectReader& reader, String& object) {
    BRAID_ASSIGN_OR_RETURN(const size_t count, reader.GetCount(1));
    BRAID_ASSIGN_OR_RETURN(const std::string_view text, reader.Take(count));
    object.assign(text.data(), text.size());
    return absl::OkStatus();
  }
};

// What protoc makes of a message.
template <typename T>
concept MessageObject = requires(T& message, const T& constant, std::string* text,
                                 const void* bytes, int size) {
  std::string(constant.GetTypeName());
  std::string(constant.InitializationErrorString());
  { constant.ByteSizeLong() } -> std::convertible_to<size_t>;
  { constant.IsInitialized() } -> std::convertible_to<bool>;
  { constant.AppendPartialToString(text) } -> std::convertible_to<bool>;
  { message.ParsePartialFromArray(bytes, size) } -> std::convertible_to<bool>;
};

absl::Status MessageLacks(const std::string& name, const std::string& fields);
absl::Status MessageTooLarge(const std::string& name);
absl::Status NoMessage(const std::string& name, size_t bytes);

template <MessageObject T>
struct ObjectFormat<T> {
  static std::string Name() { return std::string(T().GetTypeName()); }
  static absl::Status Write(const T& object, ObjectWriter& writer) {
    if (!object.IsInitialized()) {
      return MessageLacks(Name(), std::string(object.InitializationErrorString()));
    }
    writer.PutSize(object.ByteSizeLong());
    return object.AppendPartialToString(&writer.bytes()) ? absl::OkStatus()
                                                         : MessageTooLarge(Name());
  }
  static absl::Status Read(ObjectReader& reader, T& object) {
    BRAID_ASSIGN_OR_RETURN(const size_t count, reader.GetCount(1));
    BRAID_ASSIGN_OR_RETURN(const std::string_view text, reader.Take(count));
    if (count > std::numeric_limits<int>::max() ||
        !object.ParsePartialFromArray(text.data(), static_cast<int>(count)) ||
        !object.IsInitialized()) {
      return NoMessage(Name(), count);
    }
    return absl::OkStatus();
  }
};

// ---- containers ---------------------------------------------------------------------------------

template <typename T, typename Allocator>
struct ObjectFormat<std::vector<T, Allocator>> {
  static std::string Name() { return "vector of " + ObjectFormat<T>::Name(); }
  static absl::Status Write(const std::vector<T, Allocator>& object, ObjectWriter& writer) {
    writer.PutSize(object.size());
    if constexpr (BulkObject<T>) {
      writer.PutBytes(object.data(), object.size() * sizeof(T));
    } else {
      for (const T& element : object) BRAID_RETURN_IF_ERROR(writer.Write(element));
    }
    return absl::OkStatus();
  }
  static absl::Status Read(ObjectReader& reader, std::vector<T, Allocator>& object) {
    BRAID_ASSIGN_OR_RETURN(const size_t count, reader.GetCount(BulkObject<T> ? sizeof(T) : 1));
    object.clear();
    if constexpr (BulkObject<T>) {
      object.resize(count);
      return reader.GetBytes(object.data(), count * sizeof(T));
    } else {
      object.reserve(std::min(count, reader.left() / sizeof(T)));
      for (size_t i = 0; i < count; ++i) {
        BRAID_RETURN_IF_ERROR(reader.Read(object.emplace_back()));
      }
      return absl::OkStatus();
    }
  }
};

// Eight to a byte, the first in its lowest bit.
template <typename Allocator>
struct ObjectFormat<std::vector<bool, Allocator>> {
  static std::string Name() { return "vector of bool"; }
  static absl::Status Write(const std::vector<bool, Allocator>& object, ObjectWriter& writer) {
    writer.PutSize(object.size());
    for (size_t first = 0; first < object.size(); first += 8) {
      const size_t end = std::min(object.size(), first + 8);
      unsigned bits = 0;
      for (size_t i = first; i < end; ++i) bits |= unsigned{object[i]} << (i - first);
      writer.bytes().push_back(static_cast<char>(bits));
    }
    return absl::OkStatus();
  }
  static absl::Status Read(ObjectReader& reader, std::vector<bool, Allocator>& object) {
    BRAID_ASSIGN_OR_RETURN(const uint64_t count, reader.GetSize());
    BRAID_ASSIGN_OR_RETURN(const std::string_view bytes,
                           reader.Take(count / 8 + (count % 8 == 0 ? 0 : 1)));
    object.assign(count, false);
    for (size_t i = 0; i < count; ++i) {
      object[i] = (static_cast<unsigned char>(bytes[i / 8]) >> (i % 8) & 1) != 0;
    }
    return absl::OkStatus();
  }
};

std::string ArrayObjectName(size_t count, const std::string& element);

template <typename T, size_t count>
struct ObjectFormat<std::array<T, count>> {
  static constexpr bool kIsPlain = BulkObject<T> && count > 0;
  static std::string Name() { return ArrayObjectName(count, ObjectFormat<T>::Name()); }
  static absl::Status Write(const std::array<T, count>& object, ObjectWriter& writer) {
    if constexpr (kIsPlain) {
      writer.PutBytes(object.data(), sizeof(object));
    } else {
      for (const T& element : object) BRAID_RETURN_IF_ERROR(writer.Write(element));
    }
    return absl::OkStatus();
  }
  static absl::Status Read(ObjectReader& reader, std::array<T, count>& object) {
    if constexpr (kIsPlain) {
      return reader.GetBytes(object.data(), sizeof(object));
    } else {
      for (T& element : object) BRAID_RETURN_IF_ERROR(reader.Read(element));
      return absl::OkStatus();
    }
  }
};

template <typename First, typename Second>
struct ObjectFormat<std::pair<First, Second>> {
  static std::string Name() {
    return "pair of " + ObjectFormat<First>::Name() + " and " + ObjectFormat<Second>::Name();
  }
  static absl::Status Write(const std::pair<First, Second>& object, ObjectWriter& writer) {
    BRAID_RETURN_IF_ERROR(writer.Write(object.first));
    return writer.Write(object.second);
  }
  static absl::Status Read(ObjectReader& reader, std::pair<First, Second>& object) {
    BRAID_RETURN_IF_ERROR(reader.Read(object.first));
    return reader.Read(object.second);
  }
};

template <typename T>
struct ObjectFormat<std::optional<T>> {
  static std::string Name() { return "optional " + ObjectFormat<T>::Name(); }
  static absl::Status Write(const std::optional<T>& object, ObjectWriter& writer) {
    BRAID_RETURN_IF_ERROR(writer.Write(object.has_value()));
    return object.has_value() ? writer.Write(*object) : absl::OkStatus();
  }
  static absl::Status Read(ObjectReader& reader, std::optional<T>& object) {
    bool has_value = false;
    BRAID_RETURN_IF_ERROR(reader.Read(has_value));
    object.reset();
    return has_value ? reader.Read(object.emplace()) : absl::OkStatus();
  }
};

// std::map, std::unordered_map and maps like them.
template <typename T>
concept MapObject = requires(T& map, typename T::key_type key) {
  typename T::mapped_type;
  { map.try_emplace(std::move(key)).second } -> std::convertible_to<bool>;
};

absl::Status KeyTwice(const std::string& name);

template <MapObject T>
struct ObjectFormat<T> {
  using Key = typename T::key_type;
  using Value = typename T::mapped_type;
  static std::string Name() {
    const std::string kind = requires { typename T::hasher; }
    ? "unordered_map of " : "map of ";
    return kind + ObjectFormat<Key>::Name() + " to " + ObjectFormat<Value>::Name();
  }
  static absl::Status Write(const T& object, ObjectWriter& writer) {
    writer.PutSize(object.size());
    for (const auto& [key, value] : object) {
      BRAID_RETURN_IF_ERROR(writer.Write(key));
      BRAID_RETURN_IF_ERROR(writer.Write(value));
    }
    return absl::OkStatus();
  }
  static absl::Status Read(ObjectReader& reader, T& object) {
    BRAID_ASSIGN_OR_RETURN(const size_t count, reader.GetCount(2));
    object.clear();
    for (size_t i = 0; i < count; ++i) {
      Key key{};
      BRAID_RETURN_IF_ERROR(reader.Read(key));
      const auto [place, is_new] = object.try_emplace(std::move(key));
      if (!is_new) return KeyTwice(Name());
      BRAID_RETURN_IF_ERROR(reader.Read(place->second));
    }
    return absl::OkStatus();
  }
};

}  // namespace braid::dist
