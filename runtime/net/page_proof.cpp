#include "runtime/net/page_proof.hpp"

#include <charconv>

#include "runtime/core/bytes.hpp"

namespace waggle::net {

namespace {

constexpr std::string_view scheme = "Waggle ";
constexpr std::int64_t seconds_max = 60;

std::int64_t seconds_since_1970(swarm_time at) {
  return std::chrono::duration_cast<std::chrono::seconds>(at.time_since_epoch()).count();
}

std::string proved_text(std::string_view target, std::string_view seconds) {
  return "page " + std::string{seconds} + " " + std::string{target};
}

} // namespace

std::string page_proof(const run_secret& run, std::string_view target, swarm_time now) {
  auto seconds = std::to_string(seconds_since_1970(now));
  return std::string{scheme} + seconds + " "
         + to_hex(run.proof(proved_text(target, seconds)).view());
}

bool proves_page(const run_secret& run, std::string_view target, std::string_view shown,
                 swarm_time now) {
  if (!shown.starts_with(scheme))
    return false;
  shown.remove_prefix(scheme.size());
  auto seconds = shown.substr(0, shown.find(' '));
  std::int64_t at = 0;
  auto [end, error] = std::from_chars(seconds.data(), seconds.data() + seconds.size(), at);
  if (error != std::errc{} || end != seconds.data() + seconds.size()
      || seconds.size() == shown.size())
    return false;
  auto here = seconds_since_1970(now);
  auto proof = from_hex(shown.substr(seconds.size() + 1));
  return at >= here - seconds_max && at <= here + seconds_max && proof
         && run.proves(proved_text(target, seconds), *proof);
}

} // namespace waggle::net
