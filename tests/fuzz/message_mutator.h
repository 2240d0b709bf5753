// Changes protobuf messages field by field, by reflection: what comes out is a message of the same
// kind with a few numbers, texts or parts that nobody meant.
#pragma once

#include <google/protobuf/message.h>

#include <random>

namespace braid::fuzz {

using Random = std::minstd_rand;

// One to four changes anywhere in the message.
void MutateMessage(google::protobuf::Message& message, Random& random);

}  // namespace braid::fuzz
