#include "runtime/files/npy.h"

#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);

struct Descr {
  DType dtype;
  std::string_view name;
};

constexpr Descr kDescrs[] = {{DType::kF32, "<f4"},  {DType::kF64, "<f8"}, {DType::kF16, "<f2"},
                             {DType::kI32, "<i4"},  {DType::kI64, "<i8"}, {DType::kU8, "|u1"},
                             {DType::kBool, "|b1"}, {DType::kI8, "|i1"},  {DType::kI16, "<i2"},
                             {DType::kU16, "<u2"},  {DType::kU32, "<u4"}, {DType::kU64, "<u8"}};

// Reads the header's Python dictionary, of which only this shape occurs:
// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class DictReader {
 public:
  explicit DictReader(std::string_view text) : text_(text) {}

  // Skips blanks, then takes `token` if it comes next.
  bool Take(std::string_view token) {
    SkipBlanks();
    if (text_.substr(position_, token.size()) != token) return false;
    position_ += token.size();
    return true;
  }

  std::optional<std::string_view> TakeString() {
    SkipBlanks();
    if (position_ >= text_.size()) return std::nullopt;
    const char quote = text_[position_];
    if (quote != '\'' && quote != '"') return std::nullopt;
    const size_t end = text_.find(quote, position_ + 1);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view value = text_.substr(position_ + 1, end - position_ - 1);
    position_ = end + 1;
    return value;
  }

  std::optional<int64_t> TakeInteger() {
    SkipBlanks();
    const size_t start = position_;
    int64_t value = 0;
    while (position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9') {
      const int digit = text_[position_] - '0';
      if (value > (std::numeric_limits<int64_t>::max() - digit) / 10) return std::nullopt;
      value = 10 * value + digit;
      ++position_;
    }
    if (position_ == start) return std::nullopt;
    Take("L");  // Python 2 wrote longs so
    return value;
  }

  std::optional<std::vector<int64_t>> TakeTuple() {
    if (!Take("(")) return std::nullopt;
    std::vector<int64_t> dims;
    while (!Take(")")) {
      std::optional<int64_t> dim = TakeInteger();
      if (!dim.has_value()) return std::nullopt;
      dims.push_back(*dim);
      if (!Take(",")) {
        if (!Take(")")) return std::nullopt;
        break;
      }
    }
    return dims;
  }

  bool AtEnd() {
    SkipBlanks();
    return position_ == text_.size();
  }

 private:
  void SkipBlanks() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\n')) {
      ++position_;
    }
  }
  std::string_view text_;
  size_t position_ = 0;
};

struct Fields {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;
};

// False if the text is not the dictionary described above.
bool ParseDict(std::string_view text, Fields& fields) {
  DictReader reader(text);
  if (!reader.Take("{")) return false;
  while (!reader.Take("}")) {
    const std::optional<std::string_view> key = reader.TakeString();
    if (!key.has_value() || !reader.Take(":")) return false;
    if (*key == "descr" && !fields.descr.has_value()) {
      const std::optional<std::string_view> value = reader.TakeString();
      if (!value.has_value()) {
        fields.descr = "a structure";  // a list of named fields
        return true;
      }
      fields.descr = std::string(*value);
    } else if (*key == "fortran_order" && !fields.fortran_order.has_value()) {
      if (reader.Take("True")) {
        fields.fortran_order = true;
      } else if (reader.Take("False")) {
        fields.fortran_order = false;
      } else {
        return false;
      }
    } else if (*key == "shape" && !fields.shape.has_value()) {
      fields.shape = reader.TakeTuple();
      if (!fields.shape.has_value()) return false;
    } else {
      return false;
    }
    if (!reader.Take(",")) {
      if (!reader.Take("}")) return false;
      break;
    }
  }
  return reader.AtEnd();
}

absl::StatusOr<DType> ParseDescr(const std::string& path, std::string_view descr) {
  for (const Descr& known : kDescrs) {
    // A single byte has no order: '<u1' and '|u1' are the same, and so is '=' on this machine.
    if (descr.size() == 3 && descr.substr(1) == known.name.substr(1) &&
        (descr[0] != '>' || known.name[0] == '|')) {
      return known.dtype;
    }
  }
  std::string why = "its element type is unknown here";
  if (!descr.empty() && descr[0] == '>') why = "it is big endian";
  return absl::InvalidArgumentError(absl::StrFormat(
      "'%s' has dtype '%s': %s; save it as one of <f4 <f8 <f2 <i4 <i8 |u1 |b1 (for example "
      "numpy.save(file, array.astype('<f4')))",
      path, descr, why));
}

}  // namespace

