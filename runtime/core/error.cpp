#include "runtime/core/error.hpp"

#include <array>
#include <stdexcept>

namespace waggle {

namespace {

// Indexed by value.
constexpr std::array<std::string_view, ec_max + 1U> names{"none",
                                                          "timeout",
                                                          "peer_lost",
                                                          "unreachable",
                                                          "shutting_down",
                                                          "cancelled",
                                                          "overloaded",
                                                          "protocol_violation",
                                                          "malformed",
                                                          "oversize",
                                                          "wrong_run",
                                                          "wrong_version",
                                                          "bad_signature",
                                                          "duplicate_identity",
                                                          "clock_skew",
                                                          "schema_mismatch",
                                                          "epoch_mismatch",
                                                          "non_finite",
                                                          "bad_weight",
                                                          "wrong_shape",
                                                          "not_looking",
                                                          "not_declared",
                                                          "not_a_leader",
                                                          "bad_expiration",
                                                          "duplicate_peer",
                                                          "group_full",
                                                          "group_disbanded",
                                                          "wrong_group_key",
                                                          "nobody_declared",
                                                          "too_few",
                                                          "unknown_round",
                                                          "lost_quorum",
                                                          "excluded",
                                                          "stalled",
                                                          "bad_expiry",
                                                          "stale_record",
                                                          "not_owner",
                                                          "no_donor",
                                                          "hash_mismatch",
                                                          "io_error",
                                                          "bad_config",
                                                          "internal",
                                                          "rate_limited",
                                                          "not_found",
                                                          "too_few_contributors",
                                                          "not_ready",
                                                          "implausible_norm",
                                                          "agreement_mismatch",
                                                          "unequal_results",
                                                          "wrong_sum",
                                                          "not_a_member"};

struct thrown_failure final : std::runtime_error, failure {
  explicit thrown_failure(const failure& why) : std::runtime_error(to_string(why)), failure(why) {}
};

} // namespace

std::string_view to_string(ec code) {
  auto index = static_cast<std::size_t>(code);
  return index < names.size() ? names[index] : "unknown";
}

ec ec_from_wire(std::uint32_t value) {
  return value <= ec_max ? static_cast<ec>(value) : ec::internal;
}

std::string to_string(const failure& what) {
  bool of_input = what.code == ec::malformed || what.code == ec::oversize
                  || what.code == ec::protocol_violation; // the detail says which part
  if (!of_input && what.detail.find(' ') != std::string::npos)
    return what.detail; // a sentence
  std::string out{to_string(what.code)};
  if (!what.detail.empty())
    out.append(": ").append(what.detail);
  return out;
}

void throw_failure(const failure& why) {
  throw thrown_failure{why};
}

} // namespace waggle
