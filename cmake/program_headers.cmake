# cmake -DSOURCE_DIR=DIR -DHEADERS="A;B" -DOUTPUT=FILE -P program_headers.cmake: runtime/cuda/program_headers.h's list.
set(text "#include \"runtime/cuda/program_headers.h\"\n\nnamespace braid::cuda {\nnamespace {\n\nconstexpr ProgramHeader kHeaders[] = {\n")
# The standard library's, as far as these headers use it.
string(APPEND text [==[
    {"bit", R"braid(
#pragma once
namespace std {
template <class To, class From>
constexpr To bit_cast(const From& from) {
  return __builtin_bit_cast(To, from);
}
}  // namespace std
)braid"},
    {"cstddef", "#pragma once\n"},
    {"cstdint", R"braid(
#pragma once
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
)braid"},
    {"type_traits", R"braid(
#pragma once
namespace std {
template <class A, class B>
inline constexpr bool is_same_v = false;
template <class A>
inline constexpr bool is_same_v<A, A> = true;
}  // namespace std
)braid"},
]==])
foreach(header IN LISTS HEADERS)
  file(READ "${SOURCE_DIR}/${header}" contents)
  string(APPEND text "    {\"${header}\", R\"braid(" "${contents}" ")braid\"},\n")
endforeach()
string(APPEND text "};\n\n}  // namespace\n\nstd::span<const ProgramHeader> ProgramHeaders() { return kHeaders; }\n\n}  // namespace braid::cuda\n")
file(WRITE "${OUTPUT}" "${text}")
