#include <cstdint>
#include <cstdlib>

#include "runtime/wire/convert.hpp"

using namespace waggle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0)
    return 0;
  std::size_t body = (data[0] & 1U) != 0 ? 64 : 0;
  auto first = wire::decode({reinterpret_cast<const char*>(data) + 1, size - 1}, body);
  if (!first.ok())
    return 0;
  auto bytes = wire::encode(*first);
  auto second = wire::decode(bytes, body);
  if (!second.ok() || wire::encode(*second) != bytes)
    std::abort();
  return 0;
}
