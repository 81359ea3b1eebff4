#include "runtime/matchmaking/bucket_load.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "runtime/core/median.hpp"

namespace waggle {

namespace {

/// Parses and removes the digits at the beginning of `text`; nothing if there are none, or too
/// many.
std::optional<std::size_t> take_number(std::string_view& text) {
  std::size_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{})
    return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

} // namespace

std::string bucket_load::text() const {
  return std::to_string(bits) + " " + std::to_string(peers);
}

std::optional<bucket_load> bucket_load::parse(std::string_view text) {
  auto rest = text;
  auto bits = take_number(rest);
  if (!bits || rest.empty())
    return std::nullopt;
  rest.remove_prefix(1);
  auto peers = take_number(rest);
  if (!peers || *bits > bits_max || *peers == 0 || *peers > peers_max)
    return std::nullopt;
  bucket_load load{*bits, *peers};
  if (load.text() != text)
    return std::nullopt;
  return load;
}

std::optional<std::size_t> elastic_length(const std::vector<bucket_load>& loads, std::size_t target,
                                          std::size_t minimum) {
  if (loads.empty())
    return std::nullopt;
  std::vector<double> lengths;
  std::vector<double> swarm_sizes;
  for (const auto& load : loads) {
    lengths.push_back(static_cast<double>(load.bits));
    swarm_sizes.push_back(std::ldexp(static_cast<double>(load.peers), static_cast<int>(load.bits)));
  }
  auto length = static_cast<std::size_t>(upper_median(std::move(lengths)));
  auto peers = upper_median(std::move(swarm_sizes));
  auto in_a_bucket = [&] { return std::ldexp(peers, -static_cast<int>(length)); };
  auto full = static_cast<double>(target);
  while (length < bucket_load::bits_max && in_a_bucket() > 2 * full)
    ++length;
  while (length > 0 && (in_a_bucket() <= full / 2 || in_a_bucket() < static_cast<double>(minimum)))
    --length;
  return length;
}

} // namespace waggle
