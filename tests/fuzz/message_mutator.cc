#include "tests/fuzz/message_mutator.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace braid::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

size_t Below(Random& random, size_t limit) { return random() % limit; }

// The message and all that is in it.
void Collect(Message& message, std::vector<Message*>& all) {
  all.push_back(&message);
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      Collect(*reflection.MutableMessage(&message, field), all);
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      Collect(*reflection.MutableRepeatedMessage(&message, field, i), all);
    }
  }
}

int64_t OtherNumber(int64_t value, Random& random) {
  switch (Below(random, 8)) {
    case 0:
      return static_cast<int64_t>(Below(random, 5));
    case 1:
      return static_cast<int64_t>(static_cast<uint64_t>(value) + 1);
    case 2:
      return static_cast<int64_t>(static_cast<uint64_t>(value) - 1);
    case 3:
      return static_cast<int64_t>(uint64_t{1} << Below(random, 64));
    case 4:
      return -static_cast<int64_t>(Below(random, 5));
    case 5:
      return static_cast<int64_t>(std::numeric_limits<uint64_t>::max() >> Below(random, 64));
    case 6:
      return static_cast<int64_t>(static_cast<uint64_t>(value) << (1 + Below(random, 4)));
    default:
      return static_cast<int64_t>(Below(random, 1 << 16));
  }
}

// A byte more, less or other; or some field's text of the same name elsewhere in the message.
std::string OtherText(std::string text, const FieldDescriptor& field,
                      const std::vector<Message*>& all, Random& random) {
  if (Below(random, 2) == 0) {
    for (int i = 0; i < 8; ++i) {
      const Message& other = *all[Below(random, all.size())];
      const FieldDescriptor* same = other.GetDescriptor()->FindFieldByName(field.name());
      if (same != nullptr && same->type() == field.type() && !same->is_repeated()) {
        return other.GetReflection()->GetString(other, same);
      }
    }
  }
  static constexpr char kBytes[] =
      "0123456789-[]=,\".e \0\xff"
      "afmnrst";
  const size_t at = Below(random, text.size() + 1);
  const char byte = kBytes[Below(random, sizeof(kBytes) - 1)];
  switch (Below(random, 3)) {
    case 0:
      text.insert(text.begin() + static_cast<std::ptrdiff_t>(at), byte);
      break;
    case 1:
      if (at < text.size()) text[at] = byte;
      break;
    default:
      text.erase(at, 1 + Below(random, 4));
      break;
  }
  // Texts of a message are UTF-8.
  for (char& c : text) c = static_cast<char>(c & 0x7f);
  return text;
}

template <typename T>
T Other(T value, Random& random) {
  return static_cast<T>(OtherNumber(static_cast<int64_t>(value), random));
}

void SetSingle(Message& message, const FieldDescriptor* field, const std::vector<Message*>& all,
               Random& random) {
  const Reflection& r = *message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return r.SetInt32(&message, field, Other(r.GetInt32(message, field), random));
    case FieldDescriptor::CPPTYPE_INT64:
      return r.SetInt64(&message, field, Other(r.GetInt64(message, field), random));
    case FieldDescriptor::CPPTYPE_UINT32:
      return r.SetUInt32(&message, field, Other(r.GetUInt32(message, field), random));
    case FieldDescriptor::CPPTYPE_UINT64:
      return r.SetUInt64(&message, field, Other(r.GetUInt64(message, field), random));
    case FieldDescriptor::CPPTYPE_BOOL:
      return r.SetBool(&message, field, !r.GetBool(message, field));
    case FieldDescriptor::CPPTYPE_ENUM:
      return r.SetEnumValue(&message, field, static_cast<int>(Below(random, 6)));
    case FieldDescriptor::CPPTYPE_STRING:
      return r.SetString(&message, field,
                         OtherText(r.GetString(message, field), *field, all, random));
    default:
      return;
  }
}

void SetRepeated(Message& message, const FieldDescriptor* field, int index, Random& random) {
  const Reflection& r = *message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      return r.SetRepeatedInt64(&message, field, index,
                                Other(r.GetRepeatedInt64(message, field, index), random));
    case FieldDescriptor::CPPTYPE_UINT32:
      return r.SetRepeatedUInt32(&message, field, index,
                                 Other(r.GetRepeatedUInt32(message, field, index), random));
    case FieldDescriptor::CPPTYPE_UINT64:
      return r.SetRepeatedUInt64(&message, field, index,
                                 Other(r.GetRepeatedUInt64(message, field, index), random));
    default:
      return;
  }
}

void AddOne(Message& message, const FieldDescriptor* field, Random& random) {
  const Reflection& r = *message.GetReflection();
  const int size = r.FieldSize(message, field);
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      return r.AddInt64(&message, field, OtherNumber(1, random));
    case FieldDescriptor::CPPTYPE_UINT32:
      return r.AddUInt32(&message, field, Other(uint32_t{1}, random));
    case FieldDescriptor::CPPTYPE_UINT64:
      return r.AddUInt64(&message, field, Other(uint64_t{1}, random));
    case FieldDescriptor::CPPTYPE_STRING:
      return r.AddString(&message, field, "x");
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      if (size == 0) {
        r.AddMessage(&message, field);
        return;
      }
      const int from = static_cast<int>(Below(random, size));
      std::unique_ptr<Message> copy(r.GetRepeatedMessage(message, field, from).New());
      copy->CopyFrom(r.GetRepeatedMessage(message, field, from));
      r.AddMessage(&message, field)->CopyFrom(*copy);
      return;
    }
    default:
      return;
  }
}

void ChangeRepeated(Message& message, const FieldDescriptor* field, Random& random) {
  const Reflection& r = *message.GetReflection();
  const int size = r.FieldSize(message, field);
  switch (size == 0 ? 0 : Below(random, 5)) {
    case 0:
      return AddOne(message, field, random);
    case 1:
      return r.RemoveLast(&message, field);
    case 2:
      return r.SwapElements(&message, field, static_cast<int>(Below(random, size)),
                            static_cast<int>(Below(random, size)));
    default:
      return SetRepeated(message, field, static_cast<int>(Below(random, size)), random);
  }
}

// Another message of the same kind in its place, or none.
void ChangePart(Message& message, const FieldDescriptor* field, const std::vector<Message*>& all,
                Random& random) {
  const Reflection& r = *message.GetReflection();
  if (r.HasField(message, field) && Below(random, 2) == 0) return r.ClearField(&message, field);
  for (int i = 0; i < 16; ++i) {
    const Message* other = all[Below(random, all.size())];
    if (other->GetDescriptor() != field->message_type() || other == &message) continue;
    std::unique_ptr<Message> copy(other->New());
    copy->CopyFrom(*other);
    return r.MutableMessage(&message, field)->CopyFrom(*copy);
  }
  r.MutableMessage(&message, field);
}

}  // namespace

void MutateMessage(Message& message, Random& random) {
  for (size_t left = 1 + Below(random, 4); left > 0; --left) {
    std::vector<Message*> all;
    Collect(message, all);
    Message& chosen = *all[Below(random, all.size())];
    const auto& descriptor = *chosen.GetDescriptor();
    if (descriptor.field_count() == 0) continue;
    const FieldDescriptor* field =
        descriptor.field(static_cast<int>(Below(random, descriptor.field_count())));
    if (field->is_repeated()) {
      ChangeRepeated(chosen, field, random);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      ChangePart(chosen, field, all, random);
    } else {
      SetSingle(chosen, field, all, random);
    }
  }
}

}  // namespace braid::fuzz
