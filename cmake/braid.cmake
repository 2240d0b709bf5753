# braid_library(NAME SRCS ... DEPS ...) and braid_test(NAME SRCS ... DEPS ...) are all that a folder needs.

# Warnings and sanitizers for our own targets only.
add_library(braid_build_flags INTERFACE)
# Designated initialisers leave the rest to its defaults on purpose. GCC 12 takes "literal" + string
# for an overlapping copy (its bug 105651).
target_compile_options(braid_build_flags INTERFACE -Wall -Wextra
  -Wno-missing-field-initializers -Wno-restrict -fno-math-errno)
if(BRAID_WARNINGS_AS_ERRORS)
  target_compile_options(braid_build_flags INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(braid_build_flags INTERFACE -Wno-unknown-warning-option)
endif()
# A class may have members of its file's own types, also where files are compiled together.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(braid_build_flags INTERFACE -Wno-subobject-linkage)
endif()
target_include_directories(braid_build_flags INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}>)
if(BRAID_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "BRAID_BUILD_FUZZERS is ON and the compiler is ${CMAKE_CXX_COMPILER_ID}; "
      "libFuzzer comes with clang: cmake --preset fuzz")
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

# braid_join_sources(TARGET): compiles several of its sources at a time, which takes a little more than
# half as long, since they read the same headers. So a name must be one of a kind in its group of files,
# also in an anonymous namespace. Its name says in which group a file is, and more files only ever
# split a group: names that have not clashed never will, unless one of them is new.
# tests/check_clang.py --each reads every file of the libraries by itself.
function(braid_join_sources target)
  if(NOT BRAID_JOIN_SOURCES)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "[.]cc$")
  list(LENGTH sources count)
  set(groups 1)
  while(count GREATER 10)
    math(EXPR groups "${groups} * 2")
    math(EXPR count "${count} / 2")
  endwhile()
  foreach(source IN LISTS sources)
    get_filename_component(name ${source} NAME)
    string(MD5 hash ${name})
    string(SUBSTRING ${hash} 0 4 hash)
    math(EXPR group "0x${hash} % ${groups}")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# The headers that nearly every file includes, read once. Programs are compiled as libraries are
# (-fPIC), so that they can use them, too.
add_library(braid_precompiled OBJECT ${CMAKE_CURRENT_LIST_DIR}/precompiled.cc)
target_precompile_headers(braid_precompiled PRIVATE ${CMAKE_CURRENT_LIST_DIR}/precompiled.h)
target_link_libraries(braid_precompiled PRIVATE
  braid_build_flags absl::statusor absl::any_invocable absl::str_format glog::glog)
