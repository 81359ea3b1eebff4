// A list of members from another peer.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "runtime/crypto/member_list.hpp"

using namespace waggle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view bytes{reinterpret_cast<const char*>(data), size};
  run_members known{identity::from_seed(1)->key()};
  auto taken = known.take(bytes);
  auto list = known.list();
  if ((taken && *taken) != (list != nullptr))
    std::abort();
  if (list && (list->bytes() != bytes || list->members().size() > member_list::members_max))
    std::abort();
  return 0;
}
