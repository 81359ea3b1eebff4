# cmake -DFILES=name:bytes;… -DFOLDER=… -DGZIP=… -DOUT=live_files.cpp -P embed.cmake
# Checks the files, compresses them and writes the source that contains them.
cmake_minimum_required(VERSION 3.25)

file(STRINGS ${FOLDER}/vendor/SHA256SUMS sums)
foreach(line ${sums})
  string(REGEX MATCH "^([0-9a-f]+)  (.+)$" line "${line}")
  set(released ${CMAKE_MATCH_1})
  set(file ${FOLDER}/vendor/${CMAKE_MATCH_2})
  file(SHA256 ${file} found)
  if(NOT found STREQUAL released)
    message(FATAL_ERROR "${file} is not the released file: its SHA-256 is ${found}, and vendor/SHA256SUMS has ${released}")
  endif()
endforeach()

cmake_path(GET OUT PARENT_PATH made)
set(type_html "text/html; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_svg "image/svg+xml")
set(number 0)
foreach(each ${FILES})
  string(REPLACE ":" ";" each "${each}")
  list(GET each 0 name)
  list(GET each 1 bytes_max)
  set(packed ${made}/${number}.gz)
  # -n: no time and no name, so that equal files have equal bytes.
  # Lines that are a comment would be a tenth of what a browser loads.
  execute_process(COMMAND sed -E "/^ *(\\/\\/.*|\\/\\*[^!].*\\*\\/)$/d" ${FOLDER}/${name}
    COMMAND ${GZIP} -9 -n -c OUTPUT_FILE ${packed} COMMAND_ERROR_IS_FATAL ANY)
  file(SIZE ${packed} bytes)
  if(bytes GREATER bytes_max)
    message(FATAL_ERROR "dashboards/live/${name} has ${bytes} bytes when compressed; dashboards/live/live_files.cmake allows ${bytes_max}")
  endif()
  file(SHA256 ${FOLDER}/${name} tag)
  string(SUBSTRING ${tag} 0 16 tag)
  cmake_path(GET name EXTENSION LAST_ONLY extension)
  string(REPLACE "." "type_" type ${extension})
  set(path /live/${name})
  if(name STREQUAL "index.html")
    set(path /)
  endif()
  # Hidden: the libraries are also a part of shared objects.
  string(APPEND assembly
    "    \".hidden waggle_live_${number}\\n.globl waggle_live_${number}\\nwaggle_live_${number}:\\n\"\n"
    "    \".incbin \\\"${packed}\\\"\\n\"\n")
  string(APPEND declarations "extern \"C\" const unsigned char waggle_live_${number}[];\n")
  string(APPEND rows "  {\"${path}\", \"${${type}}\", \"${tag}\", {waggle_live_${number}, ${bytes}}},\n")
  math(EXPR number "${number} + 1")
endforeach()

file(WRITE ${OUT} "// Made by dashboards/live/embed.cmake.
#include \"runtime/status/live_page.hpp\"

__asm__(\".pushsection .rodata.waggle_live,\\\"a\\\"\\n\"
${assembly}    \".popsection\\n\");

${declarations}
namespace waggle {

namespace {
const live_file files[] = {
${rows}};
} // namespace

std::span<const live_file> live_files() {
  return files;
}

} // namespace waggle
")
