# What `cmake --install` and `cpack` put where. COMPONENTs of installation are Debian's packages: dev, program, trainer
# and python.
include(CMakePackageConfigHelpers)

set(WAGGLE_COMPONENTS runtime actors simulation)
set(left_out)
foreach(part loop trainer)
  if(TARGET waggle_${part})
    list(APPEND WAGGLE_COMPONENTS ${part})
  else()
    list(APPEND left_out ${part})
  endif()
endforeach()
list(JOIN WAGGLE_COMPONENTS ", " WAGGLE_COMPONENTS_TEXT)
string(REGEX MATCH "^[0-9]+\\.[0-9]+" waggle_torch_release "${Torch_VERSION}")
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

install(DIRECTORY ${WAGGLE_HEADERS}/waggle DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)

if(WAGGLE_PROGRAMS)
  install(TARGETS waggle COMPONENT program)
endif()
if(WAGGLE_TRAINER)
  install(TARGETS waggle-trainer COMPONENT trainer) # beside `waggle`, which looks for it there
endif()
if(WAGGLE_PYTHON)
  # Debian's interpreter looks there below /usr and below /usr/local.
  set(WAGGLE_PYTHON_FOLDER lib/python${WAGGLE_PYTHON_VERSION}/dist-packages CACHE STRING "Where the module is installed")
  install(DIRECTORY ${PROJECT_BINARY_DIR}/python/waggle DESTINATION ${WAGGLE_PYTHON_FOLDER} COMPONENT python
    PATTERN "__pycache__" EXCLUDE PATTERN "*.so" EXCLUDE)
  install(TARGETS waggle_python LIBRARY DESTINATION ${WAGGLE_PYTHON_FOLDER}/waggle COMPONENT python)
  # For pyproject.toml, which adds the files of Python itself.
  install(TARGETS waggle_python waggle DESTINATION waggle COMPONENT wheel EXCLUDE_FROM_ALL)
endif()

if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()

# -- Debian packages: cpack -G DEB -----------------------------------------------------------------------------------

set(CPACK_PACKAGE_NAME waggle)
set(CPACK_PACKAGE_CONTACT "Waggle <waggle@localhost>") # dpkg wants an address
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON) # programs and extensions; archives keep what debuggers need
set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_COMPONENTS_ALL dev)
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libwaggle-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libcaf-dev (>= 0.17.6), libcaf-dev (<< 0.17.7), libssl-dev, libprotobuf-dev, \
prometheus-cpp-dev, libcurl4-openssl-dev, zlib1g-dev, libspdlog-dev")
if(WAGGLE_MINIUPNPC AND WAGGLE_NATPMP)
  string(APPEND CPACK_DEBIAN_DEV_PACKAGE_DEPENDS ", libminiupnpc-dev, libnatpmp-dev")
endif()
set(CPACK_COMPONENT_DEV_DESCRIPTION "Libraries, headers and the CMake package of Waggle. The component trainer also needs libtorch-dev.")
set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS libtorch-dev)
if(WAGGLE_PROGRAMS)
  list(APPEND CPACK_COMPONENTS_ALL program)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME waggle)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS waggle-trainer)
  set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "The program waggle: peers, status, benchmarks. `waggle train` is in waggle-trainer.")
endif()
if(WAGGLE_TRAINER)
  list(APPEND CPACK_COMPONENTS_ALL trainer)
  set(CPACK_DEBIAN_TRAINER_PACKAGE_NAME waggle-trainer)
  set(CPACK_DEBIAN_TRAINER_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_TRAINER_PACKAGE_DEPENDS "waggle (= ${PROJECT_VERSION})")
  set(CPACK_COMPONENT_TRAINER_DESCRIPTION "What `waggle train` runs: models and optimizers of LibTorch.")
endif()
if(WAGGLE_PYTHON)
  list(APPEND CPACK_COMPONENTS_ALL python)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_NAME python3-waggle)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
  # The extension is for one minor version of Python.
  string(REGEX REPLACE ".*\\." "" minor ${WAGGLE_PYTHON_VERSION})
  math(EXPR next "${minor} + 1")
  set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "python3 (>= 3.${minor}), python3 (<< 3.${next})")
  set(CPACK_DEBIAN_PYTHON_PACKAGE_RECOMMENDS python3-torch)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_SUGGESTS waggle)
  set(CPACK_COMPONENT_PYTHON_DESCRIPTION "`import waggle`: a training loop in Python as a peer of a run.")
endif()
include(CPack)
