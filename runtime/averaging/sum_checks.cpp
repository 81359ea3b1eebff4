#include "runtime/averaging/sum_checks.hpp"

#include <cmath>
#include <cstring>
#include <span>

#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

/// Two random numbers for each part.
struct lot {
  std::uint64_t drawn;
  std::uint64_t checker;
};

lot lot_of(const digest& key, std::uint32_t part) {
  auto hash = sha256_stream{}
                .add("waggle check")
                .add(key.raw())
                .add(std::as_bytes(std::span{&part, 1}))
                .finish();
  lot out{};
  static_assert(sizeof out <= digest::size);
  std::memcpy(&out, hash.bytes.data(), sizeof out);
  return out;
}

} // namespace

std::vector<sum_check> draw_checks(const digest& key, double share, const part_table& parts,
                                   const round_view& view, member_set checkers) {
  std::vector<sum_check> out;
  for (std::uint32_t part = 0; part < parts.size(); ++part) {
    auto able = view.participant_set() & checkers;
    able.erase(parts.owner(part, view));
    auto [drawn, choice] = lot_of(key, part);
    if (able.empty() || sends_contributions_back(parts[part].codec)
        || std::ldexp(static_cast<double>(drawn >> 11U), -53) >= share)
      continue;
    for (auto skip = choice % able.size(); skip > 0; --skip)
      able.erase(able.lowest());
    out.push_back({part, able.lowest()});
  }
  return out;
}

} // namespace waggle
