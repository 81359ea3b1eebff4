# Helpers that give every folder its target and all of our code the same flags.

add_library(waggle_flags INTERFACE)
target_include_directories(waggle_flags INTERFACE ${CMAKE_SOURCE_DIR})
# No fused multiply-add: a part must sum to the same bytes on every machine (product.md §2.1).
target_compile_options(waggle_flags INTERFACE -Wall -Wextra -Wpedantic -Werror -ffp-contract=off)
if(WAGGLE_SANITIZE)
  # CAF binds a null reference on each spawn (init_fun_factory.hpp).
  target_compile_options(waggle_flags INTERFACE -fsanitize=${WAGGLE_SANITIZE} -fno-sanitize-recover=all
    -fno-sanitize=null -fno-omit-frame-pointer
    # GCC 12 takes moved-from variants for uninitialized ones once they are instrumented.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(waggle_flags INTERFACE -fsanitize=${WAGGLE_SANITIZE})
  if(WAGGLE_SANITIZE MATCHES thread)
    # The thread sanitizer knows no fences; Asio's are not what orders our threads.
    target_compile_definitions(waggle_flags INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK)
  endif()
endif()

# waggle_library(NAME [LIBRARIES …]): all *.cpp of this folder as a static library waggle_NAME,
# alias waggle::NAME. The libraries are its public dependencies: link lines are the architecture.
function(waggle_library name)
  cmake_parse_arguments(ARG "" "" "LIBRARIES;EXCLUDE" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  foreach(excluded ${ARG_EXCLUDE})
    list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/${excluded})
  endforeach()
  if(sources)
    add_library(waggle_${name} STATIC ${sources})
    target_link_libraries(waggle_${name} PUBLIC waggle_flags ${ARG_LIBRARIES})
  else()
    add_library(waggle_${name} INTERFACE)
    target_link_libraries(waggle_${name} INTERFACE waggle_flags ${ARG_LIBRARIES})
  endif()
  add_library(waggle::${name} ALIAS waggle_${name})
endfunction()

# waggle_test(NAME [LIBRARIES …] [TIMEOUT s] [SERIAL]): all *_test.cpp of this folder as one GoogleTest
# program. SERIAL: its tests need the machine for themselves.
function(waggle_test name)
  cmake_parse_arguments(ARG "SERIAL" "TIMEOUT" "LIBRARIES;LABELS;SOURCES" ${ARGN})
  if(NOT ARG_SOURCES)
    file(GLOB ARG_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cpp)
  endif()
  if(NOT ARG_SOURCES)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name}_test ${ARG_SOURCES})
  target_link_libraries(${name}_test PRIVATE waggle_flags ${ARG_LIBRARIES} GTest::gmock GTest::gtest_main)
  # Only what is set: an empty value would make a property's name the value of the one before.
  set(properties TIMEOUT ${ARG_TIMEOUT})
  if(ARG_LABELS)
    list(APPEND properties LABELS ${ARG_LABELS})
  endif()
  if(ARG_SERIAL)
    list(APPEND properties RUN_SERIAL TRUE)
  endif()
  gtest_discover_tests(${name}_test DISCOVERY_MODE PRE_TEST PROPERTIES ${properties})
endfunction()
