# What users include, as copies: the public headers, and below internal/ those of ours that they include, which are not
# the API. There they include each other by <waggle/internal/…>. Our own folders on a user's include path would be mixed
# up with a `runtime/` or an `actors/` of theirs.
set(WAGGLE_HEADERS ${PROJECT_BINARY_DIR}/include)

file(GLOB headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include/waggle/*.hpp)
set(copied)
while(headers)
  list(POP_FRONT headers header)
  list(APPEND copied ${header})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
  file(READ ${header} text)
  string(REGEX MATCHALL "#include \"(actors|runtime|trainer)/[^\"]*" internal "${text}")
  list(TRANSFORM internal REPLACE "#include \"" "")
  list(APPEND headers ${internal})
  list(REMOVE_DUPLICATES headers)
  list(REMOVE_ITEM headers ${copied})
  string(REGEX REPLACE "#include \"((actors|runtime|trainer)/[^\"]*)\"" "#include <waggle/internal/\\1>" text "${text}")
  string(REGEX REPLACE "^(actors|runtime|trainer)/" "include/waggle/internal/\\1/" copy ${header})
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${copy} CONTENT "${text}" @ONLY) # leaves an equal file as it is
endwhile()
