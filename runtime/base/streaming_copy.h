// A copy to memory that another core reads next: past the caches of the one that copies. To store
// in a line that the other core has read costs it tens of nanoseconds, to write it whole into
// memory none.
#pragma once

#include <cstddef>

namespace braid {

// As memcpy. The bytes are seen before whatever this thread stores later.
void StreamingCopy(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace braid