absl::StatusOr<NpyHeader> ReadNpyHeader(const InputFile& file) {
  const std::string& path = file.path();
  unsigned char start[12] = {};
  if (file.size() < 10) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' is no .npy file: it has %d bytes, a header takes at least 10", path, file.size()));
  }
  BRAID_RETURN_IF_ERROR(file.ReadAt(0, start, file.size() < 12 ? 10 : 12));
  const std::string_view magic(reinterpret_cast<const char*>(start), 6);
  if (magic != kMagic) {
    return absl::InvalidArgumentError(
        absl::StrFormat("'%s' is no .npy file: it begins with \"%s\" instead of \"\\x93NUMPY\"",
                        path, absl::CHexEscape(std::string(magic))));
  }
  const int version = start[6];
  if (version < 1 || version > 3) {
    return absl::InvalidArgumentError(
        absl::StrFormat("'%s' is an .npy file of version %d.%d; versions 1 to 3 are read", path,
                        version, start[7]));
  }
  const int64_t text_offset = version == 1 ? 10 : 12;
  int64_t length = start[8] | int64_t{start[9]} << 8;
  if (version > 1) length |= int64_t{start[10]} << 16 | int64_t{start[11]} << 24;
  constexpr int64_t kMaxHeader = 1 << 20;
  if (length > kMaxHeader || text_offset + length > file.size()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' is damaged: its header claims %d bytes, the file has %d (and a header at most %d)",
        path, length, file.size(), kMaxHeader));
  }
  std::string text(static_cast<size_t>(length), '\0');
  BRAID_RETURN_IF_ERROR(file.ReadAt(text_offset, text.data(), text.size()));

  Fields fields;
  const bool parsed = ParseDict(text, fields);
  if (fields.descr == "a structure") {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' holds records with named fields; save each field as an array of its own", path));
  }
  if (!parsed || !fields.descr || !fields.fortran_order || !fields.shape) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' is damaged: its header is \"%s\", expected {'descr': .., 'fortran_order': .., "
        "'shape': (..)}",
        path, absl::CHexEscape(text.substr(0, 200))));
  }
  NpyHeader header;
  BRAID_ASSIGN_OR_RETURN(header.dtype, ParseDescr(path, *fields.descr));
  header.data_offset = text_offset + length;
  const int64_t available = file.size() - header.data_offset;
  int64_t bytes = static_cast<int64_t>(SizeOf(header.dtype));
  bool fits = true;
  for (int64_t dim : *fields.shape) {
    fits = fits && !__builtin_mul_overflow(bytes, dim, &bytes);
  }
  header.shape = Shape(*std::move(fields.shape));
  if (*fields.fortran_order && header.shape.rank() > 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' of shape %s is in Fortran order; save it in C order: numpy.save(file, "
        "numpy.ascontiguousarray(array))",
        path, header.shape.ToString()));
  }
  if (!fits || bytes > available) {
    return absl::InvalidArgumentError(
        absl::StrFormat("'%s' is truncated: shape %s of %s needs %s bytes of data, the file has %d",
                        path, header.shape.ToString(), ToString(header.dtype),
                        fits ? absl::StrCat(bytes) : std::string("more than 2^63"), available));
  }
  return header;
}

absl::StatusOr<std::string> FormatNpyHeader(DType dtype, const Shape& shape) {
  std::string_view descr;
  for (const Descr& known : kDescrs) {
    if (known.dtype == dtype) descr = known.name;
  }
  if (descr.empty()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the .npy format has no %s; convert the array first: "
                        "array.As(braid::DType::kF32)",
                        ToString(dtype)));
  }
  std::string dict =
      absl::StrFormat("{'descr': '%s', 'fortran_order': False, 'shape': (%s%s), }", descr,
                      absl::StrJoin(shape.dims(), ", "), shape.rank() == 1 ? "," : "");
  const auto total = [&](size_t prefix) { return (prefix + dict.size() + 1 + 63) / 64 * 64; };
  const bool is_version_1 = total(10) - 10 < 65536;
  const size_t prefix = is_version_1 ? 10 : 12;
  const size_t size = total(prefix);
  const size_t length = size - prefix;
  dict.append(length - dict.size() - 1, ' ');
  dict.push_back('\n');
  std::string out(kMagic);
  out.push_back(is_version_1 ? 1 : 2);
  out.push_back(0);
  for (size_t i = 0; i < prefix - 8; ++i) out.push_back(static_cast<char>(length >> (8 * i)));
  return out + dict;
}

}  // namespace braid
