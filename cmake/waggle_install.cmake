# What `cmake --install` and `cpack` put where. COMPONENTs of installation are Debian's packages: dev, program, trainer
# and python.
include(CMakePackageConfigHelpers)

set(WAGGLE_COMPONENTS runtime actors)
set(left_out)
foreach(part loop trainer)
  if(TARGET waggle_${part})
    list(APPEND WAGGLE_COMPONENTS ${part})
  else()
    list(APPEND left_out ${part})
  endif()
endforeach()
list(JOIN WAGGLE_COMPONENTS ", " WAGGLE_COMPONENTS_TEXT)
set(WAGGLE_LEFT_OUT "")
if(left_out)
  set(WAGGLE_LEFT_OUT "; configure waggle with CLI11 and toml11 for loop, and also with LibTorch for trainer")
endif()

set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/waggle)
foreach(component ${WAGGLE_COMPONENTS})
  install(EXPORT waggle-${component} FILE waggle-${component}.cmake NAMESPACE waggle:: DESTINATION ${folder} COMPONENT dev)
endforeach()
configure_package_config_file(cmake/waggle-config.cmake.in ${PROJECT_BINARY_DIR}/cmake/waggle-config.cmake
  INSTALL_DESTINATION ${folder} NO_CHECK_REQUIRED_COMPONENTS_MACRO)
# Before 1.0, a minor version may change anything.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cmake/waggle-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cmake/waggle-config.cmake ${PROJECT_BINARY_DIR}/cmake/waggle-config-version.cmake
  cmake/waggle_dependencies.cmake cmake/FindCAF.cmake DESTINATION ${folder} COMPONENT dev)

# The public headers, and below internal/ those of ours that they include, which are not the API.
install(DIRECTORY include/waggle DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev FILES_MATCHING PATTERN "*.hpp")
foreach(header
    actors/loop/swarm.hpp trainer/batch_size.hpp trainer/optimizer.hpp runtime/training/step_outcome.hpp
    runtime/core/bytes.hpp runtime/core/check.hpp runtime/core/error.hpp runtime/core/ids.hpp runtime/core/result.hpp
    runtime/core/strong.hpp)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${WAGGLE_INTERNAL_HEADERS}/${folder} COMPONENT dev)
endforeach()

if(WAGGLE_PROGRAMS)
  install(TARGETS waggle COMPONENT program)
endif()
if(WAGGLE_TRAINER)
  install(TARGETS waggle-trainer COMPONENT trainer) # beside `waggle`, which looks for it there
endif()
if(WAGGLE_PYTHON)
  # Where Debian's interpreter, or the one that was chosen, looks for packages that pip has not installed.
  set(WAGGLE_PYTHON_FOLDER "" CACHE STRING "Where the module is installed; empty: lib/python3/dist-packages")
  set(folder ${WAGGLE_PYTHON_FOLDER})
  if(NOT folder)
    set(folder lib/python3/dist-packages)
  endif()
  install(DIRECTORY ${PROJECT_BINARY_DIR}/python/waggle DESTINATION ${folder} COMPONENT python
    PATTERN "__pycache__" EXCLUDE PATTERN "*.so" EXCLUDE)
  install(TARGETS waggle_python LIBRARY DESTINATION ${folder}/waggle COMPONENT python)
endif()
