#include "api/object_format.h"

#include <cstring>
#include <span>

#include "absl/strings/str_format.h"
#include "comm/little_endian.h"
#include "runtime/base/type_name.h"

namespace braid::dist {
namespace {

constexpr size_t kSizeBytes = sizeof(uint64_t);

}  // namespace

// ---- ObjectWriter -------------------------------------------------------------------------------

void ObjectWriter::PutBytes(const void* bytes, size_t count) {
  bytes_.append(static_cast<const char*>(bytes), count);
}

void ObjectWriter::PutSize(uint64_t size) {
  std::array<std::byte, kSizeBytes> bytes;
  PutLittleEndian<uint64_t>(bytes, 0, size);
  PutBytes(bytes.data(), bytes.size());
}

absl::Status ObjectWriter::WroteNothing(const std::string& name) {
  return absl::InvalidArgumentError(absl::StrFormat(
      "an object of type %s wrote no byte; its ObjectFormat must write at least one", name));
}

// ---- ObjectReader -------------------------------------------------------------------------------

absl::StatusOr<std::string_view> ObjectReader::Take(size_t count) {
  if (count > left()) {
    return absl::DataLossError(absl::StrFormat(
        "%d bytes were expected from byte %d on, and there are %d", count, at_, left()));
  }
  const std::string_view taken = bytes_.substr(at_, count);
  at_ += count;
  return taken;
}

absl::Status ObjectReader::GetBytes(void* bytes, size_t count) {
  BRAID_ASSIGN_OR_RETURN(const std::string_view taken, Take(count));
  if (count > 0) std::memcpy(bytes, taken.data(), count);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> ObjectReader::GetSize() {
  BRAID_ASSIGN_OR_RETURN(const std::string_view taken, Take(kSizeBytes));
  return GetLittleEndian<uint64_t>(std::as_bytes(std::span(taken)), 0);
}

absl::StatusOr<size_t> ObjectReader::GetCount(size_t element_bytes) {
  BRAID_ASSIGN_OR_RETURN(const uint64_t count, GetSize());
  if (count <= left() / element_bytes) return static_cast<size_t>(count);
  return absl::DataLossError(absl::StrFormat(
      "%d elements of %d bytes or more were expected from byte %d on, and there are %d bytes",
      count, element_bytes, at_, left()));
}

absl::Status ObjectReader::Finish() const {
  if (left() == 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrFormat("the object ends at byte %d, and there are %d bytes", at_, bytes_.size()));
}

absl::Status ObjectReader::TooDeep() {
  return absl::DataLossError(
      absl::StrFormat("objects lie in each other more than %d deep", kMostNested));
}

// ---- formats ------------------------------------------------------------------------------------

absl::Status OtherObjectType(const std::string& name) {
  return absl::DataLossError(absl::StrFormat(
      "the bytes are of another type than %s; read them as what was written", name));
}

std::string PlainObjectName(ElementType element, const std::type_info& type, size_t bytes) {
  if (element != ElementType::kBytes) return std::string(NameOf(element));
  return absl::StrFormat("%s (%d bytes)", TypeName(type), bytes);
}

absl::Status ObjectFormat<bool>::Write(bool object, ObjectWriter& writer) {
  writer.bytes().push_back(object ? 1 : 0);
  return absl::OkStatus();
}

absl::Status ObjectFormat<bool>::Read(ObjectReader& reader, bool& object) {
  BRAID_ASSIGN_OR_RETURN(const std::string_view byte, reader.Take(1));
  const auto value = static_cast<unsigned char>(byte[0]);
  object = value == 1;
  if (value <= 1) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("a bool is %d; it must be 0 or 1", value));
}

absl::Status MessageLacks(const std::string& name, const std::string& fields) {
  return absl::InvalidArgumentError(
      absl::StrFormat("a message %s lacks fields that it must have: %s", name, fields));
}

absl::Status MessageTooLarge(const std::string& name) {
  return absl::InvalidArgumentError(
      absl::StrFormat("a message %s takes more than the 2 GiB that one can have", name));
}

absl::Status NoMessage(const std::string& name, size_t bytes) {
  return absl::DataLossError(absl::StrFormat("%d bytes are no message %s", bytes, name));
}

std::string ArrayObjectName(size_t count, const std::string& element) {
  return absl::StrFormat("array of %d %s", count, element);
}

absl::Status KeyTwice(const std::string& name) {
  return absl::DataLossError(absl::StrFormat("a %s has a key twice", name));
}

}  // namespace braid::dist
