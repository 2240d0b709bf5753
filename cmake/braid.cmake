# braid_library(NAME SRCS ... DEPS ...) and braid_test(NAME SRCS ... DEPS ...) are all that a folder needs.

# Warnings and sanitizers for our own targets only.
add_library(braid_build_flags INTERFACE)
# Designated initialisers leave the rest to its defaults on purpose. GCC 12 takes "literal" + string
# for an overlapping copy (its bug 105651).
target_compile_options(braid_build_flags INTERFACE -Wall -Wextra -Werror
  -Wno-missing-field-initializers -Wno-restrict -fno-math-errno)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(braid_build_flags INTERFACE -Wno-unknown-warning-option)
endif()
target_include_directories(braid_build_flags INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}>)
if(BRAID_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "BRAID_BUILD_FUZZERS is ON and the compiler is ${CMAKE_CXX_COMPILER_ID}; "
      "libFuzzer comes with clang: cmake --preset asan")
  endif()
  # Every library tells the fuzzer which of its edges were taken.
  target_compile_options(braid_build_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(BRAID_SANITIZE)
  # Abseil's flags of their own types have a fence that the thread sanitizer does not see.
  if(BRAID_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(braid_build_flags INTERFACE -Wno-tsan)
  endif()
  target_compile_options(braid_build_flags INTERFACE
    -fsanitize=${BRAID_SANITIZE} -fno-omit-frame-pointer -g1 -O1)
  target_link_options(braid_build_flags INTERFACE -fsanitize=${BRAID_SANITIZE})
endif()

# What every library has: the name braid::NAME, here and, unless it belongs to examples or tests, in
# projects that find the package.
function(braid_name_library name)
  add_library(braid::${name} ALIAS braid_${name})
  target_compile_features(braid_${name} PUBLIC cxx_std_20)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  if(folder MATCHES "^(examples|tests)")
    return()
  endif()
  set_target_properties(braid_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(braid_${name} PUBLIC
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/braid>)
  install(TARGETS braid_${name} EXPORT braidTargets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

function(braid_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_library(braid_${name} STATIC ${ARG_SRCS})
  target_link_libraries(braid_${name} PUBLIC ${ARG_DEPS}
    PRIVATE $<BUILD_INTERFACE:braid_build_flags>)
  target_include_directories(braid_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  braid_name_library(${name})
endfunction()

function(braid_binary name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} braid_build_flags)
endfunction()

# What the sanitizers in a test's programs are told; undefined behaviour would only be printed.
function(braid_sanitized_test name)
  set(options "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp"
    "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/lsan.supp:print_suppressions=0"
    "UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1")
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "${options}")
endfunction()

# One test program a folder; LABELS "long" keeps it out of the 15-minute tier.
function(braid_test name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest GTest::gtest_main
    braid_build_flags)
  target_compile_options(${name} PRIVATE -O1)  # compiling takes longer than running
  add_test(NAME ${name} COMMAND ${name})
  set(timeout 900)
  if(BRAID_SANITIZE)
    set(timeout 3600)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout})
  braid_sanitized_test(${name})
  if(ARG_LABELS)
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}")
  endif()
endfunction()

# braid_proto(NAME SRCS x.proto DEPS ...): the C++ of protobuf files of the current folder, included
# as "<folder>/x.pb.h".
function(braid_proto name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  set(generated)
  foreach(src ${ARG_SRCS})
    string(REGEX REPLACE "\\.proto$" "" stem ${src})
    set(out ${PROJECT_BINARY_DIR}/${folder}/${stem}.pb)
    add_custom_command(
      OUTPUT ${out}.cc ${out}.h
      COMMAND protobuf::protoc --cpp_out=${PROJECT_BINARY_DIR} -I ${PROJECT_SOURCE_DIR}
        ${folder}/${src}
      WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
      DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${src} VERBATIM)
    list(APPEND generated ${out}.cc ${out}.h)
  endforeach()
  add_library(braid_${name} STATIC ${generated})
  target_include_directories(braid_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}>)
  target_link_libraries(braid_${name} PUBLIC protobuf::libprotobuf ${ARG_DEPS})
  braid_name_library(${name})
endfunction()