target_compile_options(braid_precompiled PRIVATE $<$<CONFIG:Release>:-O2>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # The compiler cache needs the first to see what a precompiled header was made of. GCC forgets that
  # a header which it has precompiled is the system's, and then warns of what it inlines from there.
  # With more room before it collects its garbage it takes a tenth less time.
  target_compile_options(braid_build_flags INTERFACE -fpch-preprocess
    "SHELL:--param ggc-min-heapsize=524288"
    -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)
endif()

# What every library has: the name braid::NAME, here and, unless it belongs to examples or tests, in
# projects that find the package; as an optional component of it, if one is named.
function(braid_name_library name component)
  add_library(braid::${name} ALIAS braid_${name})
  target_compile_features(braid_${name} PUBLIC cxx_std_20)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  if(folder MATCHES "^(examples|tests)")
    return()
  endif()
  set_target_properties(braid_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(braid_${name} PUBLIC $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  if(component)
    install(TARGETS braid_${name} EXPORT braid_${component}Targets OPTIONAL
      ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  else()
    install(TARGETS braid_${name} EXPORT braidTargets
      ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endfunction()

# COMPONENT: the part of the installed package that it belongs to, if that part may be missing.
# OPTIMIZE: for what computes; elsewhere -O2 compiles in less time and runs as fast.
function(braid_library name)
  cmake_parse_arguments(ARG "OPTIMIZE" "COMPONENT" "SRCS;DEPS" ${ARGN})
  add_library(braid_${name} STATIC ${ARG_SRCS})
  if(ARG_OPTIMIZE)
    target_precompile_headers(braid_${name} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/precompiled.h)
  else()
    target_precompile_headers(braid_${name} REUSE_FROM braid_precompiled)
    target_compile_options(braid_${name} PRIVATE $<$<CONFIG:Release>:-O2>)
  endif()
  target_link_libraries(braid_${name} PUBLIC ${ARG_DEPS}
    PRIVATE $<BUILD_INTERFACE:braid_build_flags>)
  target_include_directories(braid_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  braid_join_sources(braid_${name})
  braid_name_library(${name} "${ARG_COMPONENT}")
endfunction()

function(braid_binary name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} braid_build_flags)
  target_precompile_headers(${name} REUSE_FROM braid_precompiled)
  target_compile_options(${name} PRIVATE -fPIC $<$<CONFIG:Release>:-O2>)
  braid_join_sources(${name})
endfunction()

# What the sanitizers in a test's programs are told; undefined behaviour would only be printed.
function(braid_sanitized_test name)
  # Where memory was allocated is told by the last 10 calls: walking more takes most of some suites' time.
  # The thread sanitizer checks what a send has read after the call. By then a peer in the same process may
  # have answered, and the answer may stand in the same place. That it was written later is not seen by the
  # sanitizer, which does not follow bytes through sockets. So it does not check sends; tests/simulation
  # checks that nobody writes what is still to be sent.
  set(options "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp:intercept_send=0"
    "ASAN_OPTIONS=malloc_context_size=10"
    "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/lsan.supp:print_suppressions=0"
    "UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1")
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "${options}")
endfunction()

# One test program a folder; LABELS "long" keeps it out of the 15-minute tier, "unit" takes it into the
# one of suites that start no processes and take seconds, which the target unit_tests builds, and
# "one_thread" keeps it from the thread sanitizer, where it could find nothing and takes an hour.
# WAITS: the test mostly waits for other processes or for time, so that two such run where one that
# computes would (tests/run.sh). SHARDS: its cases are divided among so many tests, NAME.1 and so on.
add_custom_target(unit_tests)
function(braid_test name)
  cmake_parse_arguments(ARG "WAITS" "SECONDS;SHARDS" "SRCS;DEPS;LABELS;ENVIRONMENT" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest GTest::gtest_main
    braid_build_flags)
  target_precompile_headers(${name} REUSE_FROM braid_precompiled_tests)
  target_compile_options(${name} PRIVATE -fPIC -O1)  # compiling takes longer than running
  braid_join_sources(${name})
  set(tests ${name})
  if(ARG_SHARDS)
    set(tests)
    foreach(shard RANGE 1 ${ARG_SHARDS})
      list(APPEND tests ${name}.${shard})
    endforeach()
  endif()
  set(timeout 900)
  if(BRAID_SANITIZE)
    set(timeout 7200)
  endif()
  set(processors 2)
  set(cost 0${ARG_SECONDS})  # long ones start first, so that none is left at the end
  if(ARG_WAITS)  # before all that compute: meanwhile clang reads
    set(processors 1)
    math(EXPR cost "${cost} + 1000")
  endif()
  foreach(test IN LISTS tests)
    add_test(NAME ${test} COMMAND ${name})
    set_tests_properties(${test} PROPERTIES TIMEOUT ${timeout} PROCESSORS ${processors}
      COST ${cost})
    braid_sanitized_test(${test})
    set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT ${ARG_ENVIRONMENT})
    if(ARG_SHARDS)
      list(FIND tests ${test} index)
      set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT
        GTEST_TOTAL_SHARDS=${ARG_SHARDS} GTEST_SHARD_INDEX=${index})
    endif()
    if(ARG_LABELS)
      set_tests_properties(${test} PROPERTIES LABELS "${ARG_LABELS}")
    endif()
  endforeach()
  if("unit" IN_LIST ARG_LABELS)
    add_dependencies(unit_tests ${name})
  endif()
endfunction()

# braid_proto(NAME SRCS x.proto DEPS ...): the C++ of protobuf files of the current folder, included
# as "<folder>/x.pb.h".
function(braid_proto name)
  cmake_parse_arguments(ARG "" "COMPONENT" "SRCS;DEPS" ${ARGN})
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
  braid_name_library(${name} "${ARG_COMPONENT}")
endfunction()
