#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/nearest.hpp"
#include "runtime/config/run_options.hpp"
#include "runtime/config/values.hpp"
#include "runtime/core/result.hpp"

/// Building blocks of the option table: functions that parse a text into a field of run_options, or
/// fail with half a sentence that follows the option's name.
namespace waggle::option_setters {

/// "0.003", "1000000", "1e+30"
inline std::string plain(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.15g", value);
  return text;
}

using setter = std::function<status(run_options&, std::string_view)>;

inline setter text(std::string run_options::*field) {
  return [field](run_options& o, std::string_view v) -> status {
    if (v.empty())
      return failure{ec::bad_config, "must not be empty"};
    o.*field = std::string{v};
    return done{};
  };
}

inline setter one_of(std::string run_options::*field, std::vector<std::string> names) {
  return [field, names = std::move(names)](run_options& o, std::string_view v) -> status {
    if (std::find(names.begin(), names.end(), v) == names.end()) {
      std::string all;
      for (const auto& name : names)
        all += (all.empty() ? "" : ", ") + name;
      return failure{ec::bad_config,
                     "is not one of " + all + "; the nearest is " + nearest(v, names)};
    }
    o.*field = std::string{v};
    return done{};
  };
}

inline setter whole(std::uint64_t run_options::*field, std::uint64_t low, std::uint64_t high,
                    std::string reason) {
  return [=](run_options& o, std::string_view v) -> status {
    auto value = parse_whole(v);
    if (!value)
      return value.error();
    if (*value < low || *value > high)
      return failure{ec::bad_config, "must lie between " + std::to_string(low) + " and "
                                       + std::to_string(high)
                                       + (reason.empty() ? "" : ": " + reason)};
    o.*field = *value;
    return done{};
  };
}

/// The bounds of a real number, and why values outside them are refused.
struct real_bounds {
  double low = 0;
  double high = 0;
  std::string why_not_below;
  std::string why_not_above;
  bool high_excluded = false;
};

inline setter real(double run_options::*field, real_bounds bounds) {
  return [field, b = std::move(bounds)](run_options& o, std::string_view v) -> status {
    auto value = parse_real(v);
    if (!value)
      return value.error();
    bool below = *value < b.low;
    if (below || *value > b.high || (b.high_excluded && *value == b.high))
      return failure{ec::bad_config,
                     (b.high_excluded
                        ? "must lie in [" + plain(b.low) + ", " + plain(b.high) + ")"
                        : "must lie between " + plain(b.low) + " and " + plain(b.high))
                       + ": " + (below ? b.why_not_below : b.why_not_above)};
    o.*field = *value;
    return done{};
  };
}

inline setter yes_no(bool run_options::*field) {
  return [field](run_options& o, std::string_view v) -> status {
    auto value = parse_yes_no(v);
    if (!value)
      return value.error();
    o.*field = *value;
    return done{};
  };
}

inline setter duration(milliseconds run_options::*field, milliseconds low, std::string reason) {
  return [=](run_options& o, std::string_view v) -> status {
    auto value = parse_duration(v);
    if (!value)
      return value.error();
    if (*value < low)
      return failure{ec::bad_config,
                     "must be at least " + std::to_string(low.count()) + "ms: " + reason};
    o.*field = *value;
    return done{};
  };
}

inline setter path(std::optional<std::filesystem::path> run_options::*field) {
  return [field](run_options& o, std::string_view v) -> status {
    if (v.empty())
      return failure{ec::bad_config, "must name a file"};
    o.*field = std::filesystem::path{v};
    return done{};
  };
}

} // namespace waggle::option_setters
