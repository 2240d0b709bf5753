#include "runtime/reports/bounded_report.h"

#include <algorithm>
#include <vector>

#include "runtime/base/reactor.h"

namespace braid {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

int64_t Bounded(int64_t number) { return std::clamp<int64_t>(number, -kForever, kForever); }

void Bound(Message& message) {
  const Reflection& fields = *message.GetReflection();
  std::vector<const FieldDescriptor*> set;
  fields.ListFields(message, &set);
  for (const FieldDescriptor* field : set) {
    const int size = field->is_repeated() ? fields.FieldSize(message, field) : 0;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (!field->is_repeated()) Bound(*fields.MutableMessage(&message, field));
      for (int i = 0; i < size; ++i) Bound(*fields.MutableRepeatedMessage(&message, field, i));
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
      if (!field->is_repeated()) {
        fields.SetInt64(&message, field, Bounded(fields.GetInt64(message, field)));
      }
      for (int i = 0; i < size; ++i) {
        fields.SetRepeatedInt64(&message, field, i,
                                Bounded(fields.GetRepeatedInt64(message, field, i)));
      }
    }
  }
}

}  // namespace

void BoundNumbers(control::NodeReport& report) { Bound(report); }
void BoundNumbers(control::ControlMessage& message) { Bound(message); }

}  // namespace braid
