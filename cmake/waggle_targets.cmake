# Functions that define a target per folder, and the compiler flags of all targets. Targets of users see
# neither our warnings nor our flags: waggle_flags is private wherever it is linked.

add_library(waggle_flags INTERFACE)
target_include_directories(waggle_flags INTERFACE ${PROJECT_SOURCE_DIR})
# No fused multiply-add: the sum of a part must have the same bytes on every machine.
target_compile_options(waggle_flags INTERFACE -Wall -Wextra -Wpedantic -Werror -ffp-contract=off)
# With -O3, GCC 12 warns of overlapping copies in `"text" + string` and of uninitialized members of moved
# variants, where there are none (GCC bugs 105329 and 105562).
target_compile_options(waggle_flags INTERFACE
  $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict;-Wno-maybe-uninitialized>)
if(WAGGLE_SANITIZE)
  # CAF binds a null reference on each spawn (init_fun_factory.hpp).
  target_compile_options(waggle_flags INTERFACE -fsanitize=${WAGGLE_SANITIZE} -fno-sanitize-recover=all
    -fno-sanitize=null -fno-omit-frame-pointer
    # With instrumentation, GCC 12 warns that moved-from variants are uninitialized.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(waggle_flags INTERFACE -fsanitize=${WAGGLE_SANITIZE})
  if(WAGGLE_SANITIZE MATCHES thread)
    # The thread sanitizer does not support fences. Our threads do not rely on Asio's fences.
    target_compile_definitions(waggle_flags INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK)
  endif()
endif()

# waggle_unity(VARIABLE COUNT [PREFIX]): replaces the sources that the variable lists by files that include COUNT of
# them each, so that CAF's or LibTorch's headers are parsed, and the same templates instantiated, once
# for all of these. CMake's own unity files contain the path of the tree, so that the compiler cache
# of one clone would not serve another.
function(waggle_unity variable count)
  if(NOT WAGGLE_UNITY OR NOT count GREATER 1)
    return()
  endif()
  set(unity)
  set(number 0)
  set(sources ${${variable}})
  while(sources)
    list(SUBLIST sources 0 ${count} batch)
    list(REMOVE_ITEM sources ${batch})
    set(text "")
    foreach(source ${batch})
      cmake_path(ABSOLUTE_PATH source)
      cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
      string(APPEND text "#include \"${source}\"\n")
    endforeach()
    math(EXPR number "${number} + 1")
    set(file ${CMAKE_CURRENT_BINARY_DIR}/${ARGN}unity_${number}.cpp)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
    list(APPEND unity ${file})
  endwhile()
  set(${variable} ${unity} PARENT_SCOPE)
endfunction()

# waggle_library(NAME COMPONENT c [LIBRARIES …] [FOLDERS …]): builds all *.cpp of this folder, and of those below it that
# are named, into a static library waggle_NAME with the alias waggle::NAME. LIBRARIES are its public
# dependencies; together they define the architecture.
# It is part of the installed COMPONENT.
function(waggle_library name)
  cmake_parse_arguments(ARG "" "UNITY;COMPONENT" "LIBRARIES;EXCLUDE;FOLDERS;SOURCES" ${ARGN})
  list(TRANSFORM ARG_FOLDERS REPLACE "(.+)" "${CMAKE_CURRENT_SOURCE_DIR}/\\1/*.cpp")
  if(NOT ARG_COMPONENT)
    message(FATAL_ERROR "waggle_library(${name}): name the COMPONENT with which it is installed")
  endif()
  if(ARG_SOURCES)
    set(sources ${ARG_SOURCES})
  else()
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp ${ARG_FOLDERS})
  endif()
  foreach(excluded ${ARG_EXCLUDE})
    list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/${excluded})
  endforeach()
  waggle_unity(sources "${ARG_UNITY}")
  set(scope PUBLIC)
  if(sources)
    add_library(waggle_${name} STATIC ${sources})
    target_link_libraries(waggle_${name} PRIVATE $<BUILD_INTERFACE:waggle_flags>)
    # Also part of Python's extension, whose symbols must not meet those of other extensions.
    set_target_properties(waggle_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON
      CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  else()
    add_library(waggle_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_link_libraries(waggle_${name} ${scope} ${ARG_LIBRARIES})
  target_include_directories(waggle_${name} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  if(NOT PROJECT_IS_TOP_LEVEL)
    target_include_directories(waggle_${name} INTERFACE $<BUILD_INTERFACE:${WAGGLE_HEADERS}>)
  endif()
  target_compile_features(waggle_${name} ${scope} cxx_std_20)
  set_target_properties(waggle_${name} PROPERTIES EXPORT_NAME ${name})
  if(WAGGLE_INSTALL)
    install(TARGETS waggle_${name} EXPORT waggle-${ARG_COMPONENT} COMPONENT dev)
  endif()
  add_library(waggle::${name} ALIAS waggle_${name})
endfunction()

# waggle_test(NAME [LIBRARIES …] [TIMEOUT s] [SERIAL | WAITS] [SIMULATES] [UNITY n]): builds all *_test.cpp of this folder
# into one GoogleTest program. SERIAL: ctest runs no other test at the same time. WAITS: its peers mostly
# wait, so it takes two thirds of a processor, and others run beside it (scripts/test.sh counts in thirds).
# SIMULATES: its own code computes for long, so it is optimized.
function(waggle_test name)
  cmake_parse_arguments(ARG "SERIAL;SIMULATES;WAITS" "TIMEOUT;UNITY" "LIBRARIES;LABELS;SOURCES" ${ARGN})
  if(NOT ARG_SOURCES)
    file(GLOB ARG_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cpp)
  endif()
  if(NOT ARG_SOURCES)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  waggle_unity(ARG_SOURCES "${ARG_UNITY}")
  add_executable(${name}_test ${ARG_SOURCES})
  target_link_libraries(${name}_test PRIVATE waggle_flags ${ARG_LIBRARIES} GTest::gmock GTest::gtest_main)
  # Optimizing what runs once takes up to half of the time to compile.
  if(NOT ARG_SIMULATES AND NOT WAGGLE_SANITIZE)
    target_compile_options(${name}_test PRIVATE $<$<CONFIG:RelWithDebInfo>:-O0>)
  endif()
  # Pass only properties that are set: an empty value would shift the names and values that follow.
  set(properties TIMEOUT ${ARG_TIMEOUT})
  if(ARG_WAITS)
    list(APPEND properties PROCESSORS 2)
  else()
    list(APPEND properties PROCESSORS 3)
  endif()
  if(ARG_LABELS)
    list(APPEND properties LABELS ${ARG_LABELS})
  endif()
  if(ARG_SERIAL)
    list(APPEND properties RUN_SERIAL TRUE)
  endif()
  gtest_discover_tests(${name}_test DISCOVERY_MODE PRE_TEST PROPERTIES ${properties})
endfunction()
