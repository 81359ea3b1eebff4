#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "runtime/net/framing.hpp"

using namespace waggle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < net::frame_prefix::size)
    return 0;
  byte_span bytes{reinterpret_cast<const std::byte*>(data), net::frame_prefix::size};
  auto prefix = net::read_prefix(bytes);
  if (!prefix.ok())
    return 0;
  auto again = net::write_prefix(*prefix);
  if (prefix->header_bytes > wire::header_bytes_max || prefix->body_bytes > wire::body_bytes_max
      || !std::equal(again.begin(), again.end(), bytes.begin()))
    std::abort();
  return 0;
}
