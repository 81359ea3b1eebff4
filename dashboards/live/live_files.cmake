# Included by runtime/status, whose part the page at `/` becomes. Compresses its files. What is sent is at most
# 96 KiB, of which each file has its share; over it the build stops, as it does where a file of vendor/
# is not the released one (vendor/SHA256SUMS).
find_program(GZIP gzip REQUIRED)

# FILE:BYTES that it may have when compressed. index.html is the page itself.
set(live_files
  index.html:2048
  live.css:6144
  app.js:5120
  curves.js:5120
  events.js:3072
  format.js:3072
  links.js:3072
  loss.js:4096
  overview.js:5120
  peers.js:4096
  replay.js:2048
  rounds.js:6144
  shared.js:1024
  state.js:9216
  stream.js:3072
  bee.svg:1024
  vendor/lit-html.js:3328
  vendor/uPlot.iife.min.js:22528
  vendor/uPlot.min.css:1024)

set(all 0)
foreach(each ${live_files})
  string(REPLACE ":" ";" each "${each}")
  list(GET each 0 file)
  list(GET each 1 bytes)
  math(EXPR all "${all} + ${bytes}")
  list(APPEND sources ${CMAKE_CURRENT_LIST_DIR}/${file})
endforeach()
if(all GREATER 98304)
  message(FATAL_ERROR "dashboards/live: the files may take ${all} bytes together; 98304 (96 KiB) are allowed")
endif()

set(made ${CMAKE_CURRENT_BINARY_DIR}/live_files.cpp)
add_custom_command(OUTPUT ${made}
  COMMAND ${CMAKE_COMMAND} "-DFILES=${live_files}" -DFOLDER=${CMAKE_CURRENT_LIST_DIR} -DGZIP=${GZIP} -DOUT=${made}
    -P ${CMAKE_CURRENT_LIST_DIR}/embed.cmake
  DEPENDS ${sources} ${CMAKE_CURRENT_LIST_DIR}/vendor/SHA256SUMS ${CMAKE_CURRENT_LIST_DIR}/embed.cmake VERBATIM)
target_sources(waggle_status PRIVATE ${made})
