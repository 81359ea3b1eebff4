#include "runtime/averaging/shares.hpp"

#include <algorithm>

namespace waggle {

std::vector<std::uint64_t> equal_shares(const std::vector<round_member>& members,
                                        std::uint64_t elements, std::uint64_t min_vector_size) {
  std::vector<std::uint64_t> shares(members.size(), 0);
  auto reducers = static_cast<std::uint64_t>(
    std::count_if(members.begin(), members.end(),
                  [](const round_member& m) { return m.mode != member_mode::client; }));
  if (reducers == 0)
    return shares;
  auto used =
    std::clamp<std::uint64_t>(elements / std::max<std::uint64_t>(min_vector_size, 1), 1, reducers);
  std::uint64_t given = 0; // members that have a share already
  for (std::size_t i = 0; i < members.size() && given < used; ++i) {
    if (members[i].mode == member_mode::client)
      continue;
    shares[i] = elements / used + (given < elements % used ? 1 : 0);
    ++given;
  }
  return shares;
}

} // namespace waggle
