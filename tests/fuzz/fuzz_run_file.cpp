// A run file that somebody sends, with the key in it.

#include <cstdint>
#include <cstdlib>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

#include "runtime/config/options.hpp"
#include "runtime/core/unique_fd.hpp"

using namespace waggle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  unique_fd file{::memfd_create("run-file", MFD_CLOEXEC)};
  if (!file || ::write(file.get(), data, size) != static_cast<ssize_t>(size))
    std::abort();
  auto read = from_file("/proc/self/fd/" + std::to_string(file.get()));
  if (!read)
    return 0;
  auto options = resolve(*read, {}, {});
  if (options && is_inline_key(options->swarm_key))
    if (auto key = load_key(*options); key && inline_text(*options->key).size() != 4 + 64)
      std::abort();
  return 0;
}
