# What every target shares: warnings are errors, no contraction of a*b+c (bits must not depend on
# the instruction set), the sanitizers asked for, ccache and mold where they are installed.

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
find_program(MOLD mold)
if(MOLD)
  # What follows the code begins a page: else mold 1.10 puts an empty .tbss before the read-only data, which by
  # bad luck of sizes is on a page that nothing maps, and the program does not start ("cannot apply
  # additional memory protection after relocation").
  add_link_options(-fuse-ld=mold LINKER:-z,separate-code)
endif()

add_library(headrace_flags INTERFACE)
target_include_directories(headrace_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(headrace_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
  -Wno-restrict  # GCC 12 sees memcpy overlaps in std::string that are not there
  -Werror -ffp-contract=off -fno-omit-frame-pointer)
if(HEADRACE_SANITIZE)
  # Reports must fail the test that made them.
  add_compile_options(-fsanitize=${HEADRACE_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HEADRACE_SANITIZE})
endif()

# headrace_library(FOLDER SOURCES a.cc ... [USES targets]): the static library headrace::FOLDER.
function(headrace_library folder)
  cmake_parse_arguments(arg "" "" "SOURCES;USES" ${ARGN})
  string(REPLACE "/" "_" target ${folder})
  add_library(headrace_${target} STATIC ${arg_SOURCES})
  add_library(headrace::${target} ALIAS headrace_${target})
  target_link_libraries(headrace_${target} PUBLIC headrace_flags fmt::fmt Threads::Threads ${arg_USES})
endfunction()

# headrace_test(NAME [ALONE] SOURCES a_test.cc ... [USES targets] [LABELS labels]): one ctest per
# TEST. ALONE: what measures; no other test runs beside it.
function(headrace_test name)
  cmake_parse_arguments(arg "ALONE" "" "SOURCES;USES;LABELS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE headrace_flags ${arg_USES} GTest::gmock GTest::gtest_main)
  # Torch's threads do not spin, as in the program: tests that run side by side would slow each other.
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 120
    PROPERTIES TIMEOUT 300 LABELS "${arg_LABELS}" ENVIRONMENT OMP_WAIT_POLICY=passive
               RUN_SERIAL ${arg_ALONE})
endfunction()
