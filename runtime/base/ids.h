// Numbers that name things for a session's whole life.
#pragma once

#include <cstdint>

namespace braid {

// Numbered from 1 in the order of loading; 0 is no job. No number is used twice.
using JobId = uint64_t;

// Of a collective: a job has the next ones in a row. No number is used twice.
using CollectiveId = uint64_t;

// Of an actor that fires on `any` (actor_spec.h): an end that belongs to none of its lanes.
constexpr int32_t kNoLane = -1;

}  // namespace braid
